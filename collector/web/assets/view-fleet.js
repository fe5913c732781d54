// SPDX-License-Identifier: Apache-2.0
// The fleet: who is waited for, the heat map of each job, the nodes.
import { get, getKept } from "/assets/api.js";
import { h } from "/assets/dom.js";
import { ago, count, duration, hours, percent, plural } from "/assets/format.js";
import { badge, current, empty, heatLegend, heatMap, incidentLink, jobLink, nodeLink, section, severity, table, tile, tiles, verdictCard } from "/assets/parts.js";

const MAX_MAPS = 8;
const LARGE = 400; // nodes or ranks: lists are then fetched twice a minute
const SLOW_MS = 30000;

const urgent = (a, b) => b.stragglers_open - a.stragglers_open || Number(b.running) - Number(a.running) || (b.ranks_count || 0) - (a.ranks_count || 0);

export async function load(route, overview) {
  const slow = overview.nodes > LARGE ? SLOW_MS : 0;
  const [nodes, jobs, stragglers] = await Promise.all([getKept("nodes", slow), get("jobs"), get("stragglers?since=1s")]);
  const chosen = jobs.jobs.filter((j) => j.ranks_count > 0).sort(urgent).slice(0, MAX_MAPS);
  const details = await Promise.all(chosen.map((j) =>
    getKept(`jobs/${encodeURIComponent(j.job)}?windows=0`, j.ranks_count > LARGE ? SLOW_MS / 3 : 0).catch(() => null)));
  return { nodes: nodes.nodes, jobs: jobs.jobs, maps: details.filter(Boolean), open: stragglers.stragglers.filter((v) => v.state === "open") };
}

function quiet(o, jobs) {
  const unsure = jobs.filter((j) => j.running).flatMap((j) => j.groups).filter((g) => g.state !== "scored");
  if (o.verdict_state === "cannot_tell") {
    return h("article", { class: "verdict neutral" }, h("div", { class: "verdict-text" }, h("h3", null, "Nothing can be said yet"),
      h("p", null, jobs.length ? `${o.verdict_reason}.` : "No job was heard of. Ranks appear with their first collective.")));
  }
  return h("article", { class: "verdict fine" }, h("div", { class: "verdict-effect", "aria-hidden": "true" }, h("b", null, "✓")),
    h("div", { class: "verdict-text" }, h("h3", null, "Nobody is being waited for"),
      h("p", null, `No open straggler among ${plural(o.ranks, "rank")} of ${plural(o.jobs, "job")}.`,
        o.verdict_state === "partial" || unsure.length ? ` Not all can be judged now${o.verdict_reason ? `: ${o.verdict_reason}` : ""}.` : "")));
}

export function drops(node) {
  return Object.values(node.agent.drops).reduce((a, b) => a + b, 0);
}

export function nodeTable(nodes, now) {
  return table({
    id: "nodes", caption: "Nodes", rows: nodes, key: (n) => n.node, limit: 250, rowClass: (n) => !n.up && "down",
    cols: [
      { name: "Node", by: (n) => n.node, cell: (n) => h("a", { href: nodeLink(n.node) }, n.node) },
      { name: "State", by: (n) => Number(n.up), cell: (n) => (n.up ? badge("ok", "✓ up") : badge("bad", "✕ down")) },
      { name: "Last seen", by: (n) => n.last_seen_ns, cell: (n) => ago(n.last_seen_ns, now) },
      { name: "GPUs", num: true, by: (n) => n.gpus_count, cell: (n) => count(n.gpus_count) },
      { name: "Utilization", num: true, by: (n) => util(n), cell: (n) => percent(util(n)) },
      { name: "Processes", num: true, by: (n) => n.processes_count, cell: (n) => count(n.processes_count) },
      { name: "Incidents", num: true, by: (n) => n.incidents_count, cell: (n) => count(n.incidents_count) },
      { name: "Dropped", num: true, by: drops, cell: (n) => count(drops(n)) },
      { name: "Missing windows", num: true, by: (n) => n.agent.windows_missing, cell: (n) => count(n.agent.windows_missing) },
      { name: "Agent", by: (n) => n.agent.version, cell: (n) => n.agent.version || "–" },
    ],
  });
}

function util(n) {
  const u = n.gpus.map((g) => g.utilization).filter((v) => v !== null);
  return u.length ? u.reduce((a, b) => a + b, 0) / u.length : null;
}

export function render(d, route, o) {
  const now = o.now_ns;
  if (!o.nodes) {
    return h("div", { class: "view" }, h("h1", null, "Fleet"), empty("No node yet",
      "No agent has sent anything to this collector since it started.", "Start one on a GPU node: lanterne agent --collector ADDRESS:4317"));
  }
  const w = o.worst_incident;
  return h("div", { class: "view" },
    h("h1", null, "Fleet"),
    h("div", { class: "verdicts" }, d.open.length ? d.open.slice(0, 5).map((v) => verdictCard(v, now)) : quiet(o, d.jobs)),
    d.open.length > 5 && h("p", null, h("a", { href: "#/stragglers" }, `All ${count(d.open.length)} open stragglers`)),
    tiles(
      tile("Nodes up", `${count(o.nodes_up)} / ${count(o.nodes)}`, null, o.nodes_up < o.nodes && "bad"),
      tile("GPUs", count(o.gpus)), tile("Jobs", count(o.jobs), plural(o.ranks, "rank")),
      tile("Stragglers", count(o.stragglers_open), "open", o.stragglers_open > 0 && "bad"),
      tile("Incidents", count(o.incidents_open), "open", o.incidents_open > 0 && "warn"),
      tile("GPU-hours lost", hours(o.gpu_hours_lost), "to stragglers")),
    w && h("p", { class: "worst" }, severity(w.severity), " Worst open incident: ", h("a", { href: incidentLink(w) }, w.title || w.kind || w.id), ` on ${w.node}`),
    section("Ranks", "ranks",
      d.maps.length ? [heatLegend(), d.maps.map((j) => h("div", { class: "map", "data-key": j.job },
        h("h3", null, h("a", { href: jobLink(j.job) }, j.job),
          h("span", { class: "sub" }, `${count(j.ranks_count)} ${j.world_size === null ? "" : `of ${count(j.world_size)} `}ranks, step ${duration(j.step_time_ns)}${j.running ? "" : ", not running now"}`)),
        heatMap(j.job, current(j.ranks)))),
      d.jobs.length > d.maps.length && h("p", { class: "note" }, h("a", { href: "#/jobs" }, `All ${count(d.jobs.length)} jobs`))]
        : empty("No ranks yet", "A process becomes a rank with its first NCCL communicator or with RANK and WORLD_SIZE in its environment.")),
    section("Nodes", "nodes-list", nodeTable(d.nodes, now)));
}
export const title = () => "Fleet";
