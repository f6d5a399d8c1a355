// One event or refusal: as a row, and in full.

function facts(pairs) {
  const list = el("dl", { class: "facts" });
  for (const [name, value] of pairs) {
    if (value === null || value === undefined || value === "") continue;
    list.append(el("dt", {}, name), el("dd", {}, value instanceof Node ? value : shown(value)));
  }
  return list;
}

function detail(row) {
  if (row.refusal) {
    const r = row.refusal;
    const parts = [facts([["Refused", when(r.at)], ["Reason", r.reason], ["Detail", r.detail], ["Id", r.event_id], ["Event", r.name]])];
    if (r.sample) parts.push(el("p", {}, "Its first bytes:"), el("pre", {}, escaped(r.sample)));
    return parts;
  }
  return [
    facts([["Outcome", row.outcome], [row.outcome === "stored" ? "Received" : "Answered", when(row.at)], ["Happened", when(happened(row))],
      ["Late", row.late ? "it arrived after the report of its day had closed" : ""], ["Install", row.install_id], ["Sequence", row.sequence]]),
    el("pre", { tabindex: "0", "aria-label": "The event as JSON" }, pretty(row.event)),
    copyButton(curlOfEvent(row.event)),
  ];
}

const REFUSED = new Set(["rejected", "conflict", "expired", "refused"]);

function rowOf(kind, data) {
  if (kind === "refusal") {
    const outcome = data.what === "request" ? "refused" : REFUSED.has(data.reason) ? data.reason : "rejected";
    return { id: data.event_id, outcome, at: data.at, name: data.name, refusal: data };
  }
  return { id: data.event.event_id, outcome: data.outcome || "stored", at: data.at || data.received_at, name: data.event.event, event: data.event,
    late: data.late, install_id: data.install_id, sequence: data.sequence };
}

const happened = (row) => new Date(row.event.time).toISOString();

let rowNumber = 0;

function rowElement(row, toggled, time = row.at) {
  const refused = REFUSED.has(row.outcome);
  const cells = [el("td", {}, row.name ? shown(row.name) : "")];
  if (row.refusal) {
    const reason = row.refusal.reason === row.outcome ? row.refusal.detail : `${row.refusal.reason}: ${row.refusal.detail}`;
    const name = row.name ? el("span", { class: "name" }, shown(row.name)) : el("span", { class: "name reason" }, row.refusal.what === "request" ? "whole request" : "no name");
    cells[0] = el("td", { colspan: "3" }, el("div", { class: "what" }, name, el("span", { class: "why" }, shown(reason))));
  } else {
    cells.push(el("td", { class: "user" }, shown(row.event.distinct_id)), el("td", { class: "number" }, span(new Date(row.at) - row.event.time)));
  }
  const element = el("tr", { class: `row ${refused ? "refused" : row.outcome}`, tabindex: "0", "aria-expanded": "false", id: "row-" + ++rowNumber },
    el("td", {}, when(time)), el("td", { class: "outcome" }, row.outcome), ...cells);
  element.row = row;
  const toggle = () => {
    const isOpen = element.getAttribute("aria-expanded") === "true";
    element.setAttribute("aria-expanded", String(!isOpen));
    if (isOpen) element.nextElementSibling.remove();
    else element.after(el("tr", { class: "detail" }, el("td", { colspan: "5" }, ...detail(row))));
    if (toggled) toggled();
  };
  element.addEventListener("click", () => { if (!getSelection().toString()) toggle(); });
  element.addEventListener("keydown", (event) => {
    if (event.target !== element) return;
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); }
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      let next = element;
      do next = event.key === "ArrowDown" ? next.nextElementSibling : next.previousElementSibling; while (next && !next.row);
      if (next) { event.preventDefault(); next.focus(); }
    }
    if (event.key === "Escape") { element.blur(); if (toggled) toggled(); }
  });
  return element;
}
