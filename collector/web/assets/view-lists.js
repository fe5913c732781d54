// SPDX-License-Identifier: Apache-2.0
// Stragglers and incidents, and one incident.
import { get } from "/assets/api.js";
import { splitBars } from "/assets/charts.js";
import { h } from "/assets/dom.js";
import { ago, cause, clock, count, duration, moment, percent } from "/assets/format.js";
import { badge, empty, incidentLink, incidentTable, jobLink, nodeLink, section, severity, stragglerTable, tile, tiles } from "/assets/parts.js";

const SINCE = [["15m", "15 minutes"], ["1h", "1 hour"], ["6h", "6 hours"], ["1d", "1 day"], ["1w", "1 week"], ["", "all that is kept"]];

// A choice that is part of the address; app.js puts it there.
function choice(name, label, options, value) {
  return h("label", { class: "choice" }, label, h("select", { "data-act": "param", name }, options.map(([v, text]) => h("option", { value: v, selected: v === value }, text))));
}
const param = (route, name, preset) => route.params.get(name) ?? preset;

export const stragglers = {
  title: () => "Stragglers",
  load(route) {
    const since = param(route, "since", "1d");
    return get(`stragglers${since ? `?since=${encodeURIComponent(since)}` : ""}`);
  },
  render(d, route, o) {
    const state = param(route, "state", "");
    const list = d.stragglers.filter((v) => !state || v.state === state);
    return h("div", { class: "view" }, h("h1", null, "Stragglers"),
      h("div", { class: "filters" }, choice("state", "Show", [["", "open and closed"], ["open", "open"], ["closed", "closed"]], state),
        choice("since", "Closed within", SINCE, param(route, "since", "1d"))),
      list.length ? h("div", { class: "card" }, stragglerTable("stragglers", list, o.now_ns))
        : empty("No straggler", "Nobody was waited for in this time. Ranks are named after at least four windows with 8 % more self time than their peers."));
  },
};

export const incidents = {
  title: () => "Incidents",
  async load(route) {
    const q = new URLSearchParams();
    for (const name of ["severity", "node"]) if (param(route, name, "")) q.set(name, param(route, name, ""));
    if (param(route, "since", "1d")) q.set("since", param(route, "since", "1d"));
    return get(`incidents?${q}`);
  },
  render(d, route, o) {
    const node = param(route, "node", "");
    return h("div", { class: "view" }, h("h1", null, "Incidents"),
      h("div", { class: "filters" },
        choice("severity", "Severity", [["", "all"], ["CRITICAL", "critical"], ["HIGH", "high"], ["MEDIUM", "medium"], ["LOW", "low"]], param(route, "severity", "")),
        choice("since", "Changed within", SINCE, param(route, "since", "1d")),
        node && h("span", { class: "choice" }, `Node ${node} `, h("button", { type: "button", "data-act": "clear", name: "node" }, "show all nodes"))),
      d.incidents.length ? [lanes(d.incidents, o.now_ns), h("div", { class: "card", "data-key": "table" }, incidentTable("incidents", d.incidents, o.now_ns))]
        : empty("No incident", "Agents report slow or failed calls, memory pressure and hangs here when they find them."),
      d.truncated && h("p", { class: "note" }, "Only the newest 1,000 are shown."));
  },
};

