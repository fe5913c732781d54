// SPDX-License-Identifier: Apache-2.0
// Jobs, and one job: self time of a rank against its peers over time, where the time went, who is slow and what it costs.
import { get } from "/assets/api.js";
import { lineChart, splitBars } from "/assets/charts.js";
import { h } from "/assets/dom.js";
import { ago, cause, count, duration, groupState, hours, median, percent, residual, throttle } from "/assets/format.js";
import { badge, current, empty, heatLegend, heatMap, jobLink, nodeLink, section, table, tile, tiles, verdictCard, who } from "/assets/parts.js";

const MANY = 128; // ranks: above, only the chosen one comes with its history

export const list = {
  load: () => get("jobs"),
  title: () => "Jobs",
  render: (d, route, o) => h("div", { class: "view" }, h("h1", null, "Jobs"),
    d.jobs.length ? h("div", { class: "card" }, table({
      id: "jobs", caption: "Jobs", rows: d.jobs, key: (j) => j.job,
      cols: [
        { name: "Job", by: (j) => j.job, cell: (j) => h("a", { href: jobLink(j.job) }, j.job) },
        { name: "State", by: (j) => Number(j.running), cell: (j) => (j.running ? badge("ok", "running") : badge("quiet", `last seen ${ago(j.last_seen_ns, o.now_ns)}`)) },
        { name: "Stragglers", num: true, by: (j) => j.stragglers_open, cell: (j) => (j.stragglers_open ? badge("bad", `▲ ${count(j.stragglers_open)}`) : "0") },
        { name: "Ranks", num: true, by: (j) => j.ranks_count, cell: (j) => `${count(j.ranks_count)}${j.world_size === null ? "" : ` / ${count(j.world_size)}`}` },
        { name: "Step", num: true, by: (j) => j.step_time_ns, cell: (j) => duration(j.step_time_ns) },
        { name: "GPU-hours lost", num: true, by: (j) => j.gpu_hours_lost, cell: (j) => hours(j.gpu_hours_lost) },
        { name: "Judgement", cell: (j) => [...new Set(j.groups.map((g) => groupState(g.state).name))].join(", ") || "–" },
      ],
    })) : empty("No job yet", "A job appears with the first process that has a rank.")),
};

function choose(ranks, wanted) {
  const named = ranks.find((r) => r.rank_key === wanted);
  if (named || wanted !== undefined) return named;
  const open = ranks.filter((r) => r.verdict).sort((a, b) => b.verdict.impact_share - a.verdict.impact_share)[0];
  return open || [...ranks].sort((a, b) => (b.self_time_ratio ?? 0) - (a.self_time_ratio ?? 0))[0];
}

export async function load(route) {
  const path = `jobs/${encodeURIComponent(route.args[0])}`;
  const known = loaded.get(route.args[0]);
  const many = known === undefined || known > MANY;
  let job = await get(many ? `${path}?windows=0` : path);
  loaded.set(job.job, job.ranks_count);
  if (many && job.ranks_count <= MANY) job = await get(path);
  job.ranks = current(job.ranks);
  const chosen = choose(job.ranks, route.args[2]);
  if (chosen && job.ranks_count > MANY) {
    const one = await get(`${path}?rank=${encodeURIComponent(chosen.rank_key)}`);
    chosen.windows = one.ranks.find((r) => r.pid === chosen.pid && r.node === chosen.node)?.windows ?? [];
  }
  const past = await get("stragglers?since=6h");
  return { job, chosen, past: past.stragglers.filter((v) => v.job === job.job && v.state === "closed") };
}
const loaded = new Map();

// Per slot: own self time, the median of the peers (which is own over ratio), and the range of the others.
function series(job, r) {
  const others = job.ranks.filter((x) => x !== r && x.peer_group === r.peer_group);
  const range = new Map();
  for (const x of others) {
    for (const w of x.windows) {
      if (w.self_time_ns === null) continue;
      const v = range.get(w.slot);
      if (v) (v[0] = Math.min(v[0], w.self_time_ns)), (v[1] = Math.max(v[1], w.self_time_ns)), v[2].push(w.self_time_ns);
      else range.set(w.slot, [w.self_time_ns, w.self_time_ns, [w.self_time_ns]]);
    }
  }
  const own = [], peers = [], band = [], step = [];
  for (const w of r.windows) {
    const v = range.get(w.slot);
    own.push([w.end_ns, w.self_time_ns]);
    step.push([w.end_ns, w.step_time_ns]);
    peers.push([w.end_ns, w.self_time_ratio && w.self_time_ns ? w.self_time_ns / w.self_time_ratio : v ? median(v[2]) : null]);
    if (v && v[2].length > 1) band.push([w.end_ns, v[0], v[1]]);
  }
  return { own, peers, band, step };
}

