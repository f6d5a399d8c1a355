// Which section is shown, and what the controls do.


function show() {
  takeKey();
  const hasKey = store.key !== "";
  const { section, parameters } = place();
  $("key-form").hidden = hasKey;
  $("account").hidden = !hasKey;
  $("copy-request").hidden = !hasKey;
  for (const name of SECTIONS) {
    $(name).hidden = !hasKey || name !== section;
    if (name === section) $("to-" + name).setAttribute("aria-current", "page"); else $("to-" + name).removeAttribute("aria-current");
  }
  live.stop();
  report.stop();
  $("report-keys").hidden = section !== "report";
  analysis.stop();
  trust.stop();
  storage.stop();
  $("missing").hidden = true;
  if (!hasKey) {
    return $("key").focus();
  }
  // Only an admin key of all projects chooses one, and only it sees the store.
  $("to-store").hidden = $("store-key").hidden = !store.project;
  $("project-label").hidden = !store.project;
  $("project").value = store.project;
  watchTrust();
  if (section === "live") {
    $("filter").value = parameters.get("event") || "";
    $("outcome").value = parameters.get("outcome") || "";
    live.start();
  } else if (section === "report") {
    report.start();
  } else if (section === "trust") {
    trust.start();
  } else if (section === "store") {
    storage.start();
  } else {
    const wanted = parameters.get("id") || parameters.get("user") || "";
    $("wanted").value = wanted;
    if (wanted) find(wanted); else $("found").replaceChildren(el("p", { class: "empty" }, "For an event’s id: its receipt and the event, or what is known of it. For a user: their events, the last to happen first."));
  }
}

function forgetKey(reason) {
  analysis.forget();
  store.key = "";
  sessionStorage.removeItem("hapax.project");
  $("key-error").textContent = reason || "";
  show();
}

$("key-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  store.key = $("key").value.trim();
  try {
    const { all_projects: isForAll, projects } = await askJSON("v1/key", {});
    // Most admin keys are for every project: one of them is shown first.
    if (isForAll) store.project = projects[0] || "-";
  } catch (error) {
    return forgetKey(explain(error));
  }
  $("key").value = $("key-error").textContent = "";
  show();
});
$("forget").addEventListener("click", () => forgetKey());
$("project").addEventListener("change", () => { store.project = $("project").value.trim(); analysis.forget(); show(); });
$("pause").addEventListener("click", () => { live.isPaused = !live.isPaused; if (live.isPaused) live.tell(); else live.release(); });
$("show-new").addEventListener("click", () => live.release());
$("unknown-keys").lastElementChild.addEventListener("click", () => { sessionStorage.setItem("hapax.dismissed", live.unknownKeys); live.tell(); });
for (const id of ["filter", "outcome"]) $(id).addEventListener("change", () => { go("live", live.filter); live.start(); });
$("filter").addEventListener("focus", async () => {
  try {
    const { names } = await askJSON("v1/names", { from: new Date(Date.now() - 86400000).toISOString() });
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
  const text = place().section === "live" ? curlOfRequest("v1/live", live.filter)
    : place().section === "trust" ? curlOfRequest("v1/trust", {})
    : place().section === "store" ? curlOfRequest("v1/store", {})
    : place().section === "report" ? curlOfRequest("v1/reports/daily", report.parameters)
    : foundByID && ID.test(wanted) ? curlOfRequest("v1/events/" + wanted.toLowerCase(), {}) : curlOfRequest("v1/events", { distinct_id: wanted });
  copy(text, event.currentTarget);
});
$("shortcuts").checked = sessionStorage.getItem("hapax.shortcuts") !== "off";
$("shortcuts").addEventListener("change", () => sessionStorage.setItem("hapax.shortcuts", $("shortcuts").checked ? "on" : "off"));
document.addEventListener("keydown", (event) => {
  if (!$("shortcuts").checked || event.ctrlKey || event.metaKey || event.altKey || store.key === "") return;
  // A key belongs to the control that has the focus.
  if (document.activeElement && document.activeElement !== document.body) return;
  const act = { 1: () => { location.hash = "#live"; }, 2: () => { location.hash = "#report"; }, 3: () => { location.hash = "#find"; }, 4: () => { location.hash = "#trust"; }, 5: () => { if (store.project) location.hash = "#store"; }, p: () => $("pause").click(),
    "/": () => $({ live: "filter", report: "until", find: "wanted", store: "project" }[place().section] || "copy-request").focus(),
    ...(place().section !== "report" ? {} : { ArrowLeft: () => report.move(-1), ArrowRight: () => report.move(1), x: () => report.choose({ compare: report.wanted.compare ? "" : "no" }), Escape: () => { if (report.wanted.where) report.choose({ where: "" }); } }) }[event.key];
  if (act) { event.preventDefault(); act(); }
});
document.addEventListener("focusout", () => setTimeout(() => { if (!$("live").hidden) live.tell(); }, 0));
window.addEventListener("hashchange", show);
setInterval(() => { if (!$("live").hidden) live.empty(); }, 5000);
setInterval(watchTrust, 60000);
setInterval(async () => {
  if ($("live").hidden || document.hidden || live.state !== "connected") return;
  try { live.unknownKeys = (await askJSON("v1/refusals", { limit: "1" })).unknown_keys || 0; live.tell(); } catch { /* The stream says so. */ }
}, 5000);
show();
