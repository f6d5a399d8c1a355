"use strict";

// The server puts the files of this folder together into one /page.js, this one first.

const $ = (id) => document.getElementById(id);
const SECTIONS = ["live", "report", "find", "trust", "store"];

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
// A number that was kept as it was written is no text by itself.
const shown = (value) => el("bdi", {}, escaped(JSON.isRawJSON && JSON.isRawJSON(value) ? value.rawJSON : String(value)));
// Line ends and spaces of our own indentation stay; what an event holds is escaped inside its JSON.
const pretty = (value) => JSON.stringify(value, null, 2).split("\n").map(escaped).join("\n");

const store = {
  get key() { return sessionStorage.getItem("hapax.key") || ""; },
  set key(value) { value ? sessionStorage.setItem("hapax.key", value) : sessionStorage.removeItem("hapax.key"); },
  get project() { return sessionStorage.getItem("hapax.project") || ""; },
  set project(value) { sessionStorage.setItem("hapax.project", value); },
};

// A screen reader hears of it at most every ten seconds.
let spokenAt = 0, spoken = "", toSpeak = "", timer = 0;
function speak(text) {
  toSpeak = text;
  if (timer || text === spoken) return;
  timer = setTimeout(() => { timer = 0; spokenAt = Date.now(); spoken = toSpeak; $("status").textContent = spoken; }, Math.max(0, spokenAt + 10000 - Date.now()));
}

// ---- Asking ----

class Problem extends Error {
  constructor(status, code, detail, parameter) {
    super(detail);
    Object.assign(this, { status, code, parameter });
  }
}

// Where the server is, up to a last slash: a proxy may have it under a path.
const BASE = new URL(".", location.href).href;

function address(path, parameters = {}) {
  const query = new URLSearchParams();
  // What an admin asks of the store concerns all projects.
  if (store.project && !path.startsWith("v1/admin/")) query.set("project", store.project);
  for (const [name, value] of Object.entries(parameters)) for (const one of [value].flat()) if (one) query.append(name, one);
  const text = query.toString();
  return BASE + path + (text ? "?" + text : "");
}

async function ask(path, parameters, signal) {
  const answer = await fetch(address(path, parameters), { headers: { Authorization: "Bearer " + store.key }, signal, cache: "no-store" });
  if (answer.ok) return answer;
  const text = await answer.json().catch(() => ({}));
  throw new Problem(answer.status, text.code || "http_" + answer.status, text.detail || "", text.parameter);
}

// A number that JavaScript cannot hold stays as it was written, where the browser can: an event that is copied has to be the same event.
const parse = (text) => JSON.parse(text, (key, value, context) => (typeof value === "number" && context && context.source !== String(value) && JSON.rawJSON ? JSON.rawJSON(context.source) : value));

const askJSON = async (path, parameters, signal) => parse(await (await ask(path, parameters, signal)).text());

function explain(error) {
  if (error instanceof Problem) return `${error.code}: ${error.message}`;
  return "The server cannot be reached.";
}

// A section whose answer is asked for again and again while it is shown: `question` gets it, `draw` shows what there is.
const refreshed = (seconds, section) => Object.assign(section, {
  abort: null, timer: 0, answer: null, at: null, error: "",

  start() {
    this.stop();
    this.abort = new AbortController();
    Object.assign(this, { answer: null, at: null, error: "" });
    this.draw();
    this.load();
    this.timer = setInterval(() => { if (!document.hidden) this.load(); }, 1000 * seconds);
  },

  stop() {
    if (this.abort) this.abort.abort();
    this.abort = null;
    clearInterval(this.timer);
  },

  async load() {
    const { signal } = this.abort;
    try {
      this.answer = await this.question(signal);
      Object.assign(this, { at: new Date(), error: "" });
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status === 401) return forgetKey(explain(error));
      this.error = explain(error);
      // What takes too long is not asked again by itself.
      if (error instanceof Problem && error.code === "range_too_large") clearInterval(this.timer);
    }
    this.draw();
  },
});

// ---- The address: section and filter ----

function place() {
  const [section, query] = location.hash.slice(1).split("?");
  return { section: SECTIONS.includes(section) ? section : "live", parameters: new URLSearchParams(query || "") };
}

function go(section, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) for (const one of [value].flat()) if (one) query.append(name, one);
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

// ---- Times ----

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

// ---- Lists ----

// A name, its numbers, and a bar for its share of the largest; null for none.
function listRow(name, numbers, share, kind = "") {
  const bar = el("span", { class: "share", "aria-hidden": "true" });
  if (share !== null) bar.style.width = `${100 * share}%`;
  return el("tr", { class: kind }, el("th", { scope: "row" }, name), ...numbers.map((number) => el("td", { class: "number" }, number)), el("td", { class: "bar" }, share === null ? "" : bar));
}

// ---- curl ----

const quoted = (text) => "'" + text.replaceAll("'", "'\\''") + "'";

function curlOfEvent(event) {
  const body = escaped(JSON.stringify({ events: [event] }));
  const key = store.key === "demo-read" ? quoted("Authorization: Bearer demo") : '"Authorization: Bearer $HAPAX_KEY"';
  return `curl -s ${quoted(BASE + "v1/events")} -H ${key} -H 'Content-Type: application/json' -d ${quoted(body)}`;
}

function curlOfRequest(path, parameters) {
  const key = store.key === "demo-read" ? quoted("Authorization: Bearer demo-read") : '"Authorization: Bearer $HAPAX_READ_KEY"';
  return `curl -s ${path === "v1/live" ? "-N " : ""}${quoted(address(path, parameters))} -H ${key}`;
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