// Median of the peers for each part, from their newest windows.
function peerSplit(job, r) {
  const others = job.ranks.filter((x) => x !== r && x.peer_group === r.peer_group && x.split_ns);
  const names = new Set(others.flatMap((x) => Object.keys(x.split_ns)));
  const parts = {};
  for (const p of names) parts[p] = median(others.map((x) => x.split_ns[p] || 0));
  return { n: others.length, parts, wait: median(others.map((x) => x.peer_wait_ns || 0)) };
}

function rankPart(job, r, width) {
  const { own, peers, band, step } = series(job, r);
  const name = who(r);
  const split = peerSplit(job, r);
  const wide = width > 1000 ? Math.floor((width - 20) / 2) : width;
  const marks = r.verdict ? [{ at: r.verdict.since_ns, text: "slow since" }] : [];
  return section(`${name.charAt(0).toUpperCase()}${name.slice(1)} on ${r.node}`, "rank",
    h("p", { class: "facts" },
      h("span", null, "self time ", h("b", null, duration(r.self_time_ns))), h("span", null, `${residual(r.self_time_ratio)} against its peers`),
      h("span", null, `waits ${duration(r.peer_wait_ns)} for peers`), h("span", null, `steps cover ${percent(r.coverage)} of the window`),
      h("span", null, `GPU clock ${percent(r.gpu_clock_ratio)} of its limit`), h("span", null, `throttle: ${throttle(r.gpu_throttle_reasons)}`),
      h("span", null, `process ${r.pid}`), h("span", null, h("a", { href: nodeLink(r.node) }, r.node))),
    h("div", { class: "charts" },
      lineChart({ id: "self", title: "Self time per step", width: wide, marks, band, bandName: "range of the peers",
        lines: [{ name: name, cls: "l-own", points: own }, { name: "peers' median", cls: "l-peers", points: peers }] }),
      lineChart({ id: "step", title: "Step time", width: wide, marks, lines: [{ name: "step", cls: "l-step", points: step }] })),
    r.split_ns && splitBars({ id: "split", title: "Where a step goes, newest window",
      rows: [{ name, parts: r.split_ns, wait: r.peer_wait_ns }, ...(split.n ? [{ name: "peers' median", parts: split.parts, wait: split.wait }] : [])] }));
}

function notes(job) {
  const out = [];
  for (const g of job.groups) {
    const { name, text } = groupState(g.state);
    if (g.state !== "scored") out.push([name, g.note || text, g.name]);
    else if (g.note) out.push([name, g.note, g.name]);
  }
  if (job.coverage !== null && job.coverage < 1) out.push(["coverage", `Only ${count(job.ranks_count)} of ${count(job.world_size)} ranks are seen: are all nodes traced?`, ""]);
  if (!job.running) out.push(["not running", "Nothing came from this job for three windows.", ""]);
  return out.length ? h("ul", { class: "notes", "aria-label": "Notes" }, out.map(([name, text, group]) =>
    h("li", null, badge("warn", name), ` ${text}`, group && job.groups.length > 1 && h("span", { class: "sub" }, group)))) : null;
}

