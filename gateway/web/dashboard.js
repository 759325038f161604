"use strict";
// The dashboard of weir. Everything shown is set as text, never as markup: keys are chosen by strangers.

const $ = id => document.getElementById(id);
const kept = 180; // seconds in a sparkline

function el(tag, cls, text) {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  if (text !== undefined) e.textContent = text;
  return e;
}
function svg(tag, attributes) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  return e;
}
const set = (e, text) => { if (e.textContent !== text) e.textContent = text; };

// Numbers for people.
function num(n) {
  if (n >= 1e9) return (n / 1e9).toFixed(1) + "G";
  if (n >= 1e6) return (n / 1e6).toFixed(1) + "M";
  if (n >= 1e4) return (n / 1e3).toFixed(1) + "k";
  return n === Math.round(n) || n >= 10 ? String(Math.round(n)) : n.toFixed(1);
}
function span(s) { // seconds
  if (s < 0) return "–";
  if (s < 0.001) return (s * 1e6).toFixed(0) + " µs";
  if (s < 1) return (s * 1e3).toFixed(s < 0.01 ? 1 : 0) + " ms";
  if (s < 60) return s.toFixed(s < 10 ? 1 : 0) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + Math.floor(s % 60) + " s";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";
}
const clock = ms => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });

let frame = null;       // the latest
let past = new Map();   // by limit: [admitted, refused, shadow], each the last seconds
let chosen = "";        // limit
let byHand = false;     // and somebody has chosen it
let looked = null;      // {limit, key} or {limit, hash}: the key that is shown
let arrived = 0;

// --- What comes in ---

function connect() {
  const events = new EventSource("events");
  events.addEventListener("history", e => {
    past = new Map(Object.entries(JSON.parse(e.data).limits));
    frame = null;
  });
  events.addEventListener("frame", e => {
    const f = JSON.parse(e.data);
    arrived = Date.now();
    if (frame && frame.sample === f.sample) return;
    if (frame) remember(f);
    frame = f;
    show(f);
  });
  events.onerror = () => {
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  };
}

function remember(f) {
  for (const l of f.limits) {
    if (!past.has(l.name)) past.set(l.name, [[], [], []]);
    past.get(l.name).forEach((column, i) => {
      column.push(l.now[i]);
      if (column.length > kept) column.shift();
    });
  }
}

setInterval(() => {
  const quiet = (Date.now() - arrived) / 1000;
  const stale = quiet > 4;
  document.body.classList.toggle("stale", stale && arrived > 0);
  if (stale) state(arrived ? "no data for " + span(quiet) : "connecting", "bad");
  if (frame && !stale && looked && !document.hidden && frame.sample % 2 === 0) look(true);
}, 1000);

// --- What is shown ---

function state(text, cls) {
  set($("state"), text);
  $("state").className = "pill " + cls;
}

function show(f) {
  if (f.draining) state("shutting down", "warn");
  else if (!f.ready) state("not ready", "bad");
  else state("ready", "good");
  set($("since"), "up " + span((f.now - f.since) / 1000));
  showTiles(f);
  showLimits(f);
  showChoice(f);
  showKeys(f);
  showHolds(f);
  showUpstreams(f);
  showRoutes(f);
  showFacts(f);
  const may = f.token ? "Changes take the admin token" : "No changes from a page: set admin.token_file";
  set($("may"), may);
  $("actions").disabled = !f.token;
  $("tokenrow").hidden = !f.token;
}

