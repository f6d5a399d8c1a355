// An event by its id, or a user's events. A user can be a UUID as well, as the anonymous ones of our own client are: for one both are asked.
// What is no user may be the beginning of some.

const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
let finding = null, foundByID = false, foundRows = [];

async function find(text, after) {
  if (finding) finding.abort();
  finding = new AbortController();
  const { signal } = finding;
  const say = (...parts) => $("found").replaceChildren(...parts);
  try {
    let nothing = el("div", { class: "empty" }, el("h3", {}, "No event of this user"), el("p", {}, "Users are compared letter by letter, as distinct_id was sent. No user’s id begins so, either."));
    if (!after) {
      [foundByID, foundRows] = [false, []];
      say(el("p", { class: "empty" }, "Looking…"));
      if (ID.test(text)) {
        try {
          const panel = await findEvent(text.toLowerCase(), signal);
          foundByID = true;
          say(panel);
        } catch (error) {
          if (!(error instanceof Problem && error.status === 404)) throw error;
          nothing = el("div", { class: "empty" }, el("h3", {}, error.code === "expired" ? "No longer kept" : "Nothing is known of it"),
            el("p", {}, error.code === "expired" ? error.message : "No event of this id is stored, and this server refused none since it started, or of the last 200. It may still wait in its client’s queue: hapax status. No user has this id either."));
        }
      }
    }
    const page = await askJSON("v1/events", { distinct_id: text, limit: "1000", after }, signal);
    foundRows.push(...page.events.map((data) => rowOf("event", data)));
    if (foundRows.length || page.next) showFound(text, page);
    else if (!foundByID) {
      const { users, more, searched_to: searched } = await askJSON("v1/users", { prefix: text, limit: "20" }, signal);
      say(users.length ? showUsers(text, users, more) : nothing, ...(searched ? [el("p", {}, `Whose id only begins so was looked for among who has started an app, and what was received since ${searched.slice(0, 10)}.`)] : []));
    }
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof Problem && error.status === 401) return forgetKey(explain(error));
    const trouble = el("p", { class: "error" }, explain(error), " ", el("button", { type: "button", onclick: () => find(text) }, "Try again"));
    if (foundByID) $("found").append(trouble); else say(trouble);
  }
}

function showUsers(text, users, more) {
  const open = (user) => { $("wanted").value = user; go("find", { user }); find(user); };
  return el("div", { class: "panel" }, el("h3", {}, `Users whose id begins with ${text}`),
    el("ul", { class: "users" }, ...users.map((user) => el("li", {}, el("button", { type: "button", class: "link", onclick: () => open(user) }, shown(user))))), more ? el("p", {}, "And more: write more of it.") : "");
}

async function findEvent(id, signal) {
  const data = await askJSON("v1/events/" + id, {}, signal);
  const row = rowOf(data.state === "refused" ? "refusal" : "event", data);
  return el("div", { class: "panel" }, el("h3", { class: REFUSED.has(row.outcome) ? "alarm" : "" }, data.state === "stored" ? "Stored once" : "Refused"), ...detail(row));
}

// The server lists what it received last first. Here rows are in the order in which they happened, as far as they are loaded.
function showFound(user, page) {
  for (const old of $("found").querySelectorAll(".empty, .of-user")) old.remove();
  if (foundRows.length) {
    foundRows.sort((a, b) => b.event.time - a.event.time);
    const head = el("tr", {}, ...["Happened", "Outcome", "Event", "User"].map((name) => el("th", { scope: "col" }, name)), el("th", { scope: "col", class: "number" }, "Delay"));
    $("found").append(el("table", { class: "rows of-user" }, el("thead", {}, head), el("tbody", {}, ...foundRows.map((row) => rowElement(row, null, happened(row))))));
  }
  if (page.next) $("found").append(el("p", { class: "of-user more" }, foundRows.length ? `These are the ${grouped(foundRows.length)} received last. ` : `Nothing received since ${page.searched_to}. `,
    el("button", { type: "button", onclick: () => find(user, page.next) }, "Load older ones")));
}
