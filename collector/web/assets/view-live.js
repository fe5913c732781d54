// SPDX-License-Identifier: Apache-2.0
// Operations as they run, one node, and what came in or was dropped.
import { get, getKept } from "/assets/api.js";
import { h } from "/assets/dom.js";
import { ago, bytes, count, duration, moment, percent, rate, throttle } from "/assets/format.js";
import { badge, empty, incidentTable, jobLink, nodeLink, section, stragglerTable, table, tile, tiles } from "/assets/parts.js";
import { drops } from "/assets/view-fleet.js";

// --- operations: rates from one answer to the next that differs ---

const before = new Map();
function withRates(path, d) {
  const total = d.ops.reduce((a, o) => a + o.calls, 0);
  const old = before.get(path);
  if (old && old.total !== total && d.now_ns > old.at) {
    const dt = (d.now_ns - old.at) / 1e9;
    const calls = new Map(old.ops.map((o) => [`${o.source} ${o.op}`, o.calls]));
    old.rates = new Map(d.ops.map((o) => [`${o.source} ${o.op}`, Math.max(0, o.calls - (calls.get(`${o.source} ${o.op}`) ?? o.calls)) / dt]));
  }
  if (!old || old.total !== total) before.set(path, { total, at: d.now_ns, ops: d.ops, rates: old?.rates });
  const rates = before.get(path).rates;
  return { ...d, ops: d.ops.map((o) => ({ ...o, per_s: rates?.get(`${o.source} ${o.op}`) ?? null })) };
}

function opsTable(id, ops) {
  return table({
    id, caption: "Operations", rows: ops, key: (o) => `${o.source} ${o.op}`,
    cols: [
      { name: "Operation", by: (o) => o.op, cell: (o) => h("code", null, o.op) },
      { name: "Source", by: (o) => o.source, cell: (o) => o.source },
      { name: "Calls/s", num: true, by: (o) => o.per_s, cell: (o) => rate(o.per_s) },
      { name: "Calls", num: true, by: (o) => o.calls, cell: (o) => count(o.calls) },
      { name: "Mean", num: true, by: (o) => o.mean_ns, cell: (o) => duration(o.mean_ns) },
      { name: "p50 ≤", num: true, by: (o) => o.p50_at_most_ns, cell: (o) => duration(o.p50_at_most_ns) },
      { name: "p99 ≤", num: true, by: (o) => o.p99_at_most_ns, cell: (o) => duration(o.p99_at_most_ns) },
      { name: "Time in calls", num: true, by: (o) => o.total_ns, cell: (o) => duration(o.total_ns) },
      { name: "Bytes", num: true, by: (o) => o.bytes, cell: (o) => (o.bytes ? bytes(o.bytes) : "–") },
      { name: "Errors", num: true, by: (o) => o.errors, cell: (o) => (o.errors ? badge("bad", count(o.errors)) : "0") },
      { name: "Nodes", num: true, by: (o) => o.nodes, cell: (o) => count(o.nodes) },
    ],
  });
}

