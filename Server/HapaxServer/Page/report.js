// The daily report: tiles of a day or a week, days or hours as bars with the period before as a line, and the commonest events. Of one value of a
// property, and by hours, tiles and bars are of a series (analysis.js).

const FIGURES = [["users", "Users"], ["events", "Events"], ["active_users", "Active users"], ["new_users", "New users"], ["sessions", "Sessions"], ["mean_use_ms", "Mean use"]];
const APP_FIGURES = 2, SHORT_LIST = 10;

const grouped = (number) => number.toLocaleString("en", { maximumFractionDigits: number < 10 ? 1 : 0 });

function length(milliseconds) {
  const seconds = Math.round(milliseconds / 1000);
  return milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : seconds < 60 ? `${seconds} s` : seconds < 3600 ? `${Math.floor(seconds / 60)} m ${seconds % 60} s`
    : `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} m`;
}

const asDate = (day) => new Date(day + "T00:00:00Z");
const moved = (day, by) => new Date(asDate(day).getTime() + by * 86400000).toISOString().slice(0, 10);
const today = () => new Date().toISOString().slice(0, 10);
const dayName = (day) => asDate(day).toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short", timeZone: "UTC" });

const changeText = (value, earlier) => {
  const change = earlier && value !== null ? Math.round((100 * (value - earlier)) / earlier) : null;
  return change === null ? "" : `${change > 0 ? "+" : change < 0 ? "−" : "±"}${Math.abs(change)} %`;
};

// A line through the middle of each of some values, as an SVG path; null is a gap.
const path = (values, highest, height) => values.map((value, index) => (value === null ? "" : `${index > 0 && values[index - 1] !== null ? "L" : "M"}${index + 0.5} ${(height * (1 - value / (highest || 1))).toFixed(1)}`)).join("");

function spark(values) {
  const [svg, line] = ["svg", "path"].map((name) => document.createElementNS("http://www.w3.org/2000/svg", name));
  for (const [name, value] of Object.entries({ class: "spark", viewBox: `0 -1 ${values.length} 20`, preserveAspectRatio: "none", "aria-hidden": "true" })) svg.setAttribute(name, value);
  line.setAttribute("d", path(values, Math.max(...values), 18));
  svg.append(line);
  return svg;
}

