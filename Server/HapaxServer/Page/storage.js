// How the store is, and which keys there are: for the admin key.

const sized = (bytes) => {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  return `${grouped(bytes / 1000 ** power)} ${units[power]}`;
};

const storage = refreshed(10, {
  async question(signal) {
    // While the database does not answer, the store still says so.
    const known = (path, nothing) => askJSON(path, {}, signal).catch(() => nothing);
    const [store, refused, keys, retention] = await Promise.all([
      askJSON("v1/store", {}, signal), askJSON("v1/refusals", {}, signal), known("v1/admin/keys", { keys: [], static_keys: [] }), known("v1/admin/retention", null)]);
    return { ...store, refusals: refused.refusals, keys, retention };
  },

  draw() {
    const s = this.answer;
    $("store-notice").hidden = !this.error;
    $("store-notice").textContent = this.error + (s ? ` Below is what was known at ${clock(this.at)}.` : "");
    $("store-empty").textContent = s || this.error ? "" : "Loading…";
    $("store-body").hidden = !s;
    if (!s) return;
    const about = s.rows_are === "estimated" ? "about " : "";
    const rows = s.months.reduce((sum, month) => sum + month.rows, 0);
    $("store-state").textContent = s.state;
    $("store-state").className = s.state === "ready" ? "good" : "alarm";
    $("store-version").textContent = s.version || "the database does not answer";
    $("store-facts").replaceChildren(...facts([
      ["Rows", s.version && about + grouped(rows)], ["Size", s.version && sized(s.bytes)], ["Waiting to be stored", sized(s.queue_bytes)],
      ["Months prepared ahead", s.months_ahead], ["Last upkeep", s.last_upkeep && when(s.last_upkeep)], ["Complete up to", s.settled_at && when(s.settled_at)],
      ["Requests with an unknown key", s.unknown_keys], ["Events are kept", !s.retention ? null : s.retention.months ? `${s.retention.months} months, from ${s.retention.kept_from || "the first"} on` : "for ever"],
    ]).children);
    const months = s.months.filter((month) => month.rows > 0);
    const most = Math.max(1, ...months.map((month) => month.rows));
    const hasBytes = months.some((month) => month.bytes !== null);
    $("store-months").tBodies[0].replaceChildren(...months.reverse().map((month) => listRow(month.month, [about + grouped(month.rows), ...(hasBytes ? [sized(month.bytes || 0)] : [])], month.rows / most)));
    $("store-months").hidden = months.length === 0;
    const keys = [...s.keys.keys, ...s.keys.static_keys.map((key) => ({ ...key, beginning: "(settings)", state: "static" }))];
    $("store-keys").hidden = keys.length === 0;
    $("store-keys").tBodies[0].replaceChildren(...keys.map((key) => el("tr", {}, el("th", { scope: "row" }, shown(key.beginning + (key.name ? ` ${key.name}` : ""))),
      ...[key.kind, key.project || "all", key.state, key.last_used || ""].map((text) => el("td", {}, shown(text))))));
    const reasons = new Map();
    for (const { reason } of s.refusals) reasons.set(reason, (reasons.get(reason) || 0) + 1);
    const sorted = [...reasons].sort((a, b) => b[1] - a[1]);
    $("store-refusals").tBodies[0].replaceChildren(...sorted.map(([reason, count]) => listRow(shown(reason), [grouped(count)], count / sorted[0][1])));
    $("store-refusals").hidden = sorted.length === 0;
    speak(`store ${s.state}`);
  },
});