export const ops = {
  title: () => "Live operations",
  async load(route, o) {
    const node = route.params.get("node");
    const path = node ? `ops?node=${encodeURIComponent(node)}` : "ops";
    const [d, nodes] = await Promise.all([get(path), o.nodes <= 400 ? getKept("nodes", 30000) : null]);
    return { ...withRates(path, d), names: nodes ? nodes.nodes.map((n) => n.node) : node ? [node] : [] };
  },
  render(d, route) {
    const source = route.params.get("source") || "", node = route.params.get("node") || "";
    const sources = [...new Set(d.ops.map((o) => o.source))].sort();
    const list = d.ops.filter((o) => !source || o.source === source);
    const sum = (f) => list.reduce((a, o) => a + (f(o) || 0), 0);
    return h("div", { class: "view" }, h("h1", null, "Live operations"),
      h("div", { class: "filters" },
        h("label", { class: "choice" }, "Node", h("select", { "data-act": "param", name: "node" }, h("option", { value: "", selected: !node }, "all nodes"), d.names.map((n) => h("option", { value: n, selected: n === node }, n)))),
        h("label", { class: "choice" }, "Source", h("select", { "data-act": "param", name: "source" }, h("option", { value: "", selected: !source }, "all sources"), sources.map((n) => h("option", { value: n, selected: n === source }, n))))),
      list.length ? [tiles(tile("Calls per second", list.some((o) => o.per_s !== null) ? rate(sum((o) => o.per_s)) : "–", "between two pushes"), tile("Calls", count(sum((o) => o.calls)), "since first seen"),
        tile("Errors", count(sum((o) => o.errors)), null, sum((o) => o.errors) > 0 && "warn"), tile("Operations", count(list.length))),
      h("div", { class: "card" }, opsTable("ops", list)),
      h("p", { class: "note" }, "Sums over processes that run and that ended. Percentiles are upper bounds of the buckets that the collector keeps; rates need two pushes.")]
        : empty("No operation seen", "CUDA, driver, graph and NCCL calls appear here with the first push of an agent."));
  },
};

// --- one node ---