// One row per incident on a common axis of time.
function lanes(list, now) {
  const shown = list.slice(0, 40);
  const first = shown.reduce((a, i) => Math.min(a, i.opened_at_ns), now);
  const last = shown.reduce((a, i) => Math.max(a, i.closed_at_ns || i.last_change_at_ns), first + 1e9);
  const end = shown.some((i) => i.state === "open") ? Math.max(last, now) : last;
  const span = end - first || 1;
  return h("section", { class: "card", "aria-label": "Incidents over time", "data-key": "lanes" }, h("h2", null, "Over time"),
    h("div", { class: "lanes" }, shown.map((i) => {
      const until = i.state === "open" ? end : i.closed_at_ns;
      return h("a", { class: "lane", href: incidentLink(i), "data-key": `${i.node} ${i.id}` }, h("span", { class: "lane-name" }, i.title || i.kind || i.id),
        h("span", { class: "lane-track" }, h("i", { class: `lane-bar ${i.state}`, style: { left: `${(100 * (i.opened_at_ns - first)) / span}%`, width: `${Math.max(0.6, (100 * (until - i.opened_at_ns)) / span)}%` } })));
    })),
    h("div", { class: "lane-axis" }, h("span", null, moment(first)), h("span", null, moment(end))));
}

// --- one incident ---

