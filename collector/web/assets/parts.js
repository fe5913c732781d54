// SPDX-License-Identifier: Apache-2.0
// Pieces that several views share: tables, verdicts, heat maps, badges.
import { h } from "/assets/dom.js";
import { ago, cause, count, duration, hours, moment, percent, residual } from "/assets/format.js";

export const link = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;
export const jobLink = (job, rank) => (rank === undefined ? link("jobs", job) : link("jobs", job, "ranks", rank));
export const nodeLink = (node) => link("nodes", node);
export const incidentLink = (i) => link("incidents", i.node, i.id);

export function badge(kind, text) {
  return h("span", { class: `badge ${kind}` }, text);
}

export function tile(name, value, note, kind) {
  return h("div", { class: `tile ${kind || ""}` }, h("dt", null, name), h("dd", null, value), note && h("dd", { class: "note" }, note));
}
export const tiles = (...t) => h("dl", { class: "tiles" }, t);

export function section(title, id, ...body) {
  return h("section", { class: "card", "aria-labelledby": `h-${id}`, "data-key": id }, h("h2", { id: `h-${id}` }, title), body);
}

export function empty(title, ...text) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), text.map((t) => h("p", null, t)));
}

// --- tables ---

const sorts = new Map();
export function toggleSort(id, col) {
  const now = sorts.get(id);
  sorts.set(id, { col, down: now && now.col === col ? !now.down : true });
}

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
}

// cols: [{name, cell(row), by(row)?, num?}]; by makes a column sortable. More than limit rows are said, not shown.
export function table({ id, caption, cols, rows, key, rowClass, limit = 500, small }) {
  const sort = sorts.get(id);
  let all = rows;
  if (sort && cols[sort.col]?.by) {
    const { by } = cols[sort.col];
    all = [...rows].sort((a, b) => (sort.down ? -1 : 1) * compare(by(a), by(b)));
  }
  const head = cols.map((c, i) => {
    const state = sort && sort.col === i ? (sort.down ? "descending" : "ascending") : null;
    return h("th", { scope: "col", class: c.num && "num", "aria-sort": state },
      c.by ? h("button", { type: "button", class: "sort", "data-act": "sort", "data-table": id, "data-col": i },
        c.name, h("span", { class: "arrow", "aria-hidden": "true" }, state === "descending" ? "▼" : state ? "▲" : "")) : c.name);
  });
  return h("div", { class: "scroll", "data-key": id }, h("table", { class: small ? "cards small" : "cards" },
    h("caption", { class: "sr" }, caption),
    h("thead", null, h("tr", null, head)),
    h("tbody", null, all.slice(0, limit).map((r) => h("tr", { "data-key": key(r), class: rowClass && rowClass(r) },
      cols.map((c) => h("td", { class: c.num && "num", "data-label": c.name }, c.cell(r))))))),
  all.length > limit && h("p", { class: "note" }, `${count(all.length - limit)} more rows are not shown; the API has them all.`));
}

export function meter(share, kind) {
  const v = Math.max(0, Math.min(1, share || 0));
  return h("span", { class: `meter ${kind || ""}`, "aria-hidden": "true" }, h("i", { style: { width: `${100 * v}%` } }));
}

// --- verdicts ---

export function explained(v) {
  return v.explained_share === null ? "share not known" : `explains ${percent(v.explained_share)}`;
}

export function who(v) {
  return v.rank === null ? v.rank_key : `rank ${v.rank}`;
}

export function verdictCard(v, now) {
  const open = v.state === "open";
  return h("article", { class: `verdict ${open ? "open" : "closed"}`, "data-key": `${v.job} ${v.rank_key} ${v.opened_at_ns}` },
    h("div", { class: "verdict-effect", "aria-hidden": "true" }, h("b", null, residual(1 + v.effect_pct / 100)),
      h("span", null, v.method === "gpu_clock" ? "slower GPU" : "self time")),
    h("div", { class: "verdict-text" },
      h("h3", null, open ? "Everybody waits for " : "Was waited for: ", h("a", { href: jobLink(v.job, v.rank_key) }, who(v)), " on ", h("a", { href: nodeLink(v.node) }, v.node)),
      h("p", { class: "verdict-cause" }, h("b", null, cause(v.cause)), v.cause_detail && ` · ${v.cause_detail}`),
      h("p", { class: "facts" },
        h("span", null, "job ", h("a", { href: jobLink(v.job) }, v.job)),
        h("span", null, `${residual(1 + v.effect_pct / 100)} against ${v.peers} peers`),
        h("span", null, explained(v), v.explained_share !== null && meter(v.explained_share)),
        h("span", null, `costs ${percent(v.impact_share, 1)} of each step`),
        h("span", null, `${hours(v.gpu_hours_lost)} GPU-hours lost`),
        h("span", null, open ? `since ${moment(v.since_ns)}` : `${moment(v.since_ns)} to ${moment(v.closed_at_ns)}, ${v.close_reason || "closed"}`),
        h("span", null, `seen with ${v.tier === "nvml" ? "NVML" : "eBPF"}`))));
}