export const node = {
  title: (route) => route.args[0],
  async load(route) {
    const q = encodeURIComponent(route.args[0]);
    const [n, o, i, v] = await Promise.all([get(`nodes/${q}`), get(`ops?node=${q}`), get(`incidents?node=${q}&since=1d`), get("stragglers?since=1d")]);
    return { node: n, ops: withRates(`ops?node=${q}`, o), incidents: i.incidents, stragglers: v.stragglers.filter((x) => x.node === n.node) };
  },
  render(d, route, o) {
    const n = d.node, a = n.agent;
    const lost = Object.entries(a.drops);
    return h("div", { class: "view" }, h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Fleet"), " / "),
      h("h1", null, n.node, " ", n.up ? badge("ok", "✓ up") : badge("bad", "✕ down")),
      tiles(tile("Last seen", ago(n.last_seen_ns, o.now_ns)), tile("GPUs", count(n.gpus_count)), tile("Processes", count(n.processes_count), `${count(a.traced_processes)} traced`),
        tile("Calls seen", count(a.calls_seen)), tile("Dropped", count(drops(n)), lost.map(([k, v]) => `${k.replace(/_/g, " ")} ${count(v)}`).join(", ") || null, drops(n) > 0 && "warn"),
        tile("Missing windows", count(a.windows_missing), null, a.windows_missing > 0 && "warn"),
        tile("Clock offset", n.clock_offset_ns ? `${n.clock_offset_ns < 0 ? "−" : "+"}${duration(Math.abs(n.clock_offset_ns))}` : "small", `± ${duration(n.clock_offset_uncertainty_ns)}`),
        tile("Agent", a.version || "–", a.rss_bytes > 0 ? `${bytes(a.rss_bytes)} memory, ${duration(a.cpu_seconds * 1e9)} CPU` : null)),
      d.stragglers.length > 0 && section("Stragglers", "stragglers", stragglerTable("node-stragglers", d.stragglers, o.now_ns)),
      section("GPUs", "gpus", n.gpus.length ? table({
        id: "gpus", caption: "GPUs", rows: [...n.gpus].sort((x, y) => x.uuid.localeCompare(y.uuid)), key: (g) => g.uuid,
        cols: [
          { name: "GPU", by: (g) => g.uuid, cell: (g) => h("span", { class: "wrap" }, h("b", null, g.model || "GPU"), h("span", { class: "sub" }, g.uuid)) },
          { name: "Utilization", num: true, by: (g) => g.utilization, cell: (g) => percent(g.utilization) },
          { name: "SM clock", num: true, by: (g) => g.sm_clock_hz, cell: (g) => (g.sm_clock_hz === null ? "–" : `${(g.sm_clock_hz / 1e6).toFixed(0)} MHz`) },
          { name: "Of its limit", num: true, cell: (g) => (g.sm_clock_max_hz ? percent(g.sm_clock_hz / g.sm_clock_max_hz) : "–") },
          { name: "Throttle", cell: (g) => throttle(g.throttle_reasons) },
          { name: "Memory", num: true, by: (g) => g.memory_used_bytes, cell: (g) => (g.memory_used_bytes === null ? "–" : `${bytes(g.memory_used_bytes)} / ${bytes(g.memory_total_bytes)}`) },
          { name: "Power", num: true, by: (g) => g.power_w, cell: (g) => (g.power_w === null ? "–" : `${g.power_w.toFixed(0)} W`) },
          { name: "Temperature", num: true, by: (g) => g.temperature_c, cell: (g) => (g.temperature_c === null ? "–" : `${g.temperature_c.toFixed(0)} °C`) },
          { name: "PCIe", cell: (g) => (g.pcie_width === null ? "–" : `gen ${g.pcie_generation ?? "?"} x${g.pcie_width} of x${g.pcie_width_max ?? "?"}`) },
          { name: "ECC", num: true, by: (g) => g.ecc_uncorrected, cell: (g) => (g.ecc_uncorrected === null ? "–" : count(g.ecc_uncorrected)) },
        ],
      }) : empty("No GPU reported", "The agent found no NVML on this node.")),
      section("Processes", "processes", n.processes.length ? table({
        id: "processes", caption: "Processes", rows: [...n.processes].sort((x, y) => (x.rank ?? 1e9) - (y.rank ?? 1e9) || x.pid - y.pid), key: (p) => `${p.pid} ${p.started_at_ns}`,
        cols: [
          { name: "Process", by: (p) => p.pid, cell: (p) => String(p.pid) }, { name: "Command", by: (p) => p.comm, cell: (p) => h("code", null, p.comm || "–") },
          { name: "Job", by: (p) => p.job, cell: (p) => (p.job ? h("a", { href: jobLink(p.job) }, p.job) : "–") },
          { name: "Rank", num: true, by: (p) => p.rank, cell: (p) => (p.rank === null ? "–" : String(p.rank)) },
          { name: "Started", by: (p) => p.started_at_ns, cell: (p) => moment(p.started_at_ns) }, { name: "Last seen", by: (p) => p.last_seen_ns, cell: (p) => ago(p.last_seen_ns, o.now_ns) },
        ],
      }) : empty("No process", "Nothing on this node uses CUDA now.")),
      d.incidents.length > 0 && section("Incidents of the last day", "incidents", incidentTable("node-incidents", d.incidents, o.now_ns)),
      d.ops.ops.length > 0 && section("Operations", "ops", opsTable("node-ops", d.ops.ops)));
  },
};

// --- health ---

const COUNTERS = {
  rejected_malformed: "malformed requests", rejected_forbidden: "refused: token of another cluster", rejected_points: "points rejected", rejected_busy: "refused: overload", rejected_disk: "refused: disk",
  rejected_draining: "refused: shutting down", spans_refused: "spans refused (traces are not stored)", windows_duplicate: "windows that came again",
  windows_late: "windows after their group was judged", windows_gap: "windows that never came", groups_abstained: "group windows without a judgement",
  refused_nodes: "refused: too many nodes", refused_processes: "refused: too many processes", refused_jobs: "refused: too many jobs",
  refused_ops: "refused: too many operations on a node", refused_groups: "refused: too many groups", verdicts_lost: "verdicts lost", failed_commits: "failed commits",
};
const BAD = /^(rejected_(?!draining)|refused_|verdicts_lost|failed_commits)/;

