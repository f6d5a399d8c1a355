// How the store is: for the admin key.

const sized = (bytes) => {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  return `${grouped(bytes / 1000 ** power)} ${units[power]}`;
};

const storage = refreshed(10, {
  async question(signal) {
    const [store, refused] = await Promise.all([askJSON("v1/store", {}, signal), askJSON("v1/refusals", {}, signal)]);
    return { ...store, refusals: refused.refusals };
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
      ["Requests with an unknown key", s.unknown_keys],
    ]).children);
    const months = s.months.filter((month) => month.rows > 0);
    const most = Math.max(1, ...months.map((month) => month.rows));
    const hasBytes = months.some((month) => month.bytes !== null);
    $("store-months").tBodies[0].replaceChildren(...months.reverse().map((month) => listRow(month.month, [about + grouped(month.rows), ...(hasBytes ? [sized(month.bytes || 0)] : [])], month.rows / most)));
    $("store-months").hidden = months.length === 0;
    const reasons = new Map();
    for (const { reason } of s.refusals) reasons.set(reason, (reasons.get(reason) || 0) + 1);
    const sorted = [...reasons].sort((a, b) => b[1] - a[1]);
    $("store-refusals").tBodies[0].replaceChildren(...sorted.map(([reason, count]) => listRow(shown(reason), [grouped(count)], count / sorted[0][1])));
    $("store-refusals").hidden = sorted.length === 0;
    speak(`store ${s.state}`);
  },
});
