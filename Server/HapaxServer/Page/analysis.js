// Questions below the daily figures, about the days of the bars: a property's values, a funnel, who came back. Each panel asks for itself.

const percent = (part, whole) => (whole > 0 ? `${(100 * part / whole).toLocaleString("en", { maximumFractionDigits: 1 })} %` : "–");

// A panel: `parameters` says what to ask, or null for nothing; `draw` shows an answer; what is still shown while another is asked for is pale.
// - request: what CSV and curl are of.
const panel = (name, path, { parameters, draw, empty, clear = () => {}, request = () => [path, parameters() || {}] }) => ({
  name, parameters, request, asked: "", of: "", at: 0, abort: null, answer: null,

  // Nothing of one project is shown as another's.
  forget() {
    this.stop();
    Object.assign(this, { of: "", answer: null });
    const table = $(name + "-table");
    if (table) table.tBodies[0].replaceChildren();
    clear();
  },

  // - isAgain: the refresh of a panel that is open; figures that are final are left alone.
  show(isAgain) {
    const wanted = parameters();
    $(name + "-body").hidden = wanted === null && empty !== null;
    if (wanted === null) $(name + "-state").textContent = empty;
    const text = JSON.stringify(wanted);
    if (text === this.asked && !(isAgain && wanted && this.answer && !this.answer.final && Date.now() - this.at > 60000)) return;
    this.stop();
    this.asked = text;
    if (wanted !== null) this.load(wanted);
  },

  stop() {
    if (this.abort) this.abort.abort();
    Object.assign(this, { asked: "", abort: null });
    $(name + "-body").classList.remove("stale");
  },

  async load(wanted) {
    this.abort = new AbortController();
    const { signal } = this.abort, of = this.asked, body = $(name + "-body");
    body.classList.add("stale");
    if (!this.answer) $(name + "-state").textContent = "Loading…";
    try {
      const answer = await askJSON(path, wanted, signal);
      Object.assign(this, { answer, of, at: Date.now() });
      body.classList.remove("stale");
      const late = answer.late ? `; ${grouped(answer.late)} events of these days came late` : "";
      const warnings = { steps_straddle_login: "; devices did steps under several users: see by=install_id", rows_removed: "; events of these days may have been erased" };
      $(name + "-state").textContent = (answer.final ? "Final" : `As of ${clock(new Date(answer.as_of))}`) + late + answer.warnings.map(({ code }) => warnings[code] || `; ${code}`).join("");
      draw(answer, wanted);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status === 401) return forgetKey(explain(error));
      // What takes too long is not asked again by itself.
      const isTooMuch = error instanceof Problem && error.code === "range_too_large";
      if (!isTooMuch) this.asked = "";
      clear();
      $(name + "-state").replaceChildren(el("span", { class: "alarm" }, explain(error)), isTooMuch && report.wanted.span !== "hours" ? " (Hours asks about one day.) " : " ",
        el("button", { type: "button", onclick: () => { this.asked = ""; this.show(); } }, "Try again"));
    }
  },

  async save() {
    try {
      const [path, asked] = request();
      const answer = await ask(path, { ...asked, format: "csv" });
      const link = el("a", { href: URL.createObjectURL(await answer.blob()), download: `${name}.csv` });
      link.click();
      URL.revokeObjectURL(link.href);
    } catch (error) { $(name + "-state").textContent = explain(error); }
  },
});

// Of the steps that are the chosen event.
const filters = () => Object.fromEntries(report.wanted.steps.map((step, index) => [`where${index + 1}`, step === report.wanted.event ? report.wanted.where : ""]));

// The days that are drawn, or the one whose hours are.
const ofDays = () => {
  const [from, last] = report.wanted.span === "hours" && report.last ? [report.last.day, report.last.day] : report.shownDays;
  return { from, to: last && moved(last, 1), basis: report.wanted.basis === "all" ? "all" : "" };
};

// The filter on a property's value, as `where` has it.
const filterOf = (name, value) => `${/^"|:/.test(name) ? JSON.stringify(name) : name}:${JSON.isRawJSON && JSON.isRawJSON(value) ? value.rawJSON : JSON.stringify(value)}`;

