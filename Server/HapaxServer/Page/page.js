"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const ROWS = 200, BARS = 60, BUSY = 20;

  // Everything that comes from an event goes in as text.
  function el(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  // Characters that do something instead of showing something.
  const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
  const escaped = (text) => text.replace(HIDDEN, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
  const shown = (text) => el("bdi", {}, escaped(String(text)));
  // Line ends and spaces of our own indentation stay; what an event holds is escaped inside its JSON.
  const pretty = (value) => JSON.stringify(value, null, 2).split("\n").map(escaped).join("\n");

  const store = {
    get key() { return sessionStorage.getItem("hapax.key") || ""; },
    set key(value) { value ? sessionStorage.setItem("hapax.key", value) : sessionStorage.removeItem("hapax.key"); },
    get project() { return sessionStorage.getItem("hapax.project") || ""; },
    set project(value) { sessionStorage.setItem("hapax.project", value); },
  };

  // ---- Asking -----------------------------------------------------------------------------------------------------------------------

  class Problem extends Error {
    constructor(status, code, detail, parameter) {
      super(detail);
      Object.assign(this, { status, code, parameter });
    }
  }

  function address(path, parameters = {}) {
    const query = new URLSearchParams();
    if (store.project) query.set("project", store.project);
    for (const [name, value] of Object.entries(parameters)) if (value) query.set(name, value);
    const text = query.toString();
    return path + (text ? "?" + text : "");
  }

  async function ask(path, parameters, signal) {
    const answer = await fetch(address(path, parameters), { headers: { Authorization: "Bearer " + store.key }, signal, cache: "no-store" });
    if (answer.ok) return answer;
    const text = await answer.json().catch(() => ({}));
    throw new Problem(answer.status, text.code || "http_" + answer.status, text.detail || "", text.parameter);
  }

  const askJSON = async (path, parameters, signal) => (await ask(path, parameters, signal)).json();

  function explain(error) {
    if (error instanceof Problem) return `${error.code}: ${error.message}`;
    return "The server cannot be reached.";
  }

  // ---- The address: section and filter -------------------------------------------------------------------------------------------------

  function place() {
    const [section, query] = location.hash.slice(1).split("?");
    return { section: section === "find" ? "find" : "live", parameters: new URLSearchParams(query || "") };
  }

  function go(section, parameters) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(parameters)) if (value) query.set(name, value);
    const text = query.toString();
    history.replaceState(null, "", "#" + section + (text ? "?" + text : ""));
  }

  // A key in the address is taken out of it at once: it must not stay in the history, nor in what is shared.
  function takeKey() {
    const match = /^#key=([^&?]+)$/.exec(location.hash);
    if (!match) return;
    store.key = decodeURIComponent(match[1]);
    history.replaceState(null, "", "#live");
  }

  // ---- Times --------------------------------------------------------------------------------------------------------------------------

  const two = (number) => String(number).padStart(2, "0");
  const clock = (date) => `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;

  function span(milliseconds) {
    const size = Math.abs(milliseconds);
    const text = size < 1000 ? `${Math.round(size)} ms` : size < 60000 ? `${(size / 1000).toFixed(1)} s` : size < 3600000 ? `${Math.round(size / 60000)} min`
      : size < 172800000 ? `${Math.round(size / 3600000)} h` : `${Math.round(size / 86400000)} d`;
    return milliseconds < 0 ? "−" + text : text;
  }

  function when(text) {
    const date = new Date(text);
    const isToday = date.toDateString() === new Date().toDateString();
    const milliseconds = "." + String(date.getMilliseconds()).padStart(3, "0");
    const day = isToday ? "" : `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} `;
    return el("time", { datetime: text, title: text }, isToday ? clock(date) : day, el("span", { class: "time-rest" }, isToday ? milliseconds : clock(date)));
  }

  // ---- curl -----------------------------------------------------------------------------------------------------------------------------

  const quoted = (text) => "'" + text.replaceAll("'", "'\\''") + "'";

  function curlOfEvent(event) {
    const body = escaped(JSON.stringify({ events: [event] }));
    const key = store.key === "demo-read" ? quoted("Authorization: Bearer demo") : '"Authorization: Bearer $HAPAX_KEY"';
    return `curl -s ${quoted(location.origin + "/v1/events")} -H ${key} -H 'Content-Type: application/json' -d ${quoted(body)}`;
  }

  function curlOfRequest(path, parameters) {
    const key = store.key === "demo-read" ? quoted("Authorization: Bearer demo-read") : '"Authorization: Bearer $HAPAX_READ_KEY"';
    return `curl -s ${path === "/v1/live" ? "-N " : ""}${quoted(location.origin + address(path, parameters))} -H ${key}`;
  }

  async function copy(text, button) {
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = label; }, 1500);
    } catch {
      // Without a clipboard (plain HTTP from another machine) the text is shown, selected.
      const area = el("pre", { tabindex: "0", class: "copied" }, text);
      button.after(area);
      getSelection().selectAllChildren(area);
    }
  }

  const copyButton = (text) => el("button", { type: "button", class: "copy", onclick: (e) => { e.stopPropagation(); copy(text, e.currentTarget); } }, "Copy as curl");

  // ---- One event, in full ---------------------------------------------------------------------------------------------------------------

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
      facts([["Outcome", row.outcome], [row.outcome === "stored" ? "Received" : "Answered", when(row.at)], ["Happened", when(new Date(row.event.time).toISOString())],
        ["Install", row.install_id], ["Sequence", row.sequence]]),
      el("pre", { tabindex: "0", "aria-label": "The event as JSON" }, pretty(row.event)),
      copyButton(curlOfEvent(row.event)),
    ];
  }

  // ---- Rows -----------------------------------------------------------------------------------------------------------------------------

  const REFUSED = new Set(["rejected", "conflict", "expired", "refused"]);

  function rowOf(kind, data) {
    if (kind === "refusal") {
      const outcome = data.what === "request" ? "refused" : REFUSED.has(data.reason) ? data.reason : "rejected";
      return { id: data.event_id, outcome, at: data.at, name: data.name, refusal: data };
    }
    return { id: data.event.event_id, outcome: data.outcome || "stored", at: data.at || data.received_at, name: data.event.event, event: data.event,
      install_id: data.install_id, sequence: data.sequence };
  }

  let rowNumber = 0;

  function rowElement(row, toggled) {
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
      el("td", {}, when(row.at)), el("td", { class: "outcome" }, row.outcome), ...cells);
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

  // ---- Live -----------------------------------------------------------------------------------------------------------------------------

  const live = {
    body: $("rows").querySelector("tbody"), abort: null, isPaused: false, held: [], counts: new Array(BARS).fill(null).map(() => [0, 0, 0]),
    known: new Set(), unmatched: 0, received: 0, state: "loading", error: "", retryAt: 0, unknownKeys: 0, hadUnknown: 0, latest: null,
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
          const answer = await ask("/v1/live", this.filter, signal);
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
        wantsStored ? askJSON("/v1/events", { event, limit: "50" }, signal) : { events: [] },
        askJSON("/v1/refusals", { limit: "50" }, signal),
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
      const value = JSON.parse(data);
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
      if (this.unknownKeys > 0) notices.push(`${this.unknownKeys} ${this.unknownKeys === 1 ? "request" : "requests"} with an unknown key since the server started.`);
      $("notice").hidden = notices.length === 0;
      $("notice").textContent = notices.join(" ");
      $("notice").classList.toggle("alarm", this.state !== "connected" && this.state !== "loading" || this.unknownKeys > 0);
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
          const command = `curl -s ${location.origin}/v1/events -H 'Authorization: Bearer ${key}' -H 'Content-Type: application/json' -d '\n  {"events": [{"event_id": "${id}", "event": "order_paid",\n               "time": ${Date.now()}, "distinct_id": "customer-1", "properties": {"amount": 12.5}}]}'`;
          parts.push(el("h3", {}, "No event has arrived yet"), el("p", {}, "Send one; it shows here as soon as it is answered:"), el("pre", { tabindex: "0", "aria-label": "A command that sends an event" }, command.replace("'Authorization: Bearer $HAPAX_KEY'", '"Authorization: Bearer $HAPAX_KEY"')),
            el("p", {}, "or with the command line:"), el("pre", { tabindex: "0", "aria-label": "The same with hapax" }, `HAPAX_SERVER=${location.origin} HAPAX_KEY=${key} hapax track order_paid --property amount:=12.5`));
        }
      } else if (this.body.rows.length && this.state === "connected" && this.latest && Date.now() - new Date(this.latest) > 60000) {
        parts.push(el("p", {}, "Nothing new since ", when(this.latest), "."));
      }
      const text = parts.map((part) => part.textContent).join("|");
      if (text !== this.emptyText) { this.emptyText = text; $("empty").replaceChildren(...parts); }
    },
  };

  // A screen reader hears of it at most every ten seconds.
  let spokenAt = 0, spoken = "", toSpeak = "", timer = 0;
  function speak(text) {
    toSpeak = text;
    if (timer || text === spoken) return;
    timer = setTimeout(() => { timer = 0; spokenAt = Date.now(); spoken = toSpeak; $("status").textContent = spoken; }, Math.max(0, spokenAt + 10000 - Date.now()));
  }

  // ---- Find -----------------------------------------------------------------------------------------------------------------------------

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

  // ---- Sections -------------------------------------------------------------------------------------------------------------------------

  function show() {
    takeKey();
    const hasKey = store.key !== "";
    const { section, parameters } = place();
    $("key-form").hidden = hasKey;
    $("account").hidden = !hasKey;
    $("copy-request").hidden = !hasKey;
    for (const name of ["live", "find"]) {
      $(name).hidden = !hasKey || name !== section;
      if (name === section) $("to-" + name).setAttribute("aria-current", "page"); else $("to-" + name).removeAttribute("aria-current");
    }
    if (!hasKey) {
      live.stop();
      return $("key").focus();
    }
    $("project-label").hidden = !store.project;
    $("project").value = store.project;
    if (section === "live") {
      $("filter").value = parameters.get("event") || "";
      $("outcome").value = parameters.get("outcome") || "";
      live.start();
    } else {
      live.stop();
      const wanted = parameters.get("id") || parameters.get("user") || "";
      $("wanted").value = wanted;
      if (wanted) find(wanted); else $("found").replaceChildren(el("p", { class: "empty" }, "An id answers with its receipt and the event, or with what is known of it; a user with their latest events."));
    }
  }

  function forgetKey(reason) {
    store.key = "";
    sessionStorage.removeItem("hapax.project");
    $("key-error").textContent = reason || "";
    show();
  }

  $("key-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    store.key = $("key").value.trim();
    try {
      await ask("/v1/refusals", { limit: "1" });
    } catch (error) {
      // An admin key is for every project: which one has to be said.
      if (error instanceof Problem && error.parameter === "project") {
        store.project = (/: ([^,]+)/.exec(error.message) || ["", "-"])[1];
      } else {
        return forgetKey(explain(error));
      }
    }
    $("key").value = $("key-error").textContent = "";
    show();
  });
  $("forget").addEventListener("click", () => forgetKey());
  $("project").addEventListener("change", () => { store.project = $("project").value.trim(); show(); });
  $("pause").addEventListener("click", () => { live.isPaused = !live.isPaused; if (live.isPaused) live.tell(); else live.release(); });
  $("show-new").addEventListener("click", () => live.release());
  for (const id of ["filter", "outcome"]) $(id).addEventListener("change", () => { go("live", live.filter); live.start(); });
  $("filter").addEventListener("focus", async () => {
    try {
      const { names } = await askJSON("/v1/names");
      $("names").replaceChildren(...names.slice(0, 100).map((name) => el("option", { value: name.event })));
    } catch { /* Suggestions are a convenience. */ }
  });
  $("find-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = $("wanted").value.trim();
    go("find", ID.test(wanted) ? { id: wanted } : { user: wanted });
    find(wanted);
  });
  $("copy-request").addEventListener("click", (event) => {
    const wanted = $("wanted").value.trim();
    const text = place().section === "live" ? curlOfRequest("/v1/live", live.filter)
      : ID.test(wanted) ? curlOfRequest("/v1/events/" + wanted, {}) : curlOfRequest("/v1/events", { distinct_id: wanted });
    copy(text, event.currentTarget);
  });
  $("shortcuts").checked = sessionStorage.getItem("hapax.shortcuts") !== "off";
  $("shortcuts").addEventListener("change", () => sessionStorage.setItem("hapax.shortcuts", $("shortcuts").checked ? "on" : "off"));
  document.addEventListener("keydown", (event) => {
    if (!$("shortcuts").checked || event.ctrlKey || event.metaKey || event.altKey || store.key === "") return;
    // A key belongs to the control that has the focus.
    if (document.activeElement && document.activeElement !== document.body) return;
    const act = { 1: () => { location.hash = "#live"; }, 2: () => { location.hash = "#find"; }, p: () => $("pause").click(),
      "/": () => (place().section === "live" ? $("filter") : $("wanted")).focus() }[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  document.addEventListener("focusout", () => setTimeout(() => { if (!$("live").hidden) live.tell(); }, 0));
  window.addEventListener("hashchange", show);
  setInterval(() => { if (!$("live").hidden) live.empty(); }, 5000);
  setInterval(async () => {
    if ($("live").hidden || document.hidden || live.state !== "connected") return;
    try { live.unknownKeys = (await askJSON("/v1/refusals", { limit: "1" })).unknown_keys || 0; live.tell(); } catch { /* The stream says so. */ }
  }, 5000);
  show();
})();
