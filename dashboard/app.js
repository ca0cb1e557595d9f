// The live page: follows /api/events, keeps one row per endpoint and changes only what changed, so that focus and selection stay.
"use strict";

const $ = (id) => document.getElementById(id);
const HISTORY = 60; // seconds of requests/s in a row's curve
const RECENT = 12;

// What a gate means for the person who looks: its colour is never its only sign, as the word stands in the pill.
const GATES = {
  usable: ["good", "usable"],
  full: ["warn", "full"],
  overloaded: ["warn", "overloaded"],
  unfit: ["warn", "unfit"],
  cooling_down: ["warn", "cooling down"],
  draining: ["off", "draining"],
  weight_zero: ["off", "weight 0"],
  unhealthy: ["bad", "unhealthy"],
  open: ["bad", "open"],
  vacant: ["off", "removed"],
};

let token = sessionStorage.getItem("tidegate-token") || "";
let noteTimer = 0;
const rows = new Map();
const cards = new Map();

function el(tag, properties, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key === "data") Object.assign(node.dataset, value);
    else node[key] = value;
  }
  node.append(...children);
  return node;
}

function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function seconds(s) {
  if (s === null || s === undefined) return "–";
  if (s >= 9.95) return s.toFixed(0) + " s";
  return s >= 0.9995 ? s.toFixed(1) + " s" : s >= 0.00995 ? (s * 1000).toFixed(0) + " ms" : (s * 1000).toFixed(1) + " ms";
}

function rate(r) {
  return r < 0.05 ? "0" : r < 10 ? r.toFixed(1) : r.toFixed(0);
}

function percent(share) {
  return Math.round(share * 100) + " %";
}

function request(path, options) {
  const headers = { ...(options && options.headers) };
  if (token) headers.authorization = "Bearer " + token;
  return fetch(path, { ...options, headers, cache: "no-store" });
}

function note(text, bad) {
  set($("note"), text);
  $("note").dataset.state = bad ? "bad" : "";
  clearTimeout(noteTimer);
  if (text) noteTimer = setTimeout(note, bad ? 15000 : 5000, "", false);
}