// What the bars show if not the daily report: the hours of a day, or one value of a property.
const chart = panel("chart", "v1/reports/series", {
  empty: null,
  parameters() {
    const { event, where, span, compare } = report.wanted;
    if (!report.last || !report.answer || (!where && span !== "hours")) return null;
    return { ...ofDays(), unit: span === "hours" ? "hour" : "", event: where && event, where, compare: compare ? "" : "previous" };
  },
  request: () => (chart.parameters() ? ["v1/reports/series", chart.parameters()] : ["v1/reports/daily", report.parameters]),
  draw: () => report.draw(),
});

// Its answer, if it is to what is wanted now.
chart.shown = () => (chart.of === JSON.stringify(chart.parameters()) ? chart.answer : null);

const NEAR = 2;

// How many letters have to be changed (Levenshtein).
function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)));
    row = next;
  }
  return row[b.length];
}

// A name of these days that is nearly this one; none if this one is there.
function nearName(name) {
  const names = [...new Set((report.answer ? report.answer.days : []).flatMap(({ events }) => events.by_name.map(({ event }) => event)))];
  return names.includes(name) ? undefined : names.map((one) => [distance(one.slice(0, 200), name), one]).filter(([far]) => far <= NEAR).sort(([a], [b]) => a - b).map(([, one]) => one)[0];
}

const panels = [
  chart,
  panel("week", "v1/reports/series", {
    empty: "",
    parameters: () => (report.last ? { from: report.last.day, to: moved(report.last.day, 1), basis: ofDays().basis, over: "7", event: report.wanted.where && report.wanted.event, where: report.wanted.where } : null),
    clear() { $("week-body").textContent = "–"; },
    draw({ points, final }) {
      $("week-body").textContent = points.length ? grouped(points[0].users_over) : "–";
      $("week-state").textContent = final ? "" : `as of ${clock(new Date())}`;
    },
  }),
  panel("values", "v1/reports/breakdown", {
    empty: "",
    parameters: () => (report.wanted.event && report.wanted.property && report.shownDays[0] ? { ...ofDays(), event: report.wanted.event, property: report.wanted.property } : null),
    draw({ rows, missing, other, total }, wanted) {
      const row = (title, { events, users }, kind) => listRow(title, [grouped(events), grouped(users)], total.events ? events / total.events : null, kind);
      const value = (one) => {
        const where = filterOf(wanted.property, one), isChosen = where === report.wanted.where;
        return el("button", { type: "button", class: "link", "aria-pressed": String(isChosen), onclick: () => report.choose({ where: isChosen ? "" : where }) }, shown(typeof one === "string" ? one : JSON.stringify(one)));
      };
      $("values-table").tBodies[0].replaceChildren(...rows.map((one) => row(value(one.value), one)),
        ...(other.values ? [row(`${grouped(other.values)} other values`, other, "rest")] : []), ...(missing.events ? [row("without it", missing, "rest")] : []), row("all", total, "rest"));
    },
  }),
  panel("funnel", "v1/reports/funnel", {
    empty: "“+” beside an event makes it a step; with two there is a funnel.",
    parameters: () => (report.wanted.steps.length > 1 && report.shownDays[0] ? { ...ofDays(), step: report.wanted.steps, within: report.wanted.within, ...filters() } : null),
    draw({ steps, open }) {
      const first = steps[0].users;
      $("funnel-table").tBodies[0].replaceChildren(...steps.map((one, index) => listRow(shown(one.step),
        [grouped(one.users), index ? percent(one.users, steps[index - 1].users) : "", index ? percent(one.users, first) : "", one.median_ms === null ? "" : length(one.median_ms)], first ? one.users / first : 0)));
      const none = steps.find((one, index) => one.users === 0 && (index === 0 || steps[index - 1].users > 0));
      const near = none && nearName(none.step);
      $("funnel-open").replaceChildren(open ? `${grouped(open)} may still go on. ` : "", none ? `Nobody did ${escaped(none.step)}${none === steps[0] ? " in these days" : " in time"}. ` : "",
        ...(near ? ["Did you mean ", el("button", { type: "button", class: "link", onclick: () => report.choose({ steps: report.wanted.steps.map((one) => (one === none.step ? near : one)) }) }, shown(near)), "?"] : []));
    },
  }),
  panel("return", "v1/reports/retention", {
    empty: "",
    // As many as one question may have.
    parameters: () => ($("return").open && report.shownDays[0] ? { ...ofDays(), ...(report.bars > 60 ? { from: moved(report.shownDays[1], -59) } : {}), return: report.wanted.event, where: report.wanted.where } : null),
    draw({ cohorts: all, average, unassigned }, wanted) {
      const begun = all.findIndex(({ size }) => size > 0), cohorts = all.slice(begun < 0 ? -1 : begun);
      $("return-title").textContent = wanted.return ? `New users with a later ${wanted.return}` : "New users who came back";
      $("return-table").tHead.rows[0].replaceChildren(...["New on", "Users", ...cohorts.map((_, index) => String(index))].map((title, index) => el("th", { scope: "col", class: index ? "number" : null }, title)));
      const cell = (users, size, state) => {
        const box = el("td", { class: `number cell ${state || ""}`, title: state ? `${grouped(users)} of ${grouped(size)}, ${state}` : null }, state && size ? percent(users, size) : "");
        box.style.setProperty("--share", state && size ? users / size : 0);
        return box;
      };
      $("return-table").tBodies[0].replaceChildren(
        ...cohorts.map(({ day, size, returned }) => el("tr", {}, el("th", { scope: "row" }, dayName(day)), el("td", { class: "number" }, grouped(size)), ...returned.map((one) => cell(one && one.users, size, one && one.state)))),
        el("tr", { class: "rest" }, el("th", { scope: "row" }, "average"), el("td", {}), ...average.slice(0, cohorts.length).map(({ users, size }) => el("td", { class: "number" }, size ? percent(users, size) : ""))));
      $("return-note").textContent = begun < 0 ? "Nobody is new in these days: new is who sends the first $AppStart." : unassigned ? `${grouped(unassigned)} other users are new on none of these days: a start before came late.` : "";
    },
  }),
];