function rankTable(job, chosen) {
  return table({
    id: "job-ranks", caption: "Ranks", rows: job.ranks, key: (r) => `${r.rank_key} ${r.pid}`, rowClass: (r) => r === chosen && "chosen",
    cols: [
      { name: "Rank", by: (r) => r.rank, cell: (r) => h("a", { href: jobLink(job.job, r.rank_key) }, who(r)) },
      { name: "Node", by: (r) => r.node, cell: (r) => h("a", { href: nodeLink(r.node) }, r.node) },
      { name: "Self time", num: true, by: (r) => r.self_time_ns, cell: (r) => duration(r.self_time_ns) },
      { name: "Against peers", num: true, by: (r) => r.self_time_ratio, cell: (r) => h("b", null, residual(r.self_time_ratio, 1)) },
      { name: "Waits for peers", num: true, by: (r) => r.peer_wait_ns, cell: (r) => duration(r.peer_wait_ns) },
      { name: "GPU clock", num: true, by: (r) => r.gpu_clock_ratio, cell: (r) => percent(r.gpu_clock_ratio) },
      { name: "Coverage", num: true, by: (r) => r.coverage, cell: (r) => percent(r.coverage) },
      { name: "Verdict", by: (r) => r.verdict && r.verdict.effect_pct, cell: (r) => (r.verdict ? badge("bad", `▲ ${cause(r.verdict.cause)}`) : "–") },
    ],
  });
}

function groupTable(job) {
  return table({
    id: "job-groups", caption: "Peer groups", rows: job.groups, key: (g) => g.name,
    cols: [
      { name: "Group", by: (g) => g.name, cell: (g) => g.name },
      { name: "Members", num: true, by: (g) => g.members, cell: (g) => count(g.members) },
      { name: "Judged", num: true, by: (g) => g.judged, cell: (g) => count(g.judged) },
      { name: "Low coverage", num: true, by: (g) => g.low_coverage, cell: (g) => count(g.low_coverage) },
      { name: "Median self time", num: true, by: (g) => g.self_time_median_ns, cell: (g) => duration(g.self_time_median_ns) },
      { name: "State", by: (g) => g.state, cell: (g) => h("span", { class: "wrap" }, h("b", null, groupState(g.state).name), h("span", { class: "sub" }, g.note || groupState(g.state).text)) },
    ],
  });
}

export function render(d, route, o, width) {
  const { job, chosen } = d;
  const verdicts = job.ranks.filter((r) => r.verdict).map((r) => r.verdict).sort((a, b) => b.impact_share - a.impact_share);
  const impact = verdicts.reduce((a, v) => Math.max(a, v.impact_share), 0);
  return h("div", { class: "view" },
    h("p", { class: "crumbs" }, h("a", { href: "#/jobs" }, "Jobs"), " / "),
    h("h1", null, job.job, " ", job.running ? badge("ok", "running") : badge("quiet", "not running")),
    h("div", { class: "verdicts" }, verdicts.map((v) => verdictCard(v, o.now_ns))),
    notes(job),
    tiles(
      tile("Step time", duration(job.step_time_ns)),
      tile("Median self time", duration(median(job.groups.map((g) => g.self_time_median_ns).filter((v) => v !== null)))),
      tile("Ranks seen", `${count(job.ranks_count)}${job.world_size === null ? "" : ` / ${count(job.world_size)}`}`, job.coverage !== null && `${percent(job.coverage)} coverage`, job.coverage !== null && job.coverage < 1 && "warn"),
      tile("Stragglers", count(job.stragglers_open), "open", job.stragglers_open > 0 && "bad"),
      tile("Lost of each step", percent(impact, 1), "as long as it lasts"),
      tile("GPU-hours lost", hours(job.gpu_hours_lost))),
    job.ranks.length > 0 && section("Ranks against their peers", "map", heatLegend(), heatMap(job.job, job.ranks, chosen?.rank_key)),
    chosen ? rankPart(job, chosen, width)
      : route.args[2] !== undefined ? empty("No such rank", `Rank ${route.args[2]} is not in this job now.`) : empty("No ranks yet", "The job has processes, but none has told its rank."),
    job.ranks.length > 0 && section("All ranks", "all-ranks", h("details", { open: width > 700 || job.ranks.length <= 8 },
      h("summary", null, `${count(job.ranks.length)} ranks, as a table`), rankTable(job, chosen))),
    job.groups.length > 0 && section("Peer groups", "groups", groupTable(job)),
    d.past.length > 0 && section("Earlier stragglers", "past", d.past.map((v) => verdictCard(v, o.now_ns))));
}
export const title = (route) => (route.args[2] === undefined ? route.args[0] : `${route.args[0]}, rank ${route.args[2]}`);
