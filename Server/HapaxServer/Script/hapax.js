// Sends a page's events to Hapax, each exactly once (docs/browsers.md). Pages load hapax.min.js, which `.ci/minify` makes of this file.
(() => {
  const script = document.currentScript;
  const { key, id: kind, consent: asks, gpc, pages, query, server, ...others } = script?.dataset ?? {};
  // Calls from before; without their list it is loaded twice, and the first one goes on.
  const early = window.hapax ? window.hapax.q : [];
  if (!early) return;
  if (!key) return console.error("hapax: no data-key");
  // Misspelt: what was meant to be asked would not be.
  for (const name in others) console.error("hapax: no data-" + name);

  // A request takes half of what a browser lets go on after a page's end, so that the last one has room beside one that is under way.
  const mostEvents = 200, mostCharacters = 1e5, mostOfEvent = 3e4, mostOfBody = 32e3;
  const address = new URL("v1/events", server ? server.replace(/\/*$/, "/") : script.src);
  address.searchParams.set("key", key);
  // What waits for one project goes to no other one.
  const prefix = "hapax " + address + " ";

  // MARK: What is kept

  // Where the page's events and ids are kept: nowhere, in the tab, or on the device. A browser may forbid that.
  let place = null;
  try {
    place = { tab: sessionStorage, device: localStorage }[kind] ?? null;
  } catch {}
  // What cannot be kept there, or may not yet.
  const memory = new Map();

  const kept = (name) => place?.getItem(prefix + name) ?? null;
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
  const hasOptedOut = () => consentIs("no") || (gpc != null && navigator.globalPrivacyControl);
  const mustAsk = () => asks != null && !consentIs("yes");
  const isSilent = () => mustAsk() || hasOptedOut();

  const get = (name) => memory.get(name) ?? kept(name);
  const set = (name, value) => {
    if (mustAsk() || !keep(name, value)) memory.set(name, value);
  };
  const remove = (name) => {
    memory.delete(name);
    place?.removeItem(prefix + name);
  };
  const names = () => {
    const own = Object.keys(place ?? {}).filter((name) => name.startsWith(prefix));
    return [...new Set([...memory.keys(), ...own.map((name) => name.slice(prefix.length))])];
  };
  const object = (name) => {
    try {
      return JSON.parse(get(name));
    } catch {
      return null;
    }
  };

  // MARK: Who it is

  // Of version 7 (RFC 9562), or of 8, by which the server knows a browser's install.
  const uuid = (version = 112) => {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    for (let index = 0; index < 6; index++) bytes[index] = Date.now() / 2 ** (40 - 8 * index);
    bytes[6] = (bytes[6] & 15) | version;
    bytes[8] = (bytes[8] & 63) | 128;
    return Array.from(bytes, (byte, index) => ([4, 6, 8, 10].includes(index) ? "-" : "") + (byte + 256).toString(16).slice(1)).join("");
  };
  const made = (name) => {
    if (!get(name)) set(name, uuid());
    return get(name);
  };
  // Another one after half an hour without an event.
  const session = () => {
    const [known, at] = (get("session") ?? "").split(" ");
    const id = Date.now() - at < 18e5 ? known : uuid();
    set("session", id + " " + Date.now());
    return id;
  };
  const identify = (id) => {
    if (hasOptedOut()) return;
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
    console.warn("hapax: not taken:", reason, detail);
    const refused = { ...object("refused") };
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
    if (bytes(text) > mostOfEvent) return refuse("event_too_large");
    if (all.length >= mostEvents || all.reduce((sum, name) => sum + (get(name) ?? "").length, text.length) > mostCharacters) return refuse("quota_full");
    set("e." + id, text);
    plan(all.length < 19 ? 2e3 : 0);
    return id;
  };

  let path;
  const page = (given) => {
    const properties = { $path: given ?? location.pathname, $title: document.title };
    const from = !path && document.referrer && new URL(document.referrer).host;
    if (from !== location.host) properties.$referrer = from || undefined;
    path = location.pathname;
    for (const [name, value] of new URLSearchParams(location.search)) {
      if (name.startsWith("utm_") || query?.split(",").includes(name)) properties[name] = value.slice(0, 200);
    }
    return track("$page", properties);
  };

  // MARK: Sending

  let timer, due, sending, failures = 0, pausedUntil = 0, batchSize = mostEvents;
  let underWay = [];
  let said;
  const say = (text) => {
    if (text !== said) console.error("hapax:", (said = text));
  };
  const plan = (delay) => {
    const at = Math.max(performance.now() + delay, pausedUntil);
    if (timer && due <= at) return;
    clearTimeout(timer);
    due = at;
    timer = setTimeout(send, at - performance.now());
  };
  const pause = (seconds) => {
    pausedUntil = performance.now() + Math.min(seconds, 3600) * 1e3;
    return false;
  };

  // One tab at a time sends what all have kept, and gives each event its number, so that the server can tell what is missing. Without locks, as on pages that are not
  // secure, no event has one.
  const isNumbered = kind === "device" && place && navigator.locks;
  const alone = (work) => (isNumbered ? navigator.locks.request(prefix + "send", work) : work());

  const numbered = (events) => {
    const known = object("install");
    const install = known?.install_id ? known : { install_id: uuid(128), report_version: 1, created: 0, acknowledged: 0, refused: {} };
    const refused = { ...object("refused") };
    if (JSON.stringify(refused) !== JSON.stringify(install.refused)) {
      install.refused = refused;
      install.report_version++;
    }
    // What has no place here gets no number.
    if (!keep("install", JSON.stringify(install))) return {};
    let last = Math.max(install.created, install.acknowledged, ...events.map((event) => event.sequence ?? 0));
    events.forEach((event, index) => {
      const name = "e." + event.event_id;
      // First in the event: one that is refused is not read to its end.
      const given = { sequence: last + 1, ...event };
      // The event is written before the counter: a number that nobody has would be a loss.
      if (event.sequence || memory.has(name) || !keep(name, JSON.stringify(given))) return;
      events[index] = given;
      last++;
    });
    install.created = last;
    keep("install", JSON.stringify(install));
    return install;
  };
  // The oldest first, so that no number waits below one that has been sent.
  const taken = () => {
    const events = waiting().sort().map((name) => {
      const event = object(name);
      if (name.length > 37 && "e." + event?.event_id === name && bytes(get(name)) < mostOfBody - 1e3) return event;
      // Something else has written it.
      remove(name);
    }).filter(Boolean);
    const install = isNumbered ? numbered(events) : {};
    return [events.sort((one, other) => (one.sequence ?? 1e15) - (other.sequence ?? 1e15)), install];
  };
  const fitting = (events) => {
    let size = 1e3;
    return events.slice(0, batchSize).filter((event) => (size += bytes(JSON.stringify(event)) + 1) <= mostOfBody);
  };
  const post = (batch, report) =>
    fetch(address, {
      method: "POST", keepalive: true, credentials: "omit", signal: AbortSignal.timeout?.(3e4),
      // Text: the browser asks for no leave before.
      body: JSON.stringify({ batch_id: uuid(), sent_at: Date.now(), ...report, events: batch }),
    });

  const settle = (outcomes, batch) => {
    let goesOn = true;
    const install = object("install");
    batch.forEach((event, index) => {
      const { outcome, reason, detail } = outcomes.get(index) ?? { outcome: "stored" };
      if (!/^(stored|duplicate|conflict|rejected|expired)$/.test(outcome)) return (goesOn = pause(1));
      if (reason || outcome === "conflict") console.warn("hapax:", outcome, event, reason, detail);
      if (install && event.sequence > install.acknowledged) install.acknowledged = event.sequence;
      remove("e." + event.event_id);
    });
    if (install) keep("install", JSON.stringify(install));
    failures = 0;
    batchSize = mostEvents;
    return goesOn;
  };
  /// Whether more may be sent now.
  const round = async () => {
    if (isSilent()) return false;
    const [events, install] = taken();
    const batch = fitting(events);
    if (!batch.length) return false;
    let answer, receipt;
    const batch_id = uuid();
    underWay = batch;
    try {
      answer = await post(batch, { ...install, batch_id });
      receipt = await answer.json();
    } catch {
      if (!answer && navigator.onLine) say("no answer: is " + origin + " listed?");
    }
    underWay = [];
    const status = answer?.status;
    const outcomes = new Map(receipt?.results?.map((result) => [result.index, result]));
    // Only a receipt that adds up says what became of an event (docs/protocol.md).
    if (
      status === 200 && receipt?.batch_id === batch_id && receipt.received === batch.length && receipt.stored + outcomes.size === batch.length &&
      receipt.results.every(({ index, event_id }) => batch[index]?.event_id === event_id)
    ) return settle(outcomes, batch);
    // Our own refusal, not a proxy's.
    const isRefused = receipt?.code && status < 500 && status !== 408 && status !== 429;
    if (isRefused && (status === 400 || status === 413) && batch.length > 1) return (batchSize = (batch.length + 1) >> 1);
    if (isRefused) {
      say(status + " " + receipt.detail);
      return pause(300);
    }
    const longest = Math.min(300, 2 ** failures++);
    return pause(Math.max(+answer?.headers.get("Retry-After") || 0, longest * (0.5 + Math.random() / 2)));
  };
  const send = () => {
    clearTimeout(timer);
    timer = undefined;
    return (sending ??= alone(async () => {
      while (performance.now() >= pausedUntil && (await round())) {}
    })
      .catch(() => pause(60))
      .then(() => {
        sending = undefined;
        if (waiting().length && !isSilent()) plan(1e3);
      }));
  };

  // The page ends before any answer: what waits goes along without numbers, and is deleted by the next page only, to which it is a duplicate.
  const leave = () => {
    if (isSilent()) return;
    const events = waiting().map(object).filter((event) => event && !underWay.some((other) => other.event_id === event.event_id));
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
      // Unless it was given again meanwhile.
      if (!hasOptedOut()) return;
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
  if (pages === "off") return;
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