// The chosen event, and what it can be asked for.
async function drawEvent(event) {
  $("values").hidden = !event;
  if (!event || event === $("values").dataset.event) return;
  $("values").dataset.event = event;
  $("values-title").replaceChildren("Event ", shown(event));
  try {
    const { names } = await askJSON("v1/names", { from: moved(new Date().toISOString().slice(0, 10), -7) });
    const known = names.find((one) => one.event === event);
    $("properties").replaceChildren(...(known ? known.properties : []).map((name) => el("option", { value: name })));
    const [first] = known ? known.properties : [];
    if (first && !report.wanted.property && report.wanted.event === event) report.choose({ property: first });
  } catch { /* Suggestions are a convenience. */ }
}

const analysis = {
  draw(isAgain) {
    const { event, property, steps, within } = report.wanted;
    drawEvent(event);
    if (document.activeElement !== $("property")) $("property").value = property;
    $("within").value = within || "7d";
    $("funnel-steps").replaceChildren(...steps.map((step, index) => el("li", {}, shown(step), " ",
      el("button", { type: "button", class: "add", "aria-label": `Take ${step} out of the funnel`, onclick: () => report.choose({ steps: steps.filter((_, place) => place !== index) }) }, "×"))));
    for (const one of panels) one.show(isAgain);
  },
  stop() { for (const one of panels) one.stop(); },
  forget() {
    for (const one of panels) one.forget();
    $("values").dataset.event = "";
  },
};

for (const one of panels) {
  if ($(one.name + "-tools")) $(one.name + "-tools").append(el("button", { type: "button", onclick: () => one.save() }, "CSV"),
    el("button", { type: "button", onclick: (event) => copy(curlOfRequest(...one.request()), event.currentTarget) }, "Copy as curl"));
}
$("property").addEventListener("change", () => report.choose({ property: $("property").value.trim() }));
$("within").addEventListener("change", () => report.choose({ within: $("within").value }));
$("close-event").addEventListener("click", () => report.choose({ event: "", property: "" }));
$("return").addEventListener("toggle", () => analysis.draw());
