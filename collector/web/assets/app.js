// SPDX-License-Identifier: Apache-2.0
// Routes, refresh, theme, token: everything around the views.
import { get, hasToken, setToken } from "/assets/api.js";
import { listen as listenCharts, restore } from "/assets/charts.js";
import { h, morph, say } from "/assets/dom.js";
import { clock, count } from "/assets/format.js";
import { empty, rememberCell, toggleSort } from "/assets/parts.js";
import * as fleet from "/assets/view-fleet.js";
import * as job from "/assets/view-job.js";
import { incident, incidents, stragglers } from "/assets/view-lists.js";
import { health, node, ops } from "/assets/view-live.js";

const REFRESH_MS = 5000;
const $ = (id) => document.getElementById(id);
const main = $("main");

const VIEWS = [
  ["Fleet", "", (o) => 0], ["Jobs", "jobs", (o) => 0], ["Stragglers", "stragglers", (o) => o.stragglers_open], ["Incidents", "incidents", (o) => o.incidents_open],
  ["Operations", "ops", (o) => 0], ["Health", "health", (o) => (o.ready ? 0 : o.not_ready.length)],
];

// "#/jobs/NAME/ranks/3?since=1h" as {name, args, params, view}; args are decoded.
function parseRoute() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  let parts;
  try {
    parts = path.split("/").filter((p) => p !== "").map(decodeURIComponent);
  } catch {
    parts = ["?"];
  }
  const [name = "", ...args] = parts;
  const route = { name, args, params: new URLSearchParams(query), path, view: null };
  const n = args.length;
  if (name === "" && n === 0) route.view = fleet;
  else if (name === "jobs" && n === 0) route.view = job.list;
  else if (name === "jobs" && (n === 1 || (n === 3 && args[1] === "ranks"))) route.view = job;
  else if (name === "nodes" && n === 1) route.view = node;
  else if (name === "nodes" && n === 0) (route.view = fleet), (route.name = "");
  else if (name === "stragglers" && n === 0) route.view = stragglers;
  else if (name === "incidents" && n === 0) route.view = incidents;
  else if (name === "incidents" && n === 2) route.view = incident;
  else if (name === "ops" && n === 0) route.view = ops;
  else if (name === "health" && n === 0) route.view = health;
  return route;
}

const state = { route: parseRoute(), overview: null, data: null, paused: false, timer: 0, run: 0, at: 0, failing: "" };

// --- drawing ---

function drawNav() {
  const { route, overview: o } = state;
  const nav = h("nav", { id: "nav", "aria-label": "Views" }, VIEWS.map(([name, path, number]) => {
    const n = o ? number(o) : 0;
    return h("a", { href: `#/${path}`, "aria-current": route.name === path ? "page" : null, "data-key": path || "fleet" }, name,
      n > 0 && h("span", { class: "bubble", "aria-label": `${count(n)} open` }, count(n)));
  }));
  morph($("nav"), nav);
}

function drawFresh() {
  const kind = state.failing ? "stale" : state.paused ? "held" : "live";
  const text = state.failing ? "not current" : state.paused ? "paused" : "live";
  morph($("fresh"), h("span", { id: "fresh", class: `fresh ${kind}` }, h("i", { "aria-hidden": "true" }), text,
    state.at > 0 && h("span", { class: "fresh-time" }, ` ${clock(state.at * 1e6)}`)));
  const pause = $("pause");
  pause.textContent = state.paused ? "Resume" : "Pause";
  pause.setAttribute("aria-pressed", String(state.paused));
}

function drawAlert() {
  const text = state.failing ? `${state.failing}${state.at ? ` Shown is the state of ${clock(state.at * 1e6)}.` : ""} Trying again.` : "";
  if ($("alert").textContent !== text) $("alert").replaceChildren(...(text ? [h("p", null, text)] : []));
}

function place(view) {
  if (main.firstElementChild) morph(main.firstElementChild, view);
  else main.append(view);
}

function draw() {
  const { route, data, overview } = state;
  drawNav();
  drawFresh();
  drawAlert();
  if (!data || !overview) return;
  const style = getComputedStyle(main);
  const width = main.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - (innerWidth < 700 ? 26 : 42);
  place(route.view.render(data, route, overview, Math.max(260, width)));
  restore(main);
  const n = overview.stragglers_open;
  document.title = `${n ? `(${n}) ` : ""}${route.view.title(route)} · Lanterne`;
  morph($("foot"), h("footer", { id: "foot" }, `Lanterne ${overview.version} · windows of ${overview.window_ns / 1e9} s`));
}

function drawMessage(title, text) {
  place(h("div", { class: "view" }, empty(title, text)));
  drawNav();
}

// --- refresh ---