export function stragglerTable(id, list, now) {
  return table({
    id, caption: "Stragglers", rows: list, key: (v) => `${v.job} ${v.rank_key} ${v.opened_at_ns}`,
    cols: [
      { name: "State", by: (v) => v.state, cell: (v) => (v.state === "open" ? badge("bad", "▲ open") : badge("quiet", v.close_reason || "closed")) },
      { name: "Rank", by: (v) => v.rank, cell: (v) => h("a", { href: jobLink(v.job, v.rank_key) }, who(v)) },
      { name: "Node", by: (v) => v.node, cell: (v) => h("a", { href: nodeLink(v.node) }, v.node) },
      { name: "Job", by: (v) => v.job, cell: (v) => h("a", { href: jobLink(v.job) }, v.job) },
      { name: "Effect", num: true, by: (v) => v.effect_pct, cell: (v) => h("b", null, residual(1 + v.effect_pct / 100)) },
      { name: "Cause", by: (v) => v.cause, cell: (v) => h("span", { class: "wrap" }, h("b", null, cause(v.cause)), h("span", { class: "sub" }, v.cause_detail)) },
      { name: "Explained", num: true, by: (v) => v.explained_share, cell: (v) => percent(v.explained_share) },
      { name: "Of the step", num: true, by: (v) => v.impact_share, cell: (v) => percent(v.impact_share, 1) },
      { name: "GPU-hours", num: true, by: (v) => v.gpu_hours_lost, cell: (v) => hours(v.gpu_hours_lost) },
      { name: "Since", by: (v) => v.since_ns, cell: (v) => moment(v.since_ns) },
      { name: "Lasted", num: true, by: (v) => (v.closed_at_ns || v.updated_at_ns) - v.since_ns, cell: (v) => duration((v.closed_at_ns || v.updated_at_ns) - v.since_ns) },
    ],
  });
}

// --- incidents ---

const SEVERITIES = { critical: ["bad", "◆"], high: ["bad", "▲"], error: ["bad", "▲"], medium: ["warn", "●"], warning: ["warn", "●"], warn: ["warn", "●"], low: ["info", "○"], info: ["info", "○"] };
export function severity(name) {
  const low = (name || "").toLowerCase();
  const [kind, sign] = Object.hasOwn(SEVERITIES, low) ? SEVERITIES[low] : ["quiet", "○"];
  return badge(kind, `${sign} ${low || "unknown"}`);
}

export function incidentTable(id, list, now) {
  return table({
    id, caption: "Incidents", rows: list, key: (i) => `${i.node} ${i.id}`,
    cols: [
      { name: "Severity", by: (i) => i.severity_number, cell: (i) => severity(i.severity) },
      { name: "State", by: (i) => i.state, cell: (i) => (i.state === "open" ? badge("warn", "open") : badge("quiet", "closed")) },
      { name: "Incident", by: (i) => i.title, cell: (i) => h("span", { class: "wrap" }, h("a", { href: incidentLink(i) }, i.title || i.kind || i.id),
        h("span", { class: "sub" }, [cause(i.cause), i.explained_share === null ? null : `explains ${percent(i.explained_share)}`].filter(Boolean).join(", "))) },
      { name: "Node", by: (i) => i.node, cell: (i) => h("a", { href: nodeLink(i.node) }, i.node) },
      { name: "Job, rank", by: (i) => i.job, cell: (i) => (i.job ? [h("a", { href: jobLink(i.job) }, i.job), i.rank === null ? "" : `, rank ${i.rank}`] : "–") },
      { name: "Count", num: true, by: (i) => i.count, cell: (i) => count(i.count) },
      { name: "Opened", by: (i) => i.opened_at_ns, cell: (i) => moment(i.opened_at_ns) },
      { name: "Last", by: (i) => i.last_change_at_ns, cell: (i) => ago(i.last_change_at_ns, now) },
    ],
  });
}

