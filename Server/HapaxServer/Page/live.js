// What arrives, as it arrives.

const ROWS = 200, BARS = 60, BUSY = 20;


const live = {
  body: $("rows").querySelector("tbody"), abort: null, isPaused: false, held: [], counts: new Array(BARS).fill(null).map(() => [0, 0, 0]),
  known: new Set(), unmatched: 0, received: 0, state: "loading", error: "", retryAt: 0, unknownKeys: 0, latest: null,
  newest: new Map(), perSecond: 0, isBusy: false, missed: 0,

  get filter() { return { event: $("filter").value.trim(), outcome: $("outcome").value }; },

  start() {
    this.stop();
    this.abort = new AbortController();
    this.body.replaceChildren();
    Object.assign(this, { held: [], known: new Set(), unmatched: 0, received: 0, state: "loading", latest: null, newest: new Map(), missed: 0, isBusy: false });
    this.run(this.abort.signal);
    this.tell();
  },

  stop() {
    if (this.abort) this.abort.abort();
    this.abort = null;
  },

  async run(signal) {
    let wait = 500;
    while (!signal.aborted) {
      try {
        const answer = await ask("v1/live", this.filter, signal);
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        // Behind the stream's beginning, so that nothing falls between the two.
        await this.load(signal);
        this.state = "connected";
        wait = 500;
        this.tell();
        let rest = "";
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          const parts = (rest + value).split("\n\n");
          rest = parts.pop();
          for (const part of parts) this.message(part);
        }
        throw new Error("ended");
      } catch (error) {
        if (signal.aborted) return;
        this.state = "disconnected";
        this.error = error instanceof Problem ? explain(error) : "";
        if (error instanceof Problem && [401, 403].includes(error.status)) return forgetKey(explain(error));
        if (error instanceof Problem && error.status === 400) {
          this.state = "refused";
          return this.tell();
        }
      }
      this.retryAt = Date.now() + wait;
      this.tell();
      await new Promise((resolve) => setTimeout(resolve, wait * (0.75 + Math.random() / 2)));
      wait = Math.min(wait * 2, 10000);
    }
  },

  async load(signal) {
    const { event, outcome } = this.filter;
    const wantsStored = !outcome || outcome === "stored", wantsRefused = !outcome || REFUSED.has(outcome);
    const [stored, refused] = await Promise.all([
      wantsStored ? askJSON("v1/events", { event, limit: "50" }, signal) : { events: [] },
      askJSON("v1/refusals", { limit: "50" }, signal),
    ]);
    this.unknownKeys = refused.unknown_keys || 0;
    const rows = stored.events.map((data) => rowOf("event", data));
    if (wantsRefused) rows.push(...refused.refusals.map((data) => rowOf("refusal", data)).filter((row) => (!event || row.name === event) && (!outcome || row.outcome === outcome)));
    rows.sort((a, b) => (a.at < b.at ? 1 : a.at > b.at ? -1 : 0));
    const fresh = rows.filter((row) => !this.isKnown(row));
    for (const row of fresh.reverse()) this.show(row, true);
    this.tell();
  },

  isKnown(row) {
    const key = `${row.outcome} ${row.id} ${row.outcome === "stored" ? "" : row.at}`;
    if (row.id && this.known.has(key)) return true;
    this.known.add(key);
    if (this.known.size > 2000) this.known = new Set([...this.known].slice(-1000));
    return false;
  },

  message(text) {
    let kind = "", data = "";
    for (const line of text.split("\n")) {
      if (line.startsWith("event: ")) kind = line.slice(7);
      if (line.startsWith("data: ")) data = line.slice(6);
    }
    if (!kind) return;
    const value = parse(data);
    if (kind === "rate") return this.rate(value);
    if (kind === "missed") { this.missed = value.rows; return; }
    const row = rowOf(kind, value);
    if (this.isKnown(row)) return;
    this.perSecond++;
    this.add(row);
  },

  add(row) {
    this.latest = row.at;
    if (this.isPaused || this.isHeld()) {
      this.held.push(row);
      if (this.held.length > ROWS) this.held.shift();
      this.heldCount = (this.heldCount || 0) + 1;
      return this.tell();
    }
    if (this.isBusy || this.perSecond > BUSY) {
      // Too many to read: the newest of each name, once a second.
      this.isBusy = true;
      this.newest.set(row.outcome + " " + row.name, row);
      return;
    }
    this.show(row, false);
    this.tell();
  },

  // A row that somebody reads stays where it is.
  isHeld() {
    return this.body.contains(document.activeElement) || this.body.querySelector("[aria-expanded=true]") !== null;
  },

  show(row, isOld) {
    const element = rowElement(row, () => this.tell());
    if (!isOld) element.classList.add("fresh");
    this.body.prepend(element);
    if (!this.latest || this.latest < row.at) this.latest = row.at;
    while (this.body.rows.length > ROWS) this.body.lastElementChild.remove();
  },

  release() {
    for (const open of this.body.querySelectorAll("[aria-expanded=true]")) { open.setAttribute("aria-expanded", "false"); open.nextElementSibling.remove(); }
    if (this.body.contains(document.activeElement)) document.activeElement.blur();
    for (const row of this.held) this.show(row, false);
    this.held = [];
    this.heldCount = 0;
    this.tell();
  },

  rate(value) {
    this.counts.shift();
    this.counts.push([value.stored, value.duplicates, value.refused]);
    this.received += value.received;
    const all = this.perSecond + this.missed;
    const shownNow = this.newest.size;
    if (this.isBusy) {
      for (const row of this.newest.values()) this.show(row, false);
      this.newest = new Map();
      if (all <= BUSY) this.isBusy = false;
    }
    this.busyText = all > BUSY || this.missed > 0 ? `showing ${this.isBusy || shownNow ? shownNow : this.perSecond} of ${all}/s` : "";
    this.unmatched = this.filter.event || this.filter.outcome ? this.unmatched + Math.max(0, value.received - all) : 0;
    [this.perSecond, this.missed] = [0, 0];
    const said = [[value.stored, "stored"], [value.duplicates, "duplicate"], [value.refused, "refused"]].filter(([n]) => n > 0).map(([n, word]) => `${n} ${word}`);
    $("rate").textContent = (said.length ? said.join(" · ") : "nothing") + " in the last second" + (this.busyText ? " · " + this.busyText : "") + " · this server";
    this.draw();
    this.tell();
  },

  draw() {
    const highest = Math.max(1, ...this.counts.map(([a, b, c]) => a + b + c));
    $("scale").textContent = `60 s, highest ${highest}/s`;
    const bars = [];
    this.counts.forEach((second, index) => {
      let bottom = 48;
      second.forEach((count, kind) => {
        if (!count) return;
        const height = Math.max(1, (count / highest) * 46);
        bottom -= height;
        const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
        const box = { x: index * 10 + 1, y: bottom, width: 8, height, class: "bar-" + ["stored", "duplicate", "refused"][kind] };
        for (const [name, value] of Object.entries(box)) bar.setAttribute(name, value);
        bars.push(bar);
      });
    });
    $("bars").replaceChildren(...bars);
    if ($("bars-table").closest("details").open) {
      $("bars-table").tBodies[0].replaceChildren(...this.counts.map((second, index) => [BARS - 1 - index, second]).reverse().filter(([ago, s]) => ago < 10 || s.some(Boolean))
        .map(([ago, second]) => el("tr", {}, el("th", { scope: "row" }, String(ago)), ...second.map((n) => el("td", {}, String(n))))));
    }
  },

  // What stands around the rows: never blank, never a guess.
  tell() {
    if (!this.isPaused && this.held.length && !this.isHeld()) return this.release();
    $("pause").textContent = this.isPaused ? "Resume" : "Pause";
    $("pause").setAttribute("aria-pressed", String(this.isPaused));
    const waiting = this.heldCount || 0;
    $("show-new").hidden = this.isPaused || !waiting;
    $("show-new").textContent = `Show ${waiting} new`;
    $("connection").textContent = { loading: "loading…", connected: "connected", disconnected: "not connected", refused: "" }[this.state];
    const notices = [];
    if (this.isPaused) notices.push(`paused, ${waiting} new`);
    if (this.state === "disconnected") notices.push(`Not connected${this.error ? ` (${this.error})` : ""}; trying again. What is below may be out of date.`);
    if (this.state === "refused") notices.push(this.error);
    $("notice").hidden = notices.length === 0;
    $("notice").textContent = notices.join(" ");
    $("notice").classList.toggle("alarm", this.state !== "connected" && this.state !== "loading");
    // Once dismissed, it is said again when there are more.
    $("unknown-keys").hidden = !this.unknownKeys || sessionStorage.getItem("hapax.dismissed") === String(this.unknownKeys);
    $("unknown-keys").firstElementChild.textContent = `${this.unknownKeys} ${this.unknownKeys === 1 ? "request" : "requests"} with an unknown key since the server started.`;
    $("rows").hidden = this.body.rows.length === 0;
    this.empty();
    const words = [this.state === "connected" ? "" : this.state, this.isPaused ? `paused, ${waiting} new` : "", `${this.received} events since the page was opened`];
    speak(words.filter(Boolean).join("; "));
  },

  empty() {
    const { event, outcome } = this.filter;
    const parts = [];
    if (this.body.rows.length === 0 && this.state === "connected") {
      if (event || outcome) {
        parts.push(el("h3", {}, "Nothing matches the filter"), el("p", {}, this.unmatched ? `${this.unmatched} other events came since it was set.` : "No other event came since it was set, either."));
      } else {
        const key = store.key === "demo-read" ? "demo" : "$HAPAX_KEY";
        const id = "01980000-0000-7000-8000-000000000002";
        const command = `curl -s ${BASE}v1/events -H 'Authorization: Bearer ${key}' -H 'Content-Type: application/json' -d '\n  {"events": [{"event_id": "${id}", "event": "order_paid",\n               "time": ${Date.now()}, "distinct_id": "customer-1", "properties": {"amount": 12.5}}]}'`;
        parts.push(el("h3", {}, "No event has arrived yet"), el("p", {}, "Send one; it shows here as soon as it is answered:"), el("pre", { tabindex: "0", "aria-label": "A command that sends an event" }, command.replace("'Authorization: Bearer $HAPAX_KEY'", '"Authorization: Bearer $HAPAX_KEY"')),
          el("p", {}, "or with the command line:"), el("pre", { tabindex: "0", "aria-label": "The same with hapax" }, `HAPAX_SERVER=${BASE.slice(0, -1)} HAPAX_KEY=${key} hapax track order_paid --property amount:=12.5`));
      }
    } else if (this.body.rows.length && this.state === "connected" && this.latest && Date.now() - new Date(this.latest) > 60000) {
      parts.push(el("p", {}, "Nothing new since ", when(this.latest), "."));
    }
    const text = parts.map((part) => part.textContent).join("|");
    if (text !== this.emptyText) { this.emptyText = text; $("empty").replaceChildren(...parts); }
  },
};