function parse(text) {
  if (!text) return null;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const isObject = (v) => v !== null && typeof v === "object" && !Array.isArray(v);
const isSplit = (k, v) => /split|parts/.test(k) && !/excess/.test(k) && isObject(v) && Object.values(v).length > 0 && Object.values(v).every((x) => typeof x === "number");
const isStack = (k, v) => /stack|frames/.test(k) && Array.isArray(v);
const isTimeline = (k, v) => /timeline|chain|events|calls_before/.test(k) && Array.isArray(v) && v.length > 0 && v.every(isObject);

function frame(f) {
  if (!isObject(f)) return String(f);
  const name = f.function || f.symbol || f.name || "?";
  const place = f.file ? ` (${f.file}${f.line ? `:${f.line}` : ""})` : f.module ? ` [${f.module}]` : "";
  return name + place;
}

function scalar(key, v) {
  if (typeof v !== "number") return String(v);
  if (/_at_ns$|^(at|time|t)_ns$/.test(key)) return v > 1e15 ? moment(v) : duration(v);
  if (/_ns$/.test(key)) return duration(v);
  if (/share|ratio|pressure/.test(key)) return percent(v, 1);
  return Number.isInteger(v) ? v.toLocaleString("en") : String(v);
}
const label = (k) => k.replace(/_(at_)?ns$/, (m) => (m === "_at_ns" ? " at" : "")).replace(/_/g, " ");

function tree(v, depth = 0) {
  if (depth > 6) return h("span", null, "…");
  if (Array.isArray(v)) return v.length ? h("ol", { class: "tree" }, v.slice(0, 200).map((x) => h("li", null, tree(x, depth + 1)))) : "none";
  if (!isObject(v)) return String(v);
  return h("dl", { class: "tree" }, Object.entries(v).slice(0, 200).map(([k, x]) =>
    h("div", null, h("dt", null, label(k)), h("dd", null, x !== null && typeof x === "object" ? tree(x, depth + 1) : x === null ? "–" : scalar(k, x)))));
}

function timeline(i, events) {
  const rows = [[i.opened_at_ns, "Opened", i.title || i.kind]];
  for (const e of events) {
    // Times that are no Unix times count from the opening.
    const given = e.at_ns ?? e.time_ns ?? e.t_ns;
    const at = typeof given !== "number" ? null : given > 1e15 ? given : i.opened_at_ns + given;
    const text = e.text || e.title || e.event || e.what || e.op || e.kind || JSON.stringify(e);
    const took = typeof e.duration_ns === "number" ? `, ${duration(e.duration_ns)}` : "";
    rows.push([at, "", `${text}${took}${e.result ? `, result ${e.result}` : ""}`]);
  }
  if (i.count > 1) rows.push([i.last_change_at_ns, "Seen again", `${count(i.count)} times so far`]);
  if (i.closed_at_ns) rows.push([i.closed_at_ns, "Closed", `after ${duration(i.closed_at_ns - i.opened_at_ns)}`]);
  rows.sort((a, b) => (a[0] ?? i.opened_at_ns) - (b[0] ?? i.opened_at_ns));
  const near = (at) => at !== i.opened_at_ns && Math.abs(at - i.opened_at_ns) < 2e9;
  const when = (at) => (at === null ? "" : near(at) ? `${at < i.opened_at_ns ? "−" : "+"}${duration(Math.abs(at - i.opened_at_ns))}` : clock(at));
  return h("ol", { class: "timeline" }, rows.map(([at, head, text]) =>
    h("li", null, h("span", { class: "when" }, when(at)), h("span", null, head && h("b", null, `${head}: `), text))));
}

export const incident = {
  title: () => "Incident",
  async load(route) {
    const [node, id] = route.args;
    const d = await get(`incidents?node=${encodeURIComponent(node)}`);
    return { incident: d.incidents.find((i) => i.id === id) };
  },
  render(d, route, o) {
    const i = d.incident;
    const crumbs = h("p", { class: "crumbs" }, h("a", { href: "#/incidents" }, "Incidents"), " / ");
    if (!i) return h("div", { class: "view" }, crumbs, h("h1", null, "Incident"), empty("No such incident", "It is not among those the collector keeps in memory (the last 4,096)."));
    const evidence = parse(i.evidence_json);
    const fields = isObject(evidence) ? Object.entries(evidence) : [];
    const splits = fields.filter(([k, v]) => isSplit(k, v)), stacks = fields.filter(([k, v]) => isStack(k, v));
    const events = fields.filter(([k, v]) => isTimeline(k, v) && !isStack(k, v));
    const used = new Set([...splits, ...stacks, ...events].map(([k]) => k));
    // A time in two forms is shown once.
    const rest = fields.filter(([k]) => !used.has(k) && !(k.endsWith("_ns") && typeof evidence[k.slice(0, -3)] === "string"));
    return h("div", { class: "view" }, crumbs,
      h("h1", null, i.title || i.kind || i.id, " ", severity(i.severity), " ", i.state === "open" ? badge("warn", "open") : badge("quiet", "closed")),
      tiles(tile("Root cause", cause(i.cause)), tile("Explained", percent(i.explained_share), "of the excess"),
        tile("Seen", count(i.count), i.count === 1 ? "time" : "times"), i.closed_at_ns ? tile("Lasted", duration(i.closed_at_ns - i.opened_at_ns)) : tile("Open for", duration(o.now_ns - i.opened_at_ns), `last seen ${ago(i.last_change_at_ns, o.now_ns)}`),
        tile("Where", h("a", { href: nodeLink(i.node) }, i.node), i.pid ? `process ${i.pid}` : null),
        i.job && tile("Job", h("a", { href: jobLink(i.job) }, i.job), i.rank === null ? null : h("a", { href: jobLink(i.job, String(i.rank)) }, `rank ${i.rank}`))),
      section("Timeline", "timeline", timeline(i, events.flatMap(([, v]) => v))),
      splits.length > 0 && section("Measured split", "split", splitBars({ id: "split", title: "Where the time went", what: "Part", rows: splits.map(([k, v]) => ({ name: SPLITS[k] || label(k), parts: strip(v) })) })),
      stacks.map(([k, v]) => section(k === "stack" ? "Stack" : label(k), `stack-${k}`, h("ol", { class: "stack" }, v.map((f) => h("li", null, frame(f)))))),
      section("Evidence", "evidence", rest.length ? tree(Object.fromEntries(rest)) : typeof evidence === "string" ? h("pre", null, evidence)
        : Array.isArray(evidence) ? tree(evidence) : h("p", { class: "note" }, fields.length ? "All of it is shown above." : "The agent sent none.")),
      h("p", { class: "note" }, `Kind ${i.kind || "–"}, id ${i.id}. On the node: lanterne explain --last 1`));
  },
};

const SPLITS = { split_ns: "now", usual_split_ns: "as usual" };

// {"run_queue_ns": 1} as {"run_queue": 1}.
function strip(parts) {
  return Object.fromEntries(Object.entries(parts).map(([k, v]) => [k.replace(/_ns$/, ""), v]));
}
