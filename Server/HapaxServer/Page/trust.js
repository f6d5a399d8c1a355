// Whether every event that a client has given a number is accounted for.

const things = (number, name) => `${grouped(number)} ${name}${number === 1 ? "" : "s"}`;
const ranges = (list) => list.slice(0, 3).map(([first, last]) => (first === last ? grouped(first) : `${grouped(first)}–${grouped(last)}`)).join(", ") + (list.length > 3 ? ", …" : "");

function verdict(t) {
  if (t.installs === 0) return "No client has reported yet.";
  return { balanced: "Every event accounted for.", missing: `${things(t.missing, "event")} missing.`, unheard: `Nothing missing; ${things(t.unheard.installs, "install")} unheard.` }[t.verdict] || "It cannot be said of every event.";
}

const trust = refreshed(15, {
  async question(signal) {
    const [books, { senders }] = await Promise.all([askJSON("v1/trust", {}, signal), askJSON("v1/senders", {}, signal)]);
    return { ...books, senders };
  },

  draw() {
    const t = this.answer;
    $("trust-notice").hidden = !this.error;
    $("trust-notice").textContent = this.error + (t ? ` Below is what was known at ${clock(this.at)}.` : "");
    $("trust-empty").textContent = t || this.error ? "" : "Loading…";
    $("trust-body").hidden = !t;
    if (!t) return;
    warn(t);
    $("trust-verdict").textContent = verdict(t);
    $("trust-verdict").className = t.verdict === "missing" ? "alarm" : t.verdict === "balanced" ? "good" : "";
    $("trust-heard").replaceChildren(...(t.installs ? [`${things(t.installs, "install")} heard from, as of `, when(t.as_of)] : ["Of senders without numbers (curl, other SDKs) only what arrived is known."]));
    $("trust-equation").hidden = t.installs === 0;
    $("trust-equation").tBodies[0].replaceChildren(...[
      ["Given a number", t.given], ["Stored", t.stored], ["Duplicates", t.duplicates], ["Refused", t.refused], ["Discarded", t.discarded], ["Waiting", t.waiting], ["Missing", t.missing, t.missing ? "alarm" : ""],
    ].map(([name, number, kind]) => listRow(name, [grouped(number)], t.given ? number / t.given : null, kind)));
    $("trust-losses").hidden = $("trust-advice").hidden = t.losses.length === 0;
    $("trust-losses").tBodies[0].replaceChildren(...t.losses.map((loss) => el("tr", {}, el("th", { scope: "row" }, shown(loss.install_id)), el("td", { class: "number" }, grouped(loss.missing)),
      el("td", {}, ranges(loss.missing_ranges)), el("td", {}, loss.missing_since ? when(loss.missing_since) : ""))));
    const most = Math.max(1, ...t.reasons.map((reason) => reason.events));
    $("trust-reasons").hidden = t.reasons.length === 0;
    $("trust-reasons").tBodies[0].replaceChildren(...t.reasons.map((reason) => listRow(shown(reason.reason + (reason.by === "client" ? ", on the device" : "")), [grouped(reason.events)], reason.events / most)));
    $("trust-facts").replaceChildren(...facts([
      ["Waiting on", t.waiting ? things(t.waiting_installs, "install") : null], ["The longest silent since", t.waiting_since && when(t.waiting_since)],
      ["Unheard for over 7 days", t.unheard.installs ? `${things(t.unheard.installs, "install")}, last words: ${grouped(t.unheard.events)} waiting` : null],
      ["Browsers that vanished with something waiting", t.vanished_browsers.installs ? `${things(t.vanished_browsers.installs, "browser")} silent for over 7 days, last words: ${grouped(t.vanished_browsers.events)} waiting` : null],
      ["Too many gaps to keep track of", t.unknown.installs ? `${things(t.unknown.installs, "install")}, ${grouped(t.unknown.events)} given` : null],
      ["Numbers given twice", t.repeated ? `${grouped(t.repeated)}: a queue was copied, or restored from a copy` : null],
    ]).children);
    $("trust-senders").hidden = t.senders.length === 0;
    $("trust-senders").tBodies[0].replaceChildren(...t.senders.map((sender) => el("tr", {}, el("th", { scope: "row" }, shown(sender.library || "unnamed")), el("td", {}, sender.via),
      ...[sender.received, sender.stored, sender.duplicates, sender.conflicts + sender.rejected + sender.expired].map((number) => el("td", { class: "number" }, grouped(number))), el("td", {}, sender.last_day))));
    speak(verdict(t));
  },
});

// A line on top of every section, while something is missing.
function warn(t) {
  const isMissing = t.losses.length > 0 && place().section !== "trust";
  $("missing").hidden = !isMissing;
  if (!isMissing) return;
  const [loss] = t.losses;
  $("missing").firstElementChild.textContent = `${things(t.missing, "event")} missing: install ${loss.install_id}, numbers ${ranges(loss.missing_ranges)}${t.losses.length > 1 ? ", and others" : ""}.`;
}

async function watchTrust() {
  if (store.key === "" || document.hidden || place().section === "trust") return;
  try { warn(await askJSON("v1/trust")); } catch { /* The section says why. */ }
}