async function change(button, path, body, done) {
  // Not `disabled`: that would take the focus from who uses the keyboard.
  if (button.getAttribute("aria-busy") === "true") return;
  button.setAttribute("aria-busy", "true");
  try {
    const answer = await request(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    const json = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(json.error ? json.error.message : "status " + answer.status);
    note(done, false);
  } catch (error) {
    note("That did not work: " + error.message, true);
  } finally {
    button.removeAttribute("aria-busy");
  }
}

function card(pool) {
  let found = cards.get(pool.name);
  if (found) return found;
  const title = el("h2", { id: "pool-" + pool.name, textContent: pool.name });
  const policy = el("code");
  const warning = el("span", { className: "pill", hidden: true, data: { state: "bad" } });
  const degraded = el("span", { className: "pill", hidden: true, data: { state: "warn" } });
  const facts = el("span", { className: "facts" });
  const heads = [["endpoint"], ["state"], ["in flight", "n"], ["requests/s", "n"], ["mean response", "n"], ["load", "n"], ["share of traffic"], [""]];
  const head = el("tr", {}, ...heads.map(([text, name]) => el("th", { textContent: text, className: name || "", scope: "col" })));
  const body = el("tbody");
  const table = el("table", {}, el("thead", {}, head), body);
  table.setAttribute("aria-labelledby", title.id);
  const section = el("section", {}, el("div", { className: "head" }, title, policy, warning, degraded, facts), table);
  $("pools").append(section);
  found = { section, policy, warning, degraded, facts, body };
  cards.set(pool.name, found);
  return found;
}

function cell(label, name, ...children) {
  return el("td", { className: name, data: { label } }, ...children);
}

// A reload may give the place of an endpoint that left to another.
function rowKey(pool, endpoint) {
  return `${pool.name} ${endpoint.index} ${endpoint.url}`;
}

function row(pool, endpoint, into, actions) {
  const key = rowKey(pool, endpoint);
  let found = rows.get(key);
  if (found) return found;
  const path = `/api/pools/${encodeURIComponent(pool.name)}/endpoints/${endpoint.index}/`;
  const state = el("span", { className: "pill" });
  const why = el("div", { className: "why" });
  const [inFlight, response, load, share] = [el("span"), el("span"), el("span"), el("span", { className: "n" })];
  const perSecond = el("span");
  const fill = el("span", { className: "fill" });
  const spark = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  spark.setAttribute("class", "spark");
  spark.setAttribute("viewBox", `0 0 ${HISTORY - 1} 20`);
  spark.setAttribute("preserveAspectRatio", "none");
  spark.setAttribute("aria-hidden", "true");
  const curve = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  spark.append(curve);
  const drain = el("button", { type: "button" });
  drain.onclick = () => {
    const draining = drain.dataset.draining !== "true";
    change(drain, path + "drain", { draining }, `${endpoint.url} ${draining ? "takes no new requests" : "is back in use"}.`);
  };
  const buttons = el("div", { className: "buttons" }, drain);
  const switches = actions.map((action) => {
    const button = el("button", { type: "button" });
    button.onclick = () => {
      const on = button.dataset.on !== "true";
      change(button, `${path}actions/${action.name}`, { on }, `${on ? action.on : action.off}: ${endpoint.url}.`);
    };
    buttons.append(button);
    return { action, button };
  });
  const line = el("tr", {},
      cell("endpoint", "url wide", el("span", { textContent: endpoint.url })),
      cell("state", "", state, why),
      cell("in flight", "n", inFlight),
      cell("requests/s", "n", spark, perSecond),
      cell("mean response", "n", response),
      cell("load", "n", load),
      cell("share of traffic", "wide", el("div", { className: "share" }, el("span", { className: "track" }, fill), share)),
      cell("", "wide", buttons));
  into.append(line);
  found = { line, state, why, inFlight, perSecond, response, load, share, fill, curve, drain, switches, history: [] };
  rows.set(key, found);
  return found;
}

// Why the endpoint is not simply usable, in a few words below its state.
function reasons(endpoint) {
  const said = [];
  const breaker = endpoint.breaker;
  if (breaker.level === "half_open") said.push("breaker half-open");
  if (breaker.level === "reduced") said.push("breaker: weight reduced");
  if (endpoint.share < 1) said.push("ramping up, " + percent(endpoint.share));
  if (endpoint.degraded) said.push("load signal " + endpoint.degraded);
  const cache = endpoint.cache || {};
  if (cache.events === "missing" || cache.events === "silent") said.push("cache events " + cache.events);
  for (const signal of endpoint.signals || []) {
    if (signal.gate) said.push(signal.gate);
    if (signal.trouble) said.push(signal.source + ": " + signal.trouble);
  }
  if (endpoint.weight !== 1) said.push("weight " + endpoint.weight);
  return said.join(" · ");
}

// What the engine says of itself, and what it does not expose.
function signals(endpoint) {
  const lines = (endpoint.signals || []).map((s) => `${s.source}${s.engine ? " (" + s.engine + ")" : ""}: has ${s.present.join(", ") || "nothing"}` +
    (s.missing.length ? "; lacks " + s.missing.join(", ") : ""));
  const work = endpoint.work || {};
  const counts = Object.keys(work).filter((key) => work[key] !== null).map((key) => `${key} ${work[key]}`);
  if (counts.length) lines.push(counts.join(", "));
  const used = endpoint.used || {};
  const uses = Object.keys(used).filter((key) => used[key] !== null).map((key) => `${key} ${percent(used[key])}`);
  if (uses.length) lines.push("used: " + uses.join(", "));
  const cache = endpoint.cache;
  if (cache) lines.push(`prefix cache: ${cache.blocks} blocks expected` + (cache.events ? `, events ${cache.events}` : "") +
    (cache.events && cache.resident_tokens !== null ? `, ${cache.resident_tokens} tokens held` : ""));
  if (endpoint.report_age_s !== null) lines.push(`report ${endpoint.report_age_s.toFixed(1)} s old`);
  return lines.join("\n");
}

function show(endpoint, poolRate, r) {
  const [state, word] = GATES[endpoint.gate] || ["off", endpoint.gate];
  r.state.dataset.state = state;
  set(r.state, word);
  set(r.why, reasons(endpoint));
  set(r.inFlight, endpoint.in_flight + (endpoint.max_in_flight ? " / " + endpoint.max_in_flight : ""));
  set(r.perSecond, rate(endpoint.requests_per_s));
  set(r.response, seconds(endpoint.response_time_s));
  r.load.title = signals(endpoint);
  set(r.load, endpoint.load === null ? "–" : percent(endpoint.load));
  const share = poolRate > 0.05 ? endpoint.requests_per_s / poolRate : 0;
  r.fill.style.width = percent(share).replace(" ", "");
  set(r.share, percent(share));
  r.history.push(endpoint.requests_per_s);
  if (r.history.length > HISTORY) r.history.shift();
  const top = Math.max(1, ...r.history);
  const start = HISTORY - r.history.length;
  r.curve.setAttribute("points", r.history.map((v, i) => `${start + i},${(19 - (v / top) * 18).toFixed(1)}`).join(" "));
  const draining = endpoint.gate === "draining";
  r.drain.dataset.draining = draining;
  set(r.drain, draining ? "Undrain" : "Drain");
  r.drain.setAttribute("aria-label", `${draining ? "Undrain" : "Drain"} ${endpoint.url}`);
  for (const { action, button } of r.switches) {
    const on = Boolean(endpoint.actions && endpoint.actions[action.name]);
    button.dataset.on = on;
    button.className = on ? "" : "danger";
    set(button, on ? action.off : action.on);
    button.setAttribute("aria-label", `${on ? action.off : action.on} ${endpoint.url}`);
  }
}

// Which config is in force, since when and why; and whether the file says something else that was rejected.
function config(view) {
  if (!view) return;
  const at = new Date(view.loaded_unix_s * 1000).toLocaleTimeString();
  const restart = view.needs_restart.length ? `; a restart is needed for ${view.needs_restart.join(", ")}` : "";
  set($("config"), `config ${view.generation}, ${view.loaded_by} ${at}${restart}`);
  $("config").title = view.file;
  $("rejected").hidden = !view.rejected;
  set($("rejected"), "config file rejected");
  $("rejected").title = view.rejected ? view.rejected.message : "";
}

// Takes away what the config in force has no more.
function sweep(pools) {
  const kept = new Set(pools.flatMap((pool) => pool.endpoints.map((endpoint) => rowKey(pool, endpoint))));
  for (const [key, r] of rows) {
    if (kept.has(key)) continue;
    r.line.remove();
    rows.delete(key);
  }
  for (const [name, c] of cards) {
    if (pools.some((pool) => pool.name === name)) continue;
    c.section.remove();
    cards.delete(name);
  }
}

function render(snapshot) {
  set($("version"), snapshot.version);
  config(snapshot.config);
  sweep(snapshot.pools);
  const total = { rate: 0, inFlight: 0, waiting: 0, usable: 0, endpoints: 0 };
  for (const pool of snapshot.pools) {
    const c = card(pool);
    const poolRate = pool.endpoints.reduce((sum, e) => sum + e.requests_per_s, 0);
    set(c.policy, pool.policy);
    c.section.classList.toggle("no-load", pool.endpoints.every((e) => e.load === null && e.degraded === null));
    c.warning.hidden = !pool.panic;
    set(c.warning, "panic: too few endpoints pass their checks");
    c.degraded.hidden = pool.degraded === 0;
    set(c.degraded, `degraded: ${pool.degraded} load signal${pool.degraded === 1 ? "" : "s"} unusable`);
    const keys = pool.affinity_keys ? ` · ${pool.affinity_keys} affinity keys` : "";
    const prefix = pool.prefix_cache;
    const prompts = prefix ? prefix.hits + prefix.misses : 0;
    const cached = prompts ? ` · ${percent(prefix.hits / prompts)} of prompts known` : "";
    const limit = pool.limit === null ? "" : ` of ${pool.limit}`;
    const classes = Object.entries(pool.waiting_by_class || {}).map(([name, n]) => `${name} ${n}`).join(", ");
    const waiting = pool.waiting ? ` · ${pool.waiting} waiting${classes ? ` (${classes})` : ""}` : "";
    const leaving = (pool.leaving || []).map((e) => ` · ${e.url} leaves with ${e.in_flight}`).join("");
    set(c.facts, `${pool.usable} of ${pool.endpoints.length} usable · ${pool.in_flight}${limit} in flight${waiting} · ${rate(poolRate)} requests/s${keys}${cached}${leaving}`);
    for (const endpoint of pool.endpoints) show(endpoint, poolRate, row(pool, endpoint, c.body, snapshot.actions));
    total.rate += poolRate;
    total.inFlight += pool.in_flight;
    total.waiting += pool.waiting;
    total.usable += pool.usable;
    total.endpoints += pool.endpoints.length;
  }
  set($("total-rate"), rate(total.rate));
  set($("total-in-flight"), String(total.inFlight));
  set($("total-waiting"), String(total.waiting));
  set($("total-usable"), `${total.usable} / ${total.endpoints}`);
}

// A number in at most four digits: 12.3k, 950, 0.5.
function short(n) {
  const size = Math.abs(n);
  if (size >= 9.995e5) return (n / 1e6).toFixed(1) + "M";
  if (size >= 9995) return (n / 1e3).toFixed(1) + "k";
  return size >= 99.95 || Number.isInteger(n) ? n.toFixed(0) : n.toFixed(1);
}

// Balances of limits, the most used first; a limit per tenant may have thousands.
async function levels() {
  const answer = await request("/api/limits");
  if (!answer.ok) return;
  const { limits } = await answer.json();
  $("limits").hidden = limits.length === 0;
  // Places are counted up, balances down.
  const used = (l) => (l.depth > 0 ? Math.max(0, Math.min(1, l.quantity === null ? l.level / l.depth : 1 - l.level / l.depth)) : 0);
  limits.sort((a, b) => used(b) - used(a));
  $("levels").replaceChildren(...limits.slice(0, 20).map((l) => {
    const text = (value) => el("span", { textContent: value });
    const fill = el("span", { className: "fill" });
    fill.style.width = percent(used(l)).replace(" ", "");
    const left = l.quantity === null ? l.depth - l.level : l.level;
    return el("tr", {},
      cell("limit", "", el("code", { textContent: l.name })),
      cell("of", "", text(l.path.join(" / ") || "everybody")),
      cell("counts", "", text((l.quantity || "in flight").replace("_", " "))),
      cell("per second", "n", text(l.rate_per_s > 0 ? short(l.rate_per_s) : "–")),
      cell("left", "n", text(`${short(left)} of ${short(l.depth)}`)),
      cell("used", "wide", el("div", { className: "share" }, el("span", { className: "track" }, fill), el("span", { className: "n", textContent: percent(used(l)) }))));
  }));
}

// Rows are kept, so that a button keeps its focus while numbers change.
const ruleRows = new Map();

function ruleRow(rule) {
  let found = ruleRows.get(rule.name);
  if (found) return found;
  const [when, metric, present, last] = [el("code"), el("span"), el("span"), el("span")];
  const path = `/api/rules/${encodeURIComponent(rule.name)}`;
  const revert = el("button", { type: "button", textContent: "Revert" });
  revert.setAttribute("aria-label", `Revert ${rule.target} to its configured value`);
  revert.onclick = () => change(revert, path + "/revert", {}, `${rule.target} is back at its configured value.`);
  const enable = el("button", { type: "button" });
  enable.onclick = () => {
    const enabled = enable.dataset.enabled !== "true";
    change(enable, path, { enabled }, `${rule.name} ${enabled ? "may act" : "is switched off"}.`);
  };
  const mode = el("span", { className: "pill", hidden: true, textContent: "dry run", data: { state: "off" } });
  $("rule-rows").append(
    el("tr", {},
      cell("rule", "", el("code", { textContent: rule.name }), " ", mode),
      cell("acts when", "", when),
      cell("metric now", "n", metric),
      cell("changes", "", el("code", { textContent: rule.target })),
      cell("now (configured)", "n", present),
      cell("last change", "", last),
      cell("", "wide", el("div", { className: "buttons" }, revert, enable))));
  found = { when, metric, present, last, enable, mode };
  ruleRows.set(rule.name, found);
  return found;
}

async function rules() {
  const answer = await request("/api/rules");
  if (!answer.ok) return;
  const { rules: all } = await answer.json();
  $("rules").hidden = all.length === 0;
  for (const rule of all) {
    const r = ruleRow(rule);
    const number = (n) => (n === null ? "–" : short(n));
    // Of a Prometheus server's query, the query: its address is in the title.
    const query = rule.metric.split("query=")[1];
    set(r.when, `${query ? decodeURIComponent(query) : rule.metric} ${rule.condition}`);
    r.when.title = rule.metric;
    set(r.metric, rule.value === null && rule.problem ? "no answer" : number(rule.value));
    r.metric.title = rule.problem || "";
    set(r.present, `${number(rule.present)} (${number(rule.configured)})`);
    const last = rule.changes[0];
    set(r.last, last ? `${short(last.before)} to ${short(last.after)}, ${seconds(last.ago_s)} ago` : "–");
    r.mode.hidden = !rule.dry_run;
    r.enable.dataset.enabled = rule.enabled;
    set(r.enable, rule.enabled ? "Switch off" : "Switch on");
    r.enable.setAttribute("aria-label", `${rule.enabled ? "Switch off" : "Switch on"} ${rule.name}`);
  }
}

async function recent() {
  const answer = await request("/api/requests?limit=" + RECENT);
  if (!answer.ok) return;
  const { requests } = await answer.json();
  $("recent").hidden = requests.length === 0;
  $("requests").replaceChildren(...requests.map((r) => {
    const state = r.status < 400 && r.outcome === "success" ? "good" : r.status >= 500 || r.outcome !== "success" && r.status < 400 ? "bad" : "warn";
    const text = (value) => el("span", { textContent: value });
    return el("tr", {},
      cell("ended", "", text(new Date(r.ended_unix_s * 1000).toLocaleTimeString())),
      cell("request", "", el("code", { textContent: r.request_id, title: `${r.method} ${r.path}` })),
      cell("tenant", "", text(r.tenant || "–")),
      cell("endpoint", "url", text(r.endpoint.replace("http://", "") || "–")),
      cell("reason", "", el("code", { textContent: r.reason || "–" })),
      cell("outcome", "", el("span", { className: "pill", textContent: `${r.status} ${r.outcome}`, data: { state } })),
      cell("first byte", "n", text(seconds(r.ttft_s))),
      cell("total", "n", text(seconds(r.total_s))));
  }));
}

function link(state, text) {
  $("link").dataset.state = state;
  set($("link"), text);
}

function ask(text) {
  $("login").hidden = false;
  set($("login-note"), text);
  link("warn", "token needed");
}

// Not EventSource: it cannot send a token. The stream is read by hand instead; an event ends at an empty line.
async function follow() {
  const answer = await request("/api/events");
  if (answer.status === 401) return ask(token ? "This token is not the right one." : "");
  if (!answer.ok) throw new Error("status " + answer.status);
  $("login").hidden = true;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("closed");
    held += value;
    const events = held.split("\n\n");
    held = events.pop();
    for (const event of events) {
      const data = event.split("\n").find((line) => line.startsWith("data: "));
      if (data) render(JSON.parse(data.slice(6)));
    }
    if (events.length) {
      link("good", "live");
      recent().catch(() => {});
      levels().catch(() => {});
      rules().catch(() => {});
    }
  }
}

async function run() {
  try {
    await follow();
  } catch {
    link("bad", "disconnected, trying again");
    setTimeout(run, 1000);
  }
}

$("login").onsubmit = (event) => {
  event.preventDefault();
  token = $("token").value;
  sessionStorage.setItem("tidegate-token", token);
  run();
};
run();
