// An id, or a user.


const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
let finding = null;

async function find(text, after) {
  if (finding) finding.abort();
  finding = new AbortController();
  const { signal } = finding;
  const say = (...parts) => $("found").replaceChildren(...parts);
  if (!after) say(el("p", { class: "empty" }, "Looking…"));
  try {
    if (ID.test(text)) {
      const data = await askJSON("/v1/events/" + text.toLowerCase(), {}, signal);
      const row = rowOf(data.state === "refused" ? "refusal" : "event", data);
      return say(el("div", { class: "panel" }, el("h3", { class: REFUSED.has(row.outcome) ? "alarm" : "" }, data.state === "stored" ? "Stored once" : "Refused"), ...detail(row)));
    }
    const page = await askJSON("/v1/events", { distinct_id: text, limit: "100", after }, signal);
    let body = after ? $("found").querySelector("tbody") : null;
    if (!body) {
      if (page.events.length === 0 && !page.next) return say(el("div", { class: "empty" }, el("h3", {}, "No event of this user"), el("p", {}, "Users are compared letter by letter, as distinct_id was sent.")));
      const head = el("tr", {}, ...["Time", "Outcome", "Event", "User"].map((name) => el("th", { scope: "col" }, name)), el("th", { scope: "col", class: "number" }, "Delay"));
      body = el("tbody");
      say(el("table", { class: "rows", id: "found-rows" }, el("thead", {}, head), body));
    }
    for (const old of $("found").querySelectorAll(".more")) old.remove();
    body.append(...page.events.map((data) => rowElement(rowOf("event", data))));
    if (page.next) $("found").append(el("p", { class: "more" }, page.events.length ? "" : `Nothing down to ${page.searched_to}. `,
      el("button", { type: "button", onclick: () => find(text, page.next) }, "Older ones")));
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof Problem && error.status === 401) return forgetKey(explain(error));
    if (error instanceof Problem && error.status === 404) {
      return say(el("div", { class: "empty" }, el("h3", {}, error.code === "expired" ? "No longer kept" : "Nothing is known of it"),
        el("p", {}, error.code === "expired" ? error.message : "No event of this id is stored, and this server refused none since it started, or of the last 200. It may still wait in its client’s queue: hapax status.")));
    }
    say(el("p", { class: "error" }, explain(error), " ", el("button", { type: "button", onclick: () => find(text) }, "Try again")));
  }
}
