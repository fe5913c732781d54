// SPDX-License-Identifier: Apache-2.0
// Numbers, times and names as people read them.

const known = (v) => typeof v === "number" && Number.isFinite(v);
const DASH = "–";

function digits(v) {
  const a = Math.abs(v);
  return v.toFixed(a >= 100 ? 0 : a >= 10 ? 1 : 2);
}

export function duration(ns) {
  if (!known(ns)) return DASH;
  if (ns === 0) return "0";
  if (ns < 1e3) return `${ns.toFixed(0)} ns`;
  if (ns < 1e6) return `${digits(ns / 1e3)} µs`;
  if (ns < 1e9) return `${digits(ns / 1e6)} ms`;
  if (ns < 120e9) return `${digits(ns / 1e9)} s`;
  if (ns < 7200e9) return `${Math.round(ns / 60e9)} min`;
  if (ns < 172800e9) return `${digits(ns / 3600e9)} h`;
  return `${digits(ns / 86400e9)} d`;
}

export function percent(share, places = 0) {
  return known(share) ? `${(100 * share).toFixed(places)} %` : DASH;
}

// A ratio of 1.48 as "+48 %".
export function residual(ratio, places = 0) {
  if (!known(ratio)) return DASH;
  const v = 100 * (ratio - 1);
  const text = Math.abs(v).toFixed(places);
  return `${Number(text) === 0 ? "±" : v > 0 ? "+" : "−"}${text} %`;
}

export function count(v) {
  if (!known(v)) return DASH;
  if (Math.abs(v) < 10000) return Math.round(v).toLocaleString("en");
  return new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(v);
}

export function rate(v) {
  if (!known(v)) return DASH;
  return v < 10 ? v.toFixed(1) : count(v);
}

export function bytes(v) {
  if (!known(v)) return DASH;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let u = 0;
  for (; v >= 1024 && u < units.length - 1; u++) v /= 1024;
  return `${u ? digits(v) : v} ${units[u]}`;
}

export function hours(v) {
  return known(v) ? (v >= 100 ? v.toFixed(0) : v >= 1 ? v.toFixed(1) : v.toFixed(3)) : DASH;
}

export function clock(ns) {
  return ns ? new Date(ns / 1e6).toLocaleTimeString("en-GB") : DASH;
}

export function moment(ns) {
  if (!ns) return DASH;
  const d = new Date(ns / 1e6);
  const day = d.toLocaleDateString("en-CA");
  return day === new Date().toLocaleDateString("en-CA") ? clock(ns) : `${day} ${clock(ns)}`;
}

export function ago(ns, now) {
  if (!ns) return DASH;
  const d = Math.max(0, now - ns);
  return d < 1e9 ? "now" : d < 120e9 ? `${Math.round(d / 1e9)} s ago` : `${duration(d)} ago`;
}

const CAUSES = {
  cpu_contention: "CPU contention", data_loader: "Data loading", disk_io: "Disk I/O", blocked_futex: "Blocked on a lock",
  blocked_poll: "Blocked in poll", blocked_sleep: "Sleeping", host_compute: "Host compute", device: "Slow on its device",
  page_faults: "Page faults", blocked_write: "Blocked writing", blocked_child: "Waiting for a child process",
  gpu_clock: "GPU clock throttled", unattributed: "Cause not attributed",
};

export function cause(name) {
  if (!name) return "Cause not known";
  if (Object.hasOwn(CAUSES, name)) return CAUSES[name];
  const text = name.replace(/_/g, " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

const PARTS = {
  on_cpu: "on the CPU", run_queue: "waiting for a CPU", device: "own device", futex: "blocked on a lock", read: "blocked in read",
  write: "blocked in write", poll: "blocked in poll", sleep: "sleeping", disk: "disk", child: "child process", fault: "page faults",
  other: "other",
};
export const part = (name) => (Object.hasOwn(PARTS, name) ? PARTS[name] : name.replace(/_/g, " "));
export const partNames = Object.keys(PARTS);

const STATES = {
  scored: ["judged", "All ranks of this group are compared with each other."],
  warm_up: ["warming up", "The first windows of a group are not judged."],
  alone: ["alone", "One rank has no peers to be compared with."],
  peers_absent: ["peers absent", "Too few ranks were heard of. Missing is never called slow."],
  low_coverage: ["low coverage", "Steps cover too little of the window to be compared."],
  cannot_tell: ["cannot tell", "Two ranks differ, and their past does not say which of them changed."],
  cohort: ["cohort", "Too many ranks are slow at once to call them stragglers."],
  job_wide: ["job wide", "Nearly all ranks are slower than they were, and nobody stands apart."],
};
export function groupState(state) {
  const [name, text] = Object.hasOwn(STATES, state) ? STATES[state] : [state, ""];
  return { name, text };
}

const REASONS = [[1, "idle"], [2, "application clocks"], [4, "software power cap"], [8, "hardware slowdown"], [16, "sync boost"],
  [32, "software thermal"], [64, "hardware thermal"], [128, "power brake"], [256, "display clock"]];
export function throttle(bits) {
  if (!known(bits)) return DASH;
  const names = REASONS.filter(([b]) => bits & b).map(([, n]) => n);
  return names.length ? names.join(", ") : "none";
}

export function plural(n, one, many) {
  return `${count(n)} ${n === 1 ? one : many || one + "s"}`;
}

export function median(values) {
  if (!values.length) return null;
  const v = [...values].sort((a, b) => a - b);
  const m = v.length >> 1;
  return v.length % 2 ? v[m] : (v[m - 1] + v[m]) / 2;
}