// sync makes the children of a parent those of some items, in order, and leaves those that stay alone.
function sync(parent, items, id, make, update) {
  const old = new Map(Array.from(parent.children, c => [c.dataset.id, c]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const name = "=" + id(item);
    let e = old.get(name);
    if (e) old.delete(name);
    else { e = make(item); e.dataset.id = name; }
    update(e, item);
    if (e === at) at = at.nextElementSibling;
    else parent.insertBefore(e, at);
  }
  for (const e of old.values()) e.remove();
}

function showTiles(f) {
  const total = i => f.limits.reduce((n, l) => n + l.now[i], 0);
  const slowest = Math.max(-1, ...f.upstreams.map(u => u.p95));
  const tiles = [
    ["Requests/s", num(f.routes.reduce((n, r) => n + r.now.reduce((a, b) => a + b), 0))],
    ["Refusals/s", num(total(1)), total(1) > 0 ? "bad" : ""],
    ["Shadow refusals/s", num(total(2))],
    ["Requests open", num(f.open)],
    ["Slowest p95", span(slowest)],
  ];
  if (f.memory) tiles.push(["Keys in memory", num(f.memory.cells), f.memory.overflowed > 0 ? "bad" : ""]);
  if (f.store) tiles.push(["Shared store", f.store.down ? "down" : "up", f.store.down ? "bad" : "good"]);
  sync($("tiles"), tiles, t => t[0], t => {
    const e = el("div");
    e.append(el("dt", "", t[0]), el("dd"));
    return e;
  }, (e, t) => { set(e.lastChild, t[1]); e.lastChild.className = t[2] || ""; });
}

function showLimits(f) {
  const known = f.limits.some(l => l.name === chosen);
  if (f.limits.length && !(known && byHand)) { // the first limit that has keys to show
    choose((f.limits.find(l => l.use && l.use.length || l.refusals && l.refusals.length) || f.limits[0]).name);
  }
  sync($("limits"), f.limits, l => l.name, l => {
    const e = el("button", "limit");
    e.type = "button";
    const name = el("div", "name");
    name.append(el("b", "", l.name), el("span"));
    const kind = el("div", "kind");
    kind.append(el("span"), el("span"));
    const chart = svg("svg", { viewBox: `0 0 ${kept} 40`, preserveAspectRatio: "none", "aria-hidden": "true" });
    for (const c of ["admitted", "refused", "shadow"]) chart.append(svg("path", { class: c }));
    const now = el("div", "now");
    for (const [c, word] of [["a", " admitted/s"], ["r", " refused/s"], ["s", " would refuse/s"]]) {
      const cell = el("span", c);
      cell.append(el("b"), word);
      now.append(cell);
    }
    e.append(name, kind, chart, now);
    e.addEventListener("click", () => { byHand = true; choose(l.name); });
    return e;
  }, (e, l) => {
    const [name, kind, chart, now] = e.children;
    e.setAttribute("aria-pressed", String(l.name === chosen));
    set(name.lastChild, l.rate + (String(l.capacity) === l.rate.split("/")[0] ? "" : ", burst " + l.capacity));
    const asked = l.total[0] + l.total[1] + l.total[2];
    set(kind.firstChild, (l.shadow ? "shadow, " : "") + (l.store === "memory" ? "" : l.store + ", ") + l.algorithm);
    const columns = past.get(l.name) || [[], [], []];
    const peak = draw(chart, columns);
    const share = asked ? 100 * (l.total[1] + l.total[2]) / asked : 0;
    set(kind.lastChild, "peak " + num(peak) + "/s, " + (share === 0 ? "0" : share < 0.1 ? "<0.1" : share.toFixed(1)) + " % refused");
    l.now.forEach((n, i) => {
      const cell = now.children[i];
      set(cell.firstChild, num(n));
      cell.classList.toggle("none", n === 0);
      cell.hidden = i === 1 && l.shadow || i === 2 && !l.shadow && l.total[2] === 0;
    });
  });
}

// draw puts admitted and refused on top of each other, and shadow refusals as a line. It says what the highest is.
function draw(chart, [admitted, refused, shadow]) {
  const n = admitted.length, peak = Math.max(0, ...admitted.map((a, i) => Math.max(a + refused[i], shadow[i])));
  const x = i => kept - n + i, y = v => (38 * (1 - v / (peak || 1)) + 1.5).toFixed(1);
  const line = values => values.map((v, i) => x(i) + " " + y(v) + "H" + (x(i) + 1)).join("L");
  const area = (top, bottom) => n ? "M" + line(top) + "L" + bottom.map((v, i) => (x(i) + 1) + " " + y(v) + "H" + x(i)).reverse().join("L") + "Z" : "";
  const both = admitted.map((a, i) => a + refused[i]);
  chart.children[0].setAttribute("d", area(admitted, admitted.map(() => 0)));
  chart.children[1].setAttribute("d", refused.some(v => v > 0) ? area(both, admitted) : "");
  chart.children[2].setAttribute("d", shadow.some(v => v > 0) ? "M" + line(shadow) : "");
  return peak;
}

function showChoice(f) {
  sync($("limit"), f.limits, l => l.name, l => {
    const o = el("option", "", l.name);
    o.value = l.name;
    return o;
  }, () => {});
  if ($("limit").value !== chosen) $("limit").value = chosen;
  set($("keylimit"), chosen);
}

function showKeys(f) {
  const l = f.limits.find(l => l.name === chosen);
  if (!l) return;
  const one = l.total[0] + l.total[1] > 0 && !(l.use || []).length && !(l.refusals || []).length;
  for (const list of ["use", "refusals"]) {
    const keys = l[list] || [], most = keys.length ? keys[0].count : 1;
    if (!keys.length) {
      sync($(list), [0], () => "", () => el("li", "empty", ""), e => set(e, one ? "everybody shares one key" : "none yet"));
      continue;
    }
    sync($(list), keys, k => l.name + " " + k.hash, k => {
      const e = el("li"), b = el("button");
      b.type = "button";
      b.append(el("i"), el("span"), el("b"));
      b.addEventListener("click", () => pick(l.name, k));
      e.append(b);
      return e;
    }, (e, k) => {
      const [bar, name, count] = e.firstChild.children;
      bar.style.width = (100 * k.count / most).toFixed(1) + "%";
      set(name, title(k));
      name.title = title(k);
      const doubt = k.over > 0 ? " −" + num(k.over) : "";
      if (count.dataset.n !== k.count + doubt) {
        count.dataset.n = k.count + doubt;
        count.replaceChildren(num(k.count));
        if (doubt) count.append(el("small", "", doubt));
      }
    });
  }
  const doubtful = ["use", "refusals"].some(list => (l[list] || []).some(k => k.over > 0));
  set($("keysnote"), "Counted since " + clock(f.window) + "." +
    (doubtful ? " 90 −5 is between 85 and 90: the rest may be other keys'." : "") +
    (l.missed ? " " + num(l.missed) + " charges were too many at once to be counted here." : "") +
    (f.clear ? "" : " Keys are hashed, as in the log; admin.show_keys names them."));
}

// title is a key as it is shown.
const title = k => k.hash && k.key === undefined ? "#" + k.hash : k.key === "" ? "(everybody)" : k.key;

function showHolds(f) {
  $("held").hidden = f.holds.length === 0;
  sync($("holds"), f.holds, h => h.limit + " " + h.every + h.hash, h => {
    const e = el("li"), b = el("button", "", "Release");
    b.type = "button";
    b.addEventListener("click", () => change("POST", path(h.limit, h.every ? null : h, "/hold", { for: "0" }), "released"));
    e.append(el("code"), el("span", "dim"), b);
    return e;
  }, (e, h) => {
    set(e.children[0], h.limit + " " + (h.every ? "all keys" : title(h)));
    set(e.children[1], span((h.until - f.now) / 1000));
  });
}

function rows(parent, items, id, cells) {
  sync(parent, items, id, item => {
    const e = el("tr");
    for (const _ of cells(item)) e.append(el("td"));
    return e;
  }, (e, item) => cells(item).forEach(([text, cls], i) => {
    set(e.children[i], text);
    e.children[i].className = cls || "";
  }));
}

const breakers = { closed: "good", "half-open": "warn", open: "bad" };
function showUpstreams(f) {
  rows($("upstreams"), f.upstreams, u => u.name, u => [
    [u.name], [u.state, breakers[u.state]], [num(u.rate), "n" + (u.rate ? "" : " zero")],
    [span(u.p50), "n" + (u.p50 < 0 ? " zero" : "")], [span(u.p95), "n" + (u.p95 < 0 ? " zero" : "")],
  ]);
}

function showRoutes(f) {
  const cell = (n, cls = "") => [num(n), "n " + (n ? cls : "zero")];
  rows($("routes"), f.routes, r => r.name, r => [
    [r.name === "none" ? "no route" : r.name, r.name === "none" ? "zero" : ""],
    cell(r.now[2]), cell(r.now[3]), cell(r.now[4]), cell(r.now[5], "bad"), cell(r.now[0]),
    r.queue ? [r.waiting + " of " + r.queue, "n" + (r.waiting ? " warn" : " zero")] : ["–", "n zero"],
  ]);
}

function showFacts(f) {
  const facts = [];
  if (f.memory) {
    const m = f.memory;
    facts.push(["Memory", num(m.cells) + " keys" + (m.max > 0 ? " of " + num(m.max) : ""), ""]);
    facts.push(["Charges on the shared cell", num(m.overflowed), m.overflowed ? "bad" : ""]);
  }
  if (f.store) {
    const s = f.store;
    facts.push(["Shared store", s.down ? "down for " + span((f.now - s.since) / 1000) : "up", s.down ? "bad" : "good"]);
    facts.push(["Decided there / here", num(s.shared) + " / " + num(s.local), s.local ? "warn" : ""]);
    facts.push(["Let through / denied without it", num(s.allowed) + " / " + num(s.denied), s.allowed || s.denied ? "warn" : ""]);
    facts.push(["Outages", num(s.outages), s.outages ? "warn" : ""]);
  }
  facts.push(["Decisions that failed", num(f.errors), f.errors ? "bad" : ""]);
  facts.push(["Reloads applied / refused", num(f.reloads.applied) + " / " + num(f.reloads.refused), f.reloads.refused ? "warn" : ""]);
  rows($("facts"), facts, x => x[0], x => [[x[0]], [x[1], x[2]]]);
}

// --- What is asked and changed ---

function choose(name) {
  if (chosen === name) return;
  chosen = name;
  forget();
  if (frame && byHand) { showLimits(frame); showChoice(frame); showKeys(frame); }
}

function forget() {
  looked = null;
  $("answer").hidden = true;
}

// path is where a key is, or a whole limit where there is none.
function path(limit, key, action, query = {}) {
  const q = new URLSearchParams(query);
  let p = "limits/" + encodeURIComponent(limit);
  if (key) p += "/" + encodeURIComponent(key.hash ?? key.text);
  if (key && key.hash) q.set("by", "hash");
  return p + action + (q.size ? "?" + q : "");
}

function pick(limit, k) {
  byHand = true;
  looked = { limit, hash: k.hash, title: title(k) };
  $("key").value = k.key ?? "";
  look(false);
  if (matchMedia("(max-width: 820px)").matches) $("panel").scrollIntoView({ block: "start" });
}

async function look(again) {
  const of = looked;
  if (!of) return;
  try {
    const res = await fetch(path(of.limit, of, ""));
    const told = await res.json();
    if (of !== looked) return; // another was chosen meanwhile
    if (!res.ok) {
      if (!again) { forget(); say(told.detail, "bad"); }
      return;
    }
    if (!again) say("", "");
    $("answer").hidden = false;
    set($("shown"), of.title);
    const left = $("left");
    left.max = told.capacity;
    left.low = told.capacity / 4;
    left.optimum = told.capacity;
    left.value = told.remaining;
    set($("said"), told.held > 0 ? "held for another " + span(told.held)
      : told.remaining + " of " + told.capacity + " left" + (told.retry_after > 0 ? ", the next in " + span(told.retry_after) : ""));
    $("said").className = told.held > 0 ? "bad" : told.allowed ? "good" : "warn";
  } catch {
    if (!again) say("no answer", "bad");
  }
}

function say(text, cls) {
  set($("result"), text);
  $("result").className = cls;
}

async function change(method, where, done) {
  const token = $("token").value.trim();
  if (!token) {
    say("give the admin token first", "warn");
    $("token").focus();
    return;
  }
  say("…", "dim");
  try {
    const res = await fetch(where, { method, headers: { Authorization: "Bearer " + token } });
    if (res.ok) say(done, "good");
    else if (res.status === 401) say("this is not the admin token", "bad");
    else say((await res.json()).detail, "bad");
  } catch {
    say("no answer", "bad");
  }
  look(true);
}

function withKey(f) {
  return () => looked ? f(looked) : say("look at a key first", "warn");
}

$("look").addEventListener("submit", e => {
  e.preventDefault();
  const text = $("key").value.trim();
  byHand = true;
  looked = { limit: chosen, text, title: title({ key: text }) };
  look(false);
});
$("limit").addEventListener("change", e => { byHand = true; choose(e.target.value); });
$("hold").addEventListener("click", withKey(k => {
  if (!k.hash && !k.text) return say("everybody shares this key: hold all keys instead", "warn");
  change("POST", path(k.limit, k, "/hold", { for: $("for").value }), "held for " + $("for").selectedOptions[0].text);
}));
$("release").addEventListener("click", withKey(k => {
  if (!k.hash && !k.text) return say("everybody shares this key: release all instead", "warn");
  change("POST", path(k.limit, k, "/hold", { for: "0" }), "released");
}));
$("reset").addEventListener("click", withKey(k => change("DELETE", path(k.limit, k, "") , "reset: it has everything again")));
$("holdall").addEventListener("click", () => {
  const long = $("for").selectedOptions[0].text;
  if (confirm("Let nobody pass the limit " + chosen + " for " + long + "?")) {
    change("POST", path(chosen, null, "/hold", { for: $("for").value }), "all keys held for " + long);
  }
});
$("releaseall").addEventListener("click", () => change("POST", path(chosen, null, "/hold", { for: "0" }), "released, but for keys held by themselves"));

set($("host"), location.host);
document.title = "weir " + location.host;
connect();