async function refresh(moved) {
  clearTimeout(state.timer);
  const run = ++state.run;
  const route = state.route;
  if (!route.view) {
    drawMessage("No such view", "The address names nothing on this page.");
    return;
  }
  try {
    const overview = await get("overview");
    const data = await route.view.load(route, overview);
    if (run !== state.run) return;
    const news = state.overview && overview.stragglers_open !== state.overview.stragglers_open;
    Object.assign(state, { overview, data, at: Date.now(), failing: "" });
    draw();
    if (news) say(`${count(overview.stragglers_open)} open stragglers`);
    if (moved) arrived();
  } catch (e) {
    if (run !== state.run) return;
    if (e.status === 401) {
      ask();
      return;
    }
    if (e.status === 404) {
      state.data = null;
      drawMessage("Not found", `${e.message}: it may have ended or never been here.`);
      state.failing = "";
    } else {
      state.failing = e.status ? `The collector answered: ${e.message}.` : e.message === undefined ? "Something failed." : `${e.message.charAt(0).toUpperCase()}${e.message.slice(1)}.`;
      if (e.status === undefined) console.error(e);
      if (!state.data) drawMessage("Nothing to show", state.failing);
    }
    drawFresh();
    drawAlert();
  }
  schedule();
}

function schedule() {
  clearTimeout(state.timer);
  if (!state.paused && !document.hidden) state.timer = setTimeout(refresh, REFRESH_MS);
}

// After a change of the view: the top of it, and its heading for screen readers.
function arrived() {
  scrollTo(0, 0);
  $("nav").querySelector("[aria-current]")?.scrollIntoView({ inline: "nearest", block: "nearest" });
  say(main.querySelector("h1")?.textContent || "");
}

addEventListener("hashchange", () => {
  const old = state.route;
  state.route = parseRoute();
  const same = old.view === state.route.view && old.args[0] === state.route.args[0];
  if (!same) {
    state.data = null;
    place(h("div", { class: "view", "data-key": location.hash }, h("p", { class: "empty" }, "Loading …")));
  }
  drawNav();
  refresh(!same);
});

document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(state.timer);
  else if (!state.paused && !$("token-box").open) refresh();
});

let resizing = 0;
addEventListener("resize", () => {
  cancelAnimationFrame(resizing);
  resizing = requestAnimationFrame(draw);
});

// --- token ---

function ask() {
  if ($("token-box").open) return;
  $("token-note").textContent = hasToken() ? "The token was not accepted. It is the content of the collector's token file."
    : "It is the content of the collector's token file. It stays in this tab and is forgotten when the tab is closed.";
  drawMessage("Not signed in", "The collector asks for a token.");
  $("token").value = "";
  $("token-box").showModal();
}

$("token-box").addEventListener("cancel", (e) => e.preventDefault());
$("token-form").addEventListener("submit", (e) => {
  e.preventDefault();
  setToken($("token").value.trim());
  $("token").value = "";
  $("token-box").close();
  refresh();
});

// --- theme ---

const THEMES = ["auto", "light", "dark"];
function drawTheme() {
  const t = document.documentElement.dataset.theme || "auto";
  $("theme").replaceChildren(h("span", { class: "wide" }, "Theme: "), t);
}
function nextTheme() {
  const t = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme || "auto") + 1) % THEMES.length];
  if (t === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = t;
  try {
    localStorage.setItem("lanterne-theme", t);
  } catch {
    // The choice lasts until the page is left.
  }
  drawTheme();
}

// --- hands ---

function setParam(name, value) {
  const params = new URLSearchParams(state.route.params);
  params.set(name, value);
  location.hash = `#/${state.route.path}?${params}`;
}

const ACTS = {
  skip: () => main.focus(),
  theme: nextTheme,
  pause() {
    state.paused = !state.paused;
    drawFresh();
    if (state.paused) clearTimeout(state.timer);
    else refresh();
  },
  sort(el) {
    toggleSort(el.dataset.table, Number(el.dataset.col));
    draw();
  },
  clear: (el) => setParam(el.name, ""),
};

document.addEventListener("click", (e) => {
  const el = e.target.closest("button[data-act]");
  if (el && Object.hasOwn(ACTS, el.dataset.act)) ACTS[el.dataset.act](el);
});
document.addEventListener("change", (e) => {
  if (e.target.dataset?.act === "param") setParam(e.target.name, e.target.value);
});

// Arrow keys in a heat map: to the neighbour in that direction on the screen.
function neighbour(cells, from, key) {
  const i = cells.indexOf(from);
  if (key === "ArrowRight") return cells[i + 1];
  if (key === "ArrowLeft") return cells[i - 1];
  if (key === "Home") return cells[0];
  if (key === "End") return cells[cells.length - 1];
  const a = from.getBoundingClientRect();
  const sign = key === "ArrowDown" ? 1 : -1;
  let best = null, least = Infinity;
  for (const c of cells) {
    const b = c.getBoundingClientRect();
    const dy = sign * (b.top - a.top);
    const far = dy * 4 + Math.abs(b.left - a.left);
    if (dy > a.height / 2 && far < least) (best = c), (least = far);
  }
  return best;
}
main.addEventListener("keydown", (e) => {
  const cell = e.target.closest("[data-cell]");
  if (!cell || e.ctrlKey || e.altKey || e.metaKey || !["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Home", "End"].includes(e.key)) return;
  const map = cell.closest("[data-heat]");
  const to = neighbour([...map.querySelectorAll("[data-cell]")], cell, e.key);
  e.preventDefault();
  if (!to) return;
  cell.tabIndex = -1;
  to.tabIndex = 0;
  rememberCell(map.dataset.heat, to.dataset.cell);
  to.focus();
});

listenCharts(main);
drawTheme();
drawNav();
refresh();