// --- the heat map ---

const STEPS = [[-0.15, "n3", "15 % faster or more"], [-0.08, "n2", "8 to 15 % faster"], [-0.03, "n1", "3 to 8 % faster"], [0.03, "z", "like its peers"],
  [0.08, "p1", "3 to 8 % slower"], [0.2, "p2", "8 to 20 % slower"], [0.4, "p3", "20 to 40 % slower"], [Infinity, "p4", "over 40 % slower"]];
function heatClass(ratio) {
  if (ratio === null || ratio === undefined) return "u";
  return STEPS.find(([limit]) => ratio - 1 < limit)[1];
}

const roving = new Map();
export function rememberCell(map, cell) {
  roving.set(map, cell);
}

// One entry per rank: of processes with one rank (a restarted one, workers that inherited its environment) the newest
// that has steps. The API lists them by rank, then by start.
export function current(ranks) {
  const best = new Map();
  for (const r of ranks) {
    const old = best.get(r.rank_key);
    if (!old || typeof r.self_time_ns === "number" || typeof old.self_time_ns !== "number") best.set(r.rank_key, r);
  }
  return [...best.values()];
}

const MAX_NODES = 256;
const DENSE = 160; // ranks: above, cells are small and without text

// Cells are ranks, boxes are nodes; those with the slowest ranks when not all fit.
export function heatMap(job, ranks, selected) {
  const nodes = new Map();
  for (const r of ranks) {
    if (!nodes.has(r.node)) nodes.set(r.node, []);
    nodes.get(r.node).push(r);
  }
  const worst = (list) => list.reduce((a, r) => Math.max(a, r.verdict ? 1e6 : r.self_time_ratio ?? 0), 0);
  let boxes = [...nodes];
  const left = boxes.length - MAX_NODES;
  if (left > 0) boxes = boxes.sort((a, b) => worst(b[1]) - worst(a[1])).slice(0, MAX_NODES);
  boxes.sort((a, b) => compare(a[0], b[0])); // so that a node keeps its place
  const shown = boxes.flatMap(([, list]) => list.map((r) => r.rank_key));
  const kept = roving.get(job);
  const first = shown.includes(kept) ? kept : selected ?? shown[0];
  return h("div", { class: ranks.length > DENSE ? "heat dense" : "heat", "data-key": `heat ${job}` },
    h("div", { class: "heat-map", role: "group", "data-heat": job, "aria-label": `Self time of the ranks of job ${job} against the median of their peers. Arrow keys move between ranks.` },
      boxes.map(([node, list]) => h("div", { class: "heat-node", "data-key": node },
        h("a", { class: "heat-name", href: nodeLink(node), title: node }, node),
        h("div", { class: "heat-cells" }, list.map((r) => {
          const v = r.verdict;
          const text = `${who(r)} on ${node}: ${r.self_time_ratio === null || r.self_time_ratio === undefined ? "not judged" : `self time ${residual(r.self_time_ratio)} against its peers`}${v ? `, straggler, ${cause(v.cause)}` : ""}`;
          return h("a", { class: `cell ${heatClass(r.self_time_ratio)} ${v ? "straggler" : ""} ${r.rank_key === selected ? "selected" : ""}`, href: jobLink(job, r.rank_key),
            "data-key": r.rank_key, "data-cell": r.rank_key, tabindex: r.rank_key === first ? 0 : -1, title: text, "aria-label": text, "aria-current": r.rank_key === selected ? "true" : null },
          h("span", { class: "cell-rank" }, v ? "▲ " : "", h("span", null, r.rank ?? r.rank_key)), h("span", { class: "cell-value" }, residual(r.self_time_ratio ?? null)));
        }))))),
    left > 0 && h("p", { class: "note" }, `The ${MAX_NODES} nodes with the slowest ranks; ${count(left)} more are not shown.`));
}

export function heatLegend() {
  return h("div", { class: "heat-legend" }, h("span", null, "Self time against the peers' median:"),
    STEPS.map(([, c, text]) => h("span", { class: "key" }, h("i", { class: `swatch cell ${c}` }), text)),
    h("span", { class: "key" }, h("i", { class: "swatch cell u" }), "not judged"),
    h("span", { class: "key" }, h("i", { class: "swatch cell straggler" }), "▲ straggler"));
}
