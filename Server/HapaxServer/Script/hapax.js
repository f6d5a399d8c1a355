// Sends a page's events to Hapax, each exactly once (docs/browsers.md). Pages load hapax.min.js, which `.ci/minify` makes of this file.
(() => {
  "use strict";
  const script = document.currentScript;
  const data = script?.dataset ?? {};
  const early = window.hapax?.q ?? [];
  // Loaded twice: the first one goes on.
  if (window.hapax?.version) return;
  if (!data.key) return console.error("hapax: no data-key");

  const prefix = "hapax.";
  const most = { events: 200, characters: 1e5, event: 32768, body: 6e4 };
  const address = new URL("v1/events", data.server ? data.server.replace(/\/*$/, "/") : script.src);
  address.searchParams.set("key", data.key);

  // MARK: What is kept

  // Where the page's events and ids are kept: nowhere, in the tab, or on the device. A browser may forbid that.
  let place = null;
  try {
    place = { tab: sessionStorage, device: localStorage }[data.id] ?? null;
  } catch {}
  // What cannot be kept there, or may not yet.
  const memory = new Map();

  const kept = (name) => {
    try {
      return place?.getItem(prefix + name) ?? null;
    } catch {
      return null;
    }
  };
  /// Whether it is kept beyond this page.
  const keep = (name, value) => {
    try {
      place.setItem(prefix + name, value);
      memory.delete(name);
      return true;
    } catch {
      return false;
    }
  };
  const consentIs = (value) => (kept("consent") ?? memory.get("consent")) === value;
  const hasOptedOut = () => consentIs("no") || (data.gpc && navigator.globalPrivacyControl);
  const mustAsk = () => data.consent && !consentIs("yes");

  const get = (name) => memory.get(name) ?? kept(name);
  const set = (name, value) => {
    if (mustAsk() || !keep(name, value)) memory.set(name, value);
  };
  const remove = (name) => {
    memory.delete(name);
    try {
      place?.removeItem(prefix + name);
    } catch {}
  };
  const names = () => {
    const all = new Set(memory.keys());
    try {
      for (const name of Object.keys(place ?? {})) if (name.startsWith(prefix)) all.add(name.slice(prefix.length));
    } catch {}
    return [...all];
  };
  const object = (name) => {
    try {
      return JSON.parse(get(name));
    } catch {
      return null;
    }
  };

  // MARK: Who it is

  // UUIDv7 (RFC 9562).
  const uuid = () => {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    for (let index = 0; index < 6; index++) bytes[index] = Date.now() / 2 ** (40 - 8 * index);
    bytes[6] = (bytes[6] & 15) | 112;
    bytes[8] = (bytes[8] & 63) | 128;
    return Array.from(bytes, (byte, index) => ([4, 6, 8, 10].includes(index) ? "-" : "") + (byte + 256).toString(16).slice(1)).join("");
  };
  const made = (name) => {
    const known = get(name);
    if (known) return known;
    const id = uuid();
    set(name, id);
    return id;
  };
  // Another one after half an hour without an event.
  const session = () => {
    const [known, at] = (get("session") ?? "").split(" ");
    const id = Date.now() - at < 18e5 ? known : uuid();
    set("session", id + " " + Date.now());
    return id;
  };
  const identify = (id) => {
    if (id == null) return ["login", "user", "session"].forEach(remove);
    if (get("login") === String(id)) return;
    made("user");
    set("login", String(id));
    track("$identify");
  };

  // MARK: Events

  let common = {};
  const bytes = (text) => new Blob([text]).size;
  const waiting = () => names().filter((name) => name.startsWith("e."));
  const refuse = (reason, detail) => {
    console.warn("hapax: an event is not taken: " + reason, detail ?? "");
    const refused = object("refused") ?? {};
    refused[reason] = (refused[reason] ?? 0) + 1;
    set("refused", JSON.stringify(refused));
    return null;
  };
  const track = (name, properties) => {
    if (hasOptedOut()) return null;
    const id = uuid();
    const login = get("login");
    let text;
    try {
      const own = {
        $lib: "hapax.js", $lib_version: hapax.version, $session_id: session(), $bot: navigator.webdriver || undefined,
        $anonymous_id: login ? made("user") : undefined,
      };
      text = JSON.stringify(
        { event_id: id, event: String(name), time: Date.now(), distinct_id: login ?? made("user"), properties: { ...own, ...common, ...properties } },
        // Texts that were cut within a character are no Unicode.
        (key, value) => value?.toWellFormed?.() ?? value);
    } catch (error) {
      return refuse("invalid", error);
    }
    const all = waiting();
    if (bytes(text) > most.event) return refuse("event_too_large");
    if (all.length >= most.events || all.reduce((sum, name) => sum + (get(name) ?? "").length, text.length) > most.characters) return refuse("quota_full");
    set("e." + id, text);
    plan(all.length < 19 ? 2e3 : 0);
    return id;
  };

  let path;
  const page = (given) => {
    path = location.pathname;
    const properties = { $path: given ?? path, $title: document.title };
    const from = document.referrer && new URL(document.referrer).host;
    if (from && from !== location.host) properties.$referrer = from;
    const wanted = data.query?.split(",") ?? [];
    for (const [name, value] of new URLSearchParams(location.search)) {
      if (name.startsWith("utm_") || wanted.includes(name)) properties[name] = value.slice(0, 200);
    }
    return track("$page", properties);
  };

  // MARK: Sending

  let timer, due, sending, failures = 0, pausedUntil = 0, batchSize = most.events;
  let underWay = [];
  let said;
  const say = (text) => {
    if (text !== said) console.error("hapax: " + (said = text));
  };
  const plan = (delay) => {
    const at = Math.max(Date.now() + delay, pausedUntil);
    if (timer && due <= at) return;
    clearTimeout(timer);
    due = at;
    timer = setTimeout(send, at - Date.now());
  };
  const pause = (seconds) => {
    pausedUntil = Date.now() + seconds * 1e3;
    return false;
  };

  // One tab at a time sends what all have kept, and gives each event its number, so that the server can tell what is missing. Without locks, as on pages that are not
  // secure, no event has one.
  const isNumbered = data.id === "device" && place && navigator.locks;
  const alone = (work) => (isNumbered ? navigator.locks.request(prefix + "send", work) : work());

  const numbered = (events) => {
    const install = object("install") ?? { install_id: uuid(), report_version: 1, created: 0, acknowledged: 0, refused: {} };
    const refused = object("refused") ?? {};
    if (JSON.stringify(refused) !== JSON.stringify(install.refused)) Object.assign(install, { refused, report_version: install.report_version + 1 });
    // What has no place here gets no number.
    if (!keep("install", JSON.stringify(install))) return {};
    let last = Math.max(install.created, ...events.map((event) => event.sequence ?? 0));
    for (const event of events) {
      const name = "e." + event.event_id;
      // The event is written first: a number that nobody has would be a loss.
      if (event.sequence || memory.has(name) || !keep(name, JSON.stringify({ ...event, sequence: last + 1 }))) continue;
      event.sequence = ++last;
    }
    install.created = last;
    keep("install", JSON.stringify(install));
    return install;
  };
  // The oldest first, so that no number waits below one that has been sent.
  const taken = () => {
    const events = waiting().sort().map((name) => {
      const event = object(name);
      if (!event?.event_id) remove(name);
      return event;
    });
    const known = events.filter((event) => event?.event_id);
    const install = isNumbered && !mustAsk() ? numbered(known) : {};
    return [known.sort((one, other) => (one.sequence ?? Infinity) - (other.sequence ?? Infinity) || 0), install];
  };
  const fitting = (events) => {
    let size = 1e3;
    return events.slice(0, batchSize).filter((event) => (size += bytes(JSON.stringify(event)) + 1) <= most.body);
  };
  const post = (batch, report) =>
    fetch(address, {
      method: "POST", keepalive: true, credentials: "omit", signal: AbortSignal.timeout?.(3e4),
      // Text: the browser asks for no leave before.
      body: JSON.stringify({ ...report, batch_id: uuid(), sent_at: Date.now(), events: batch }),
    });

  // Only a receipt that adds up says what became of an event (docs/protocol.md).
  const isReceipt = (answer, batch) => {
    const seen = new Set();
    return (
      answer.received === batch.length && answer.stored + answer.results?.length === batch.length &&
      answer.results.every(({ index, event_id }) => batch[index]?.event_id === event_id && !seen.has(index) && seen.add(index))
    );
  };
  const settle = (answer, batch) => {
    const outcomes = new Map(answer.results.map((result) => [result.index, result]));
    let goesOn = true;
    const install = object("install");
    batch.forEach((event, index) => {
      const { outcome, reason, detail } = outcomes.get(index) ?? { outcome: "stored" };
      if (!["stored", "duplicate", "conflict", "rejected", "expired"].includes(outcome)) return (goesOn = pause(1));
      if (!["stored", "duplicate"].includes(outcome)) console.warn("hapax: " + outcome, event, reason ?? "", detail ?? "");
      if (install && event.sequence > install.acknowledged) install.acknowledged = event.sequence;
      remove("e." + event.event_id);
    });
    if (install) keep("install", JSON.stringify(install));
    [failures, batchSize] = [0, most.events];
    return goesOn;
  };
  /// Whether more may be sent now.
  const round = async () => {
    const [events, install] = taken();
    const batch = fitting(events);
    if (!batch.length || mustAsk() || hasOptedOut()) return false;
    let answer, receipt;
    underWay = batch;
    try {
      answer = await post(batch, install);
      receipt = await answer.json();
    } catch {
      if (!answer && navigator.onLine) say("no answer; is " + origin + " one of the key's origins?");
    }
    underWay = [];
    const status = answer?.status;
    if (status === 200 && receipt && isReceipt(receipt, batch)) return settle(receipt, batch);
    const isOurs = receipt?.code;
    if (isOurs && [400, 413].includes(status) && batch.length > 1) {
      batchSize = Math.ceil(batch.length / 2);
      return true;
    }
    if (isOurs && status < 500 && ![408, 429].includes(status)) {
      say(status + " " + receipt.title + ": " + receipt.detail);
      return pause(300);
    }
    const longest = Math.min(300, 2 ** failures++);
    return pause(Math.max(Number(answer?.headers.get("Retry-After")) || 0, longest * (0.5 + Math.random() / 2)));
  };
  const send = () =>
    (sending ??= alone(async () => {
      clearTimeout(timer);
      timer = undefined;
      while (Date.now() >= pausedUntil && (await round())) {}
    })
      .catch(() => {})
      .then(() => {
        sending = undefined;
        if (waiting().length && !mustAsk() && !hasOptedOut()) plan(0);
      }));

  // The page ends before any answer: what waits goes along without numbers, and is deleted by the next page only, to which it is a duplicate.
  const leave = () => {
    if (mustAsk() || hasOptedOut()) return;
    const events = waiting().map(object).filter((event) => event?.event_id && !underWay.some((other) => other.event_id === event.event_id));
    const batch = fitting(events.map(({ sequence, ...event }) => event));
    if (batch.length) post(batch).catch(() => {});
  };

  // MARK: Consent

  const mark = (value) => keep("consent", value) || memory.set("consent", value);
  const consent = async (isGiven) => {
    mark(isGiven ? "yes" : "no");
    if (isGiven) {
      // What waited in memory for the answer is kept from here on.
      for (const [name, value] of [...memory]) set(name, value);
      return plan(0);
    }
    // Nothing is tracked or sent any more; when no tab is sending, all is forgotten. The books hear that the numbers which waited will never come.
    await alone(async () => {
      const install = object("install");
      const removed = waiting().map(object).filter((event) => event?.sequence).map(({ sequence }) => [sequence, sequence, "opted_out"]);
      names().forEach(remove);
      mark("no");
      if (install) await post([], { ...install, removed, report_version: install.report_version + 1 }).catch(() => {});
    });
  };

  // MARK: The page's life

  window.hapax = {
    version: "0.1.0", track, page, identify, consent,
    set: (properties) => { common = { ...common, ...properties }; },
    flush: () => { pausedUntil = 0; return send().then(() => waiting().length === 0); },
  };
  // The page that was told no may have ended before all was forgotten.
  if (hasOptedOut() && names().some((name) => name !== "consent")) consent(false);
  for (const [method, parameters] of early) window.hapax[method]?.(...parameters);
  addEventListener("online", () => { pausedUntil = 0; plan(0); });
  addEventListener("pagehide", leave);
  document.addEventListener("visibilitychange", () => { if (document.visibilityState === "hidden") send(); });
  if (waiting().length) plan(0);
  if (data.pages === "off") return;
  const moved = () => setTimeout(() => { if (location.pathname !== path) page(); });
  const pushState = history.pushState;
  history.pushState = function () {
    pushState.apply(this, arguments);
    moved();
  };
  addEventListener("popstate", moved);
  addEventListener("pageshow", (event) => { if (event.persisted) page(); });
  if (document.prerendering) document.addEventListener("prerenderingchange", () => page(), { once: true });
  else page();
})();