export const health = {
  title: () => "Health",
  async load(route, o) {
    const [d, nodes] = await Promise.all([get("ingest"), getKept("nodes", o.nodes > 400 ? 30000 : 0)]);
    return { ...d, nodes: nodes.nodes };
  },
  render(d, route, o) {
    const all = { ...d.ingest, ...d.fleet, ...d.store };
    const rows = Object.entries(COUNTERS).map(([k, text]) => ({ k, text, n: all[k] ?? 0 }));
    const some = rows.filter((r) => r.n > 0);
    const refused = rows.filter((r) => BAD.test(r.k)).reduce((a, r) => a + r.n, 0);
    const lost = Object.entries(d.agents.drops).map(([reason, n]) => ({ reason, n }));
    const dropped = lost.reduce((a, x) => a + x.n, 0);
    const losing = d.nodes.filter((n) => drops(n) > 0 || n.agent.windows_missing > 0).sort((a, b) => drops(b) - drops(a));
    return h("div", { class: "view" }, h("h1", null, "Health ", o.ready ? badge("ok", "✓ ready") : badge("bad", "✕ not ready")),
      o.not_ready.length > 0 && h("ul", { class: "notes" }, o.not_ready.map((r) => h("li", null, badge("bad", "not ready"), ` ${r}`))),
      tiles(tile("Requests", count(d.ingest.requests), `${count(d.ingest.acknowledged)} acknowledged`), tile("Data points", count(d.ingest.points_received)),
        tile("Log records", count(d.ingest.logs_received)), tile("Refused", count(refused), "requests and points", refused > 0 && "warn"),
        tile("Dropped by agents", count(dropped), `of ${count(d.agents.calls_seen)} calls seen`, dropped > 0 && "warn"),
        tile("Missing windows", count(d.agents.windows_missing), null, d.agents.windows_missing > 0 && "warn"),
        tile("Queue", count(d.store.queue_items), bytes(d.store.queue_bytes)),
        tile("Database", !d.store.writable ? "cannot write" : d.store.file_bytes ? bytes(d.store.file_bytes) : "writable", d.store.writable ? `${count(d.store.commits)} commits` : d.store.error, !d.store.writable && "bad")),
      section("Dropped by agents, by reason", "drops", lost.length ? table({
        id: "drops", caption: "Drops by reason", rows: lost, key: (x) => x.reason, small: true,
        cols: [{ name: "Reason", by: (x) => x.reason, cell: (x) => x.reason.replace(/_/g, " ") }, { name: "Records", num: true, by: (x) => x.n, cell: (x) => count(x.n) }],
      }) : empty("Nothing dropped", "Every agent stored everything it saw.")),
      losing.length > 0 && section("Nodes that lost something", "losing", table({
        id: "losing", caption: "Nodes that lost something", rows: losing, key: (n) => n.node, limit: 100,
        cols: [{ name: "Node", by: (n) => n.node, cell: (n) => h("a", { href: nodeLink(n.node) }, n.node) }, { name: "Dropped", num: true, by: drops, cell: (n) => count(drops(n)) },
          { name: "Missing windows", num: true, by: (n) => n.agent.windows_missing, cell: (n) => count(n.agent.windows_missing) },
          { name: "Reasons", cell: (n) => Object.entries(n.agent.drops).filter(([, v]) => v > 0).map(([k, v]) => `${k.replace(/_/g, " ")} ${count(v)}`).join(", ") || "–" }],
      })),
      section("Refused, late and out of the ordinary", "counters",
        some.length > 0 && table({
          id: "counters", caption: "Counters since start", rows: some, key: (r) => r.k, small: true,
          cols: [{ name: "What", by: (r) => r.text, cell: (r) => r.text }, { name: "Since start", num: true, by: (r) => r.n, cell: (r) => count(r.n) }],
        }),
        h("p", { class: "note" }, `None since start: ${rows.filter((r) => r.n === 0).map((r) => r.text).join(", ")}.`)),
      h("p", { class: "note" }, `lanterne-collector ${o.version}, up since ${moment(o.started_at_ns)}. The same numbers for machines: /metrics.`));
  },
};
