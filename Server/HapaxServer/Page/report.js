// The daily report: tiles of a day or a week, fourteen days as bars, and the commonest events.

const FIGURES = [["users", "Users"], ["events", "Events"], ["active_users", "Active users"], ["new_users", "New users"], ["sessions", "Sessions"], ["mean_use_ms", "Mean use"]];
const APP_FIGURES = 2, REPORT_BARS = 14, SHORT_LIST = 10;

const grouped = (number) => number.toLocaleString("en", { maximumFractionDigits: number < 10 ? 1 : 0 });

function length(milliseconds) {
  const seconds = Math.round(milliseconds / 1000);
  return milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : seconds < 60 ? `${seconds} s` : seconds < 3600 ? `${Math.floor(seconds / 60)} m ${seconds % 60} s`
    : `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} m`;
}

const asDate = (day) => new Date(day + "T00:00:00Z");
const moved = (day, by) => new Date(asDate(day).getTime() + by * 86400000).toISOString().slice(0, 10);
const dayName = (day) => asDate(day).toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short", timeZone: "UTC" });

const report = refreshed(30, {
  showsAllNames: false,
  shownDays: [],

  // What stands in the address: the last of the bars, the day of the tiles, over how many days, which figure, on which basis.
  get wanted() {
    const { parameters } = place();
    const one = (name, allowed) => (allowed.includes(parameters.get(name)) ? parameters.get(name) : allowed[0]);
    const day = (name) => (/^\d{4}-\d{2}-\d{2}$/.test(parameters.get(name) || "") ? parameters.get(name) : "");
    return { until: day("until"), day: day("day"), days: one("days", ["1", "7"]), figure: one("figure", ["events", ...FIGURES.map(([key]) => key)]), basis: one("basis", ["closed", "all"]),
      event: parameters.get("event") || "", property: parameters.get("property") || "", steps: parameters.getAll("step").slice(0, 8), within: one("within", ["", "1h", "1d", "30d"]) };
  },

  choose(changes) {
    const { until, day, days, figure, basis, event, property, steps, within } = { ...this.wanted, ...changes };
    go("report", { until, day, days: days === "1" ? "" : days, figure: figure === "events" ? "" : figure, basis: basis === "closed" ? "" : basis, event, property, step: steps, within: within === "7d" ? "" : within });
    if ("day" in changes || "until" in changes) this.showsAllNames = false;
    if ("until" in changes || "basis" in changes) this.start(); else this.draw();
  },

  // Closed days are cheap: twice the bars, so that a week has one to be compared with. Of all events each day is a scan.
  get parameters() {
    const { until, basis } = this.wanted;
    const last = until || new Date().toISOString().slice(0, 10);
    const from = moved(last, 1 - (basis === "all" ? REPORT_BARS : 2 * REPORT_BARS));
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
    const { until, day, days, figure, basis } = this.wanted;
    $("days").value = days;
    $("basis").value = basis;
    $("until").value = until || (this.answer ? moved(this.answer.query.to, -1) : "");
    const all = this.answer ? this.answer.days : [];
    $("report-body").hidden = !all.length;
    this.tell(all);
    if (!all.length) return;
    const hasApp = all.some((one) => one.active_users > 0 || one.sessions > 0);
    const figures = hasApp ? FIGURES : FIGURES.slice(0, APP_FIGURES);
    // Of the bars.
    this.shownDays = [all.slice(-REPORT_BARS)[0].day, all[all.length - 1].day];
    const shownFigure = figures.some(([key]) => key === figure) ? figure : "events";
    const last = all.find((one) => one.day === day) || this.standard(all.slice(-REPORT_BARS));
    const end = all.indexOf(last) + 1, count = Number(days);
    const chosen = all.slice(Math.max(0, end - count), end);
    this.tiles(figures, shownFigure, chosen, all.slice(Math.max(0, end - 2 * count), Math.max(0, end - count)), count);
    this.bars(all.slice(-REPORT_BARS), shownFigure, chosen);
    this.names(chosen);
    this.table(all.slice(-REPORT_BARS), figures);
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
      const change = earlier && value !== null ? Math.round((100 * (value - earlier)) / earlier) : null;
      return el("button", { type: "button", class: "tile", "aria-pressed": String(key === figure), onclick: () => { this.choose({ figure: key }); this.refocus("tiles", title); } },
        el("span", { class: "tile-title" }, title), el("span", { class: "tile-value" }, this.textOf(key, value)),
        el("span", { class: "tile-change" }, change === null ? "" : `${change > 0 ? "+" : change < 0 ? "−" : "±"}${Math.abs(change)} %`));
    }));
  },

  bars(days, figure, chosen) {
    const late = (day) => (figure === "events" && this.wanted.basis === "closed" ? day.late : 0);
    const highest = Math.max(1, ...days.map((day) => (this.valueOf(day, figure) || 0) + late(day)));
    const title = FIGURES.find(([key]) => key === figure)[1].toLowerCase();
    $("report-bars").replaceChildren(...days.map((day) => {
      const value = this.valueOf(day, figure);
      const bar = (name, size) => {
        const part = el("span", { class: name });
        part.style.height = size > 0 ? `max(2px, ${(100 * size) / highest}%)` : "0";
        return part;
      };
      const words = `${dayName(day.day)}: ${title} ${this.textOf(figure, value)}${late(day) ? `, ${grouped(day.late)} late` : ""}, ${day.state}`;
      return el("li", {}, el("button", { type: "button", class: `day ${day.state}`, title: words, "aria-label": words, "aria-pressed": String(chosen.includes(day)),
        onclick: () => { this.choose({ day: day.day }); this.refocus("report-bars", words); } },
        el("span", { class: "column", "aria-hidden": "true" }, bar("bar-late", late(day)), bar("bar-day", value || 0)), el("span", { class: "day-number", "aria-hidden": "true" }, String(Number(day.day.slice(8))))));
    }));
    $("report-scale").textContent = `${title}, highest ${this.textOf(figure, highest)}`;
    $("late-key").hidden = !days.some((day) => late(day) > 0);
    $("open-key").hidden = days.every((day) => day.state === "closed");
  },

  // What was drawn anew keeps the focus.
  refocus(within, label) {
    for (const button of $(within).querySelectorAll("button")) if ((button.getAttribute("aria-label") || button.firstElementChild.textContent) === label) button.focus();
  },

  // Over several days a day's mean, as the tiles show.
  names(chosen) {
    const counts = new Map();
    for (const { events } of chosen) for (const { event, count } of events.by_name) counts.set(event, (counts.get(event) || 0) + count / chosen.length);
    const total = this.mean(chosen, "events");
    $("report-names").caption.textContent = "Commonest events" + (chosen.length > 1 ? ", a day on average" : "");
    const sorted = [...counts].sort((a, b) => b[1] - a[1]);
    const list = this.showsAllNames ? sorted : sorted.slice(0, SHORT_LIST);
    const rest = total - list.reduce((sum, [, count]) => sum + count, 0);
    $("report-names").tBodies[0].replaceChildren(...list.map(([name, count]) => this.name(name, count, count / list[0][1])),
      ...(rest > 0.01 ? [listRow("all others", [grouped(rest)], null, "rest")] : []));
    $("report-names").hidden = total === 0;
    $("more-names").hidden = sorted.length <= SHORT_LIST;
    $("more-names").textContent = this.showsAllNames ? "Show fewer" : `Show ${sorted.length}`;
  },

  // A name opens its panel, and "+" appends it to the funnel.
  name(name, count, share) {
    const row = listRow(el("button", { type: "button", class: "link", "aria-pressed": String(name === this.wanted.event), onclick: () => this.choose({ event: name, property: "" }) }, shown(name)), [grouped(count)], share);
    row.append(el("td", {}, el("button", { type: "button", class: "add", "aria-label": `Add ${name} to the funnel`, onclick: () => this.choose({ steps: [...this.wanted.steps, name] }) }, "+")));
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
    const late = this.answer ? this.answer.warnings.filter((warning) => warning.code === "only_late" && days.slice(-REPORT_BARS).some((day) => day.day === warning.day)) : [];
    if (this.isCounting(this.answer)) parts.push("Counting what came late … ");
    if (late.length) parts.push(`${late.length === 1 ? "One day holds" : `${late.length} days hold`} only late events (${grouped(late.reduce((sum, { late }) => sum + late, 0))}): they arrived after the report of their day had closed, as imported history does. `,
      el("button", { type: "button", onclick: () => this.choose({ basis: "all" }) }, "Count late events"));
    $("report-notice").hidden = parts.length === 0;
    $("report-notice").replaceChildren(...parts);
    const nothing = days.length > 0 && days.slice(-REPORT_BARS).every((day) => day.events.total === 0 && day.late === 0) && !this.isCounting(this.answer);
    const empty = !this.answer && !this.error ? [el("p", {}, "Loading…")] : nothing ? [el("h3", {}, "No event in these days"), el("p", {}, "A day counts what happened in it, by the event’s own time."),] : [];
    $("report-empty").replaceChildren(...empty);
    if (nothing) $("report-body").hidden = true;
    $("as-of").textContent = this.at ? `as of ${clock(this.at)}` : "";
    speak(this.error || (this.answer ? `report as of ${clock(this.at)}` : "loading"));
  },
});

$("days").addEventListener("change", () => report.choose({ days: $("days").value }));
$("basis").addEventListener("change", () => report.choose({ basis: $("basis").value }));
$("until").addEventListener("change", () => report.choose({ until: $("until").value, day: "" }));
$("more-names").addEventListener("click", () => { report.showsAllNames = !report.showsAllNames; report.draw(); });