const report = refreshed(30, {
  showsAllNames: false,
  shownDays: [],

  // What stands in the address: the last of the bars, the day of the tiles, over how many days, which figure, on which basis.
  get wanted() {
    const { parameters } = place();
    const one = (name, allowed) => (allowed.includes(parameters.get(name)) ? parameters.get(name) : allowed[0]);
    const day = (name) => (/^\d{4}-\d{2}-\d{2}$/.test(parameters.get(name) || "") && !Number.isNaN(asDate(parameters.get(name)).getTime()) ? parameters.get(name) : "");
    return { until: day("until"), day: day("day"), days: one("days", ["1", "7"]), figure: one("figure", ["events", ...FIGURES.map(([key]) => key)]), basis: one("basis", ["closed", "all"]),
      span: one("span", ["14", "28", "90", "hours"]), compare: one("compare", ["", "no"]), where: parameters.get("event") ? parameters.get("where") || "" : "",
      event: parameters.get("event") || "", property: parameters.get("property") || "", steps: parameters.getAll("step").slice(0, 8), within: one("within", ["", "1h", "1d", "30d"]) };
  },

  // How many days are drawn, or how many there are to choose one whose hours are.
  get bars() { return Number(this.wanted.span) || 14; },

  choose(changes) {
    const { until, day, days, figure, basis, event, property, where, steps, within, span, compare } = { ...this.wanted, ...("event" in changes ? { where: "" } : {}), ...changes };
    go("report", { until, day, days: days === "1" ? "" : days, figure: figure === "events" ? "" : figure, basis: basis === "closed" ? "" : basis, span: span === "14" ? "" : span, compare, event, property, where, step: steps, within: within === "7d" ? "" : within });
    if ("day" in changes || "until" in changes) this.showsAllNames = false;
    if (["until", "basis", "span"].some((name) => name in changes)) this.start(); else this.draw();
  },

  // By as many days as are drawn, or one day where hours are.
  move(by) {
    if (!this.answer) return;
    const { span, until } = this.wanted, ofHours = span === "hours", [first, end] = this.shownDays;
    const last = moved(ofHours ? this.last.day : until || end, by * (ofHours ? 1 : this.bars));
    if (ofHours && last > moved(today(), 1)) return;
    this.choose({ day: ofHours ? last : "", ...(ofHours && last >= first && last <= end ? {} : { until: last >= today() ? "" : last }) });
  },

  // Closed days are cheap: twice the bars, so that each has one to be compared with. Of all events each day is a scan.
  get parameters() {
    const { until, basis } = this.wanted;
    const from = moved(until || today(), 1 - (basis === "all" ? this.bars : 2 * this.bars));
    return { from: from < "1970-01-01" ? "1970-01-01" : from, to: until && moved(until, 1), basis: basis === "all" ? "all" : "" };
  },

  async question(signal) {
    const answer = await askJSON("v1/reports/daily", this.parameters, signal);
    clearTimeout(this.soon);
    if (this.isCounting(answer)) this.soon = setTimeout(() => { if (!signal.aborted) this.load(); }, 3000);
    return answer;
  },

  // Whether something has come late that the figures do not have yet.
  isCounting: (answer) => answer !== null && answer.warnings.some(({ code }) => code === "counting_late"),

  valueOf: (day, figure) => (figure === "events" ? day.events.total : day[figure]),
  textOf: (figure, value) => (value === null ? "–" : figure === "mean_use_ms" ? length(value) : grouped(value)),

  // Over several days: a day's mean, because users of several days cannot be added.
  mean(days, figure) {
    const values = days.map((day) => this.valueOf(day, figure)).filter((value) => value !== null);
    return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
  },

  // The latest closed day that has anything, else today.
  standard(days) {
    const closed = days.filter((day) => day.state === "closed");
    const withEvents = (list) => [...list].reverse().find((day) => day.events.total > 0);
    const latest = closed[closed.length - 1];
    return latest && latest.events.total > 0 ? latest : withEvents(days) || latest || days[days.length - 1];
  },

  draw() {
    const { until, day, days, figure, basis, span, compare, where, event } = this.wanted;
    for (const [id, value] of Object.entries({ days, basis, span })) $(id).value = value;
    $("until").value = until || (this.answer ? moved(this.answer.query.to, -1) : "");
    $("days").disabled = span === "hours";
    $("filter-value").hidden = !where;
    $("filter-value").replaceChildren(shown(`${event} · ${where}`), " ×");
    $("filter-value").setAttribute("aria-label", `Take the filter ${event}, ${where} away`);
    const daily = this.answer ? this.answer.days : [];
    $("report-body").hidden = !daily.length;
    this.tell(daily);
    if (!daily.length) return;
    const hasApp = !where && daily.some((one) => one.active_users > 0 || one.sessions > 0);
    const figures = hasApp && span !== "hours" ? FIGURES : FIGURES.slice(0, APP_FIGURES);
    const shownDays = daily.slice(-this.bars);
    this.shownDays = [shownDays[0].day, shownDays[shownDays.length - 1].day];
    this.last = daily.find((one) => one.day === day) || this.standard(shownDays);
    const shownFigure = figures.some(([key]) => key === figure) ? figure : "events";
    // Where a series is drawn, figures of all events would be wrong until it is there.
    const series = chart.shown(), nothing = { users: null, events: null }, ofHours = span === "hours";
    const known = (one, point) => ({ ...one, users: point.users, events: { ...one.events, total: point.events }, late: 0, before: point.previous });
    const points = new Map(series && !ofHours ? series.points.map((point) => [point.start.slice(0, 10), point]) : []);
    const all = where && !ofHours ? shownDays.map((one) => known(one, points.get(one.day) || nothing)) : daily;
    const end = all.findIndex((one) => one.day === this.last.day) + 1, count = ofHours ? 1 : Number(days);
    const chosen = all.slice(Math.max(0, end - count), end);
    this.tiles(figures, shownFigure, ofHours ? [known(this.last, series ? series.total : nothing)] : chosen, all.slice(Math.max(0, end - 2 * count), Math.max(0, end - count)), count);
    const value = (one) => (!one ? null : "day" in one ? this.valueOf(one, shownFigure) : one[shownFigure]);
    if (ofHours) {
      this.drawBars(series ? series.points.map((point) => ({ name: point.start.slice(11, 13), title: point.start.slice(11, 16), state: point.state, value: value(point), before: compare ? null : value(point.previous) })) : [], shownFigure);
    } else {
      const first = all.length - shownDays.length;
      this.drawBars(all.slice(first).map((one, index) => ({ day: one.day, name: String(Number(one.day.slice(8))), title: dayName(one.day), state: one.state, value: value(one), isChosen: chosen.includes(one),
        late: shownFigure === "events" && basis === "closed" ? one.late : 0, before: compare ? null : value(where ? one.before : all[index + first - this.bars]) })), shownFigure);
    }
    $("line-days").textContent = ofHours ? "the day before" : `the ${this.bars} days before`;
    $("report-bars").className = ofHours ? "many hours" : this.bars > 14 ? "many" : "";
    const names = daily.slice(0, daily.findIndex((one) => one.day === this.last.day) + 1);
    this.names(names.slice(-count), names.slice(-2 * count, -count), shownDays);
    this.table(all.slice(-this.bars), figures);
    analysis.draw(true);
  },

  tiles(figures, figure, chosen, before, count) {
    const last = chosen[chosen.length - 1];
    const isClosed = chosen.every((day) => day.state === "closed");
    $("period").textContent = count === 1 ? dayName(last.day) : `${dayName(chosen[0].day)} – ${dayName(last.day)}, a day on average`;
    const until = last.closes_at.slice(0, 16).replace("T", " ");
    const final = this.answer.query.basis === "closed" ? ": final" : "; late events can still change it";
    $("period-state").textContent = isClosed ? (count === 1 ? `closed at ${until}${final}` : `all closed${final}`) : last.state === "closing" ? "about to close" : `open until ${until}`;
    $("zone").textContent = last.time_zone;
    const canCompare = isClosed && before.length === count && before.every((day) => day.state === "closed" && day.events.total > 0);
    $("compared").textContent = !canCompare ? "" : count === 1 ? `compared with ${dayName(before[0].day)}` : `compared with the ${count} days before`;
    $("tiles").replaceChildren(...figures.map(([key, title]) => {
      const value = this.mean(chosen, key), earlier = canCompare ? this.mean(before, key) : null;
      return el("button", { type: "button", class: "tile", "aria-pressed": String(key === figure), onclick: () => { this.choose({ figure: key }); this.refocus("tiles", title); } },
        el("span", { class: "tile-title" }, title), el("span", { class: "tile-value" }, this.textOf(key, value)),
        el("span", { class: "tile-change" }, changeText(value, earlier)));
    }), $("week"));
  },

  // - bars: of days, which can be chosen, or of hours.
  drawBars(bars, figure) {
    const highest = Math.max(1, ...bars.map(({ value, late = 0, before }) => Math.max((value || 0) + late, before || 0)));
    const title = FIGURES.find(([key]) => key === figure)[1].toLowerCase();
    $("report-bars").replaceChildren(...bars.map(({ day, name, title: of, state, value, late = 0, before, isChosen = false }) => {
      const bar = (name, size) => {
        const part = el("span", { class: name });
        part.style.height = size > 0 ? `max(2px, ${(100 * size) / highest}%)` : "0";
        return part;
      };
      const words = `${of}: ${title} ${this.textOf(figure, value)}${before === null || before === undefined ? "" : ` (${this.textOf(figure, before)} before)`}${late ? `, ${grouped(late)} late` : ""}, ${state}`;
      const button = el("button", { type: "button", class: `day ${state}`, title: words, "aria-label": words, "aria-pressed": String(isChosen), onclick: day ? () => { this.choose({ day }); this.refocus("report-bars", words); } : null },
        el("span", { class: "column", "aria-hidden": "true" }, bar("bar-late", late), bar("bar-day", value || 0)), el("span", { class: "day-number", "aria-hidden": "true" }, name));
      return el("li", {}, button);
    }));
    const hasLine = bars.some(({ before }) => before > 0);
    const line = bars.map(({ before }) => (hasLine && typeof before === "number" ? before : null));
    $("report-line").setAttribute("viewBox", `0 0 ${Math.max(1, bars.length)} 100`);
    $("report-line").firstElementChild.setAttribute("d", path(line, highest, 100));
    $("line-key").hidden = !hasLine;
    $("report-scale").textContent = `${title}, highest ${this.textOf(figure, highest)}`;
    $("late-key").hidden = !bars.some(({ late }) => late > 0);
    $("open-key").hidden = bars.every(({ state }) => state === "closed");
  },

  // What was drawn anew keeps the focus.
  refocus(within, label) {
    for (const button of $(within).querySelectorAll("button")) if ((button.getAttribute("aria-label") || button.firstElementChild.textContent) === label) button.focus();
  },

  // Over several days a day's mean, as the tiles show, with the change against the days before and each day as a line.
  names(chosen, before, days) {
    const mean = (days) => {
      const counts = new Map();
      for (const { events } of days) for (const { event, count } of events.by_name) counts.set(event, (counts.get(event) || 0) + count / days.length);
      return counts;
    };
    const counts = mean(chosen), earlier = mean(before), total = this.mean(chosen, "events");
    const canCompare = before.length === chosen.length && [...before, ...chosen].every((day) => day.state === "closed" && day.events.other === 0) && this.mean(before, "events") > 0;
    $("report-names").caption.textContent = "Commonest events" + (chosen.length > 1 ? ", a day on average" : "") + (this.wanted.where ? ", whatever their properties" : "");
    const sorted = [...counts].sort((a, b) => b[1] - a[1]);
    const list = this.showsAllNames ? sorted : sorted.slice(0, SHORT_LIST);
    const rest = total - list.reduce((sum, [, count]) => sum + count, 0);
    // Of a day with more names than the report lists nobody knows whether one was there.
    const lineOf = (name) => days.map(({ events }) => { const found = events.by_name.find(({ event }) => event === name); return found ? found.count : events.other ? null : 0; });
    $("report-names").tBodies[0].replaceChildren(...list.map(([name, count]) => this.name(name, [grouped(count), canCompare ? changeText(count, earlier.get(name) || 0) : ""], count / list[0][1], lineOf(name))),
      ...(rest > 0.01 ? [listRow("all others", [grouped(rest), ""], null, "rest")] : []));
    $("report-names").hidden = total === 0;
    $("more-names").hidden = sorted.length <= SHORT_LIST;
    $("more-names").textContent = this.showsAllNames ? "Show fewer" : `Show ${sorted.length}`;
  },

  // A name opens its panel, and "+" appends it to the funnel.
  name(name, numbers, share, line) {
    const row = listRow(el("button", { type: "button", class: "link", "aria-pressed": String(name === this.wanted.event), onclick: () => this.choose({ event: name, property: "" }) }, shown(name)), numbers, share);
    row.append(el("td", {}, spark(line)), el("td", {}, el("button", { type: "button", class: "add", "aria-label": `Add ${name} to the funnel`, onclick: () => this.choose({ steps: [...this.wanted.steps, name] }) }, "+")));
    return row;
  },

  table(days, figures) {
    $("report-table").tHead.rows[0].replaceChildren(...["Day", "State", ...figures.map(([, title]) => title), "Late", "Ahead"].map((title) => el("th", { scope: "col" }, title)));
    $("report-table").tBodies[0].replaceChildren(...[...days].reverse().map((day) => el("tr", {}, el("th", { scope: "row" }, day.day), el("td", {}, day.state),
      ...figures.map(([key]) => el("td", {}, this.textOf(key, this.valueOf(day, key)))), el("td", {}, grouped(day.late)), el("td", {}, grouped(day.ahead)))));
  },

  // Never blank, never a guess.
  tell(days) {
    const parts = [];
    if (this.error) parts.push(el("span", { class: "alarm" }, this.error), " ", this.answer ? `Below is what was known at ${clock(this.at)}. ` : "",
      el("button", { type: "button", onclick: () => this.load() }, "Try again"));
    const late = this.answer ? this.answer.warnings.filter((warning) => warning.code === "only_late" && days.slice(-this.bars).some((day) => day.day === warning.day)) : [];
    if (this.isCounting(this.answer)) parts.push("Counting what came late … ");
    if (late.length) parts.push(`${late.length === 1 ? "One day holds" : `${late.length} days hold`} only late events (${grouped(late.reduce((sum, { late }) => sum + late, 0))}): they arrived after the report of their day had closed, as imported history does. `,
      el("button", { type: "button", onclick: () => this.choose({ basis: "all" }) }, "Count late events"));
    $("report-notice").hidden = parts.length === 0;
    $("report-notice").replaceChildren(...parts);
    const nothing = days.length > 0 && days.slice(-this.bars).every((day) => day.events.total === 0 && day.late === 0) && !this.isCounting(this.answer);
    const empty = !this.answer && !this.error ? [el("p", {}, "Loading…")] : nothing ? [el("h3", {}, "No event in these days"), el("p", {}, "A day counts what happened in it, by the event’s own time."),] : [];
    $("report-empty").replaceChildren(...empty);
    if (nothing) $("report-body").hidden = true;
    $("as-of").textContent = this.at ? `as of ${clock(this.at)}` : "";
    speak(this.error || (this.answer ? `report as of ${clock(this.at)}` : "loading"));
  },
});

$("days").addEventListener("change", () => report.choose({ days: $("days").value }));
$("basis").addEventListener("change", () => report.choose({ basis: $("basis").value }));
$("span").addEventListener("change", () => report.choose({ span: $("span").value }));
$("filter-value").addEventListener("click", () => report.choose({ where: "" }));
$("until").addEventListener("change", () => report.choose({ until: $("until").value, day: "" }));
$("more-names").addEventListener("click", () => { report.showsAllNames = !report.showsAllNames; report.draw(); });
