// SPDX-License-Identifier: Apache-2.0
// SVG charts. Each has a text alternative: a label, and its numbers as a table.
import { h, s, say } from "/assets/dom.js";
import { clock, duration, part, partNames } from "/assets/format.js";

const HEIGHT = 240;
const PAD = { left: 62, right: 14, top: 12, bottom: 28 };

function niceStep(range, n) {
  const raw = range / n;
  const base = 10 ** Math.floor(Math.log10(raw));
  for (const m of [1, 2, 5, 10]) if (raw <= m * base) return m * base;
  return 10 * base;
}

function scales(lines, band, marks, width) {
  const xs = [], ys = [];
  for (const l of lines) for (const [x, y] of l.points) if (y !== null) xs.push(x), ys.push(y);
  for (const [x, lo, hi] of band) xs.push(x), ys.push(lo, hi);
  if (!xs.length) return null;
  const top = ys.reduce((a, b) => Math.max(a, b), 0);
  const x0 = xs.reduce((a, b) => Math.min(a, b)), x1 = xs.reduce((a, b) => Math.max(a, b));
  // From zero, so that a difference looks as large as it is.
  const step = niceStep(1.08 * top || 1, 4);
  const y0 = 0, y1 = Math.max(Math.ceil((1.02 * top) / step), 1) * step;
  const w = width - PAD.left - PAD.right, hgt = HEIGHT - PAD.top - PAD.bottom;
  return {
    x0, x1, y0, y1, step, w, h: hgt,
    x: (v) => PAD.left + (x1 > x0 ? ((v - x0) / (x1 - x0)) * w : w / 2),
    y: (v) => PAD.top + hgt - ((v - y0) / (y1 - y0)) * hgt,
  };
}

const at = (v) => v.toFixed(1);

// Gaps in the data are gaps in the line.
function linePath(points, sc) {
  let d = "", pen = false;
  for (const [x, y] of points) {
    if (y === null) {
      pen = false;
      continue;
    }
    d += `${pen ? "L" : "M"}${at(sc.x(x))} ${at(sc.y(y))}`;
    pen = true;
  }
  return d;
}

function bandPath(band, sc) {
  if (band.length < 2) return "";
  const up = band.map(([x, , hi]) => `${at(sc.x(x))} ${at(sc.y(hi))}`);
  const down = band.map(([x, lo]) => `${at(sc.x(x))} ${at(sc.y(lo))}`).reverse();
  return `M${up.join("L")}L${down.join("L")}Z`;
}

function axes(sc, width) {
  const out = [];
  for (let v = sc.y0; v <= sc.y1 + sc.step / 2; v += sc.step) {
    out.push(s("line", { class: "grid", x1: PAD.left, x2: width - PAD.right, y1: at(sc.y(v)), y2: at(sc.y(v)) }));
    out.push(s("text", { class: "tick", x: PAD.left - 8, y: at(sc.y(v) + 4), "text-anchor": "end" }, duration(Math.round(v))));
  }
  const n = Math.max(2, Math.min(6, Math.floor(sc.w / 110)));
  for (let i = 0; sc.x1 > sc.x0 && i < n; i++) {
    const v = sc.x0 + ((sc.x1 - sc.x0) * i) / (n - 1);
    const anchor = i === 0 ? "start" : i === n - 1 ? "end" : "middle";
    out.push(s("text", { class: "tick", x: at(sc.x(v)), y: HEIGHT - 8, "text-anchor": anchor }, clock(v)));
  }
  return out;
}

function dataTable(lines) {
  const rows = new Map();
  lines.forEach((l, i) => l.points.forEach(([x, y]) => {
    if (!rows.has(x)) rows.set(x, lines.map(() => null));
    rows.get(x)[i] = y;
  }));
  return h("details", { class: "numbers" }, h("summary", null, "Numbers"),
    h("div", { class: "scroll" }, h("table", null,
      h("thead", null, h("tr", null, h("th", { scope: "col" }, "Window end"), lines.map((l) => h("th", { scope: "col", class: "num" }, l.name)))),
      h("tbody", null, [...rows].sort((a, b) => b[0] - a[0]).map(([x, v]) =>
        h("tr", { "data-key": String(x) }, h("th", { scope: "row" }, clock(x)), v.map((y) => h("td", { class: "num" }, duration(y)))))))));
}

// lines: [{name, cls, points: [[unix ns, ns or null]]}], band: [[unix ns, low, high]], marks: [{at, text}].
export function lineChart({ id, title, lines, band = [], bandName, marks = [], width }) {
  const sc = scales(lines, band, marks, width);
  const head = h("figcaption", null, h("span", { class: "chart-title" }, title),
    h("span", { class: "legend" },
      lines.map((l) => h("span", { class: "key" }, h("i", { class: `swatch ${l.cls}` }), l.name)),
      band.length > 1 && h("span", { class: "key" }, h("i", { class: "swatch band" }), bandName)));
  if (!sc) return h("figure", { class: "chart", "data-key": id }, head, h("p", { class: "empty" }, "No complete window yet."));
  const last = lines.map((l) => `${l.name} ${duration(l.points.reduce((a, [, y]) => y ?? a, null))}`).join(", ");
  const svg = s("svg", { class: "plot", viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", tabindex: 0,
    "aria-label": `${title}. Newest: ${last}. Left and right arrow keys read out single windows.`, data: { lines, sc, width } },
  axes(sc, width),
  band.length > 1 && s("path", { class: "band", d: bandPath(band, sc) }),
  marks.filter((m) => m.at >= sc.x0 && m.at <= sc.x1).map((m) => [
    s("line", { class: "mark", x1: at(sc.x(m.at)), x2: at(sc.x(m.at)), y1: PAD.top, y2: HEIGHT - PAD.bottom }),
    s("text", { class: "mark-text", x: at(sc.x(m.at) + (sc.x(m.at) > width / 2 ? -5 : 5)), y: HEIGHT - PAD.bottom - 7,
      "text-anchor": sc.x(m.at) > width / 2 ? "end" : "start" }, m.text)]),
  lines.map((l) => s("path", { class: `line ${l.cls}`, d: linePath(l.points, sc) })),
  s("g", { class: "hover", "data-key": "hover" }));
  return h("figure", { class: "chart", "data-key": id }, head, svg, dataTable(lines));
}

// The cross-hair at window index i of the chart.
function show(svg, i) {
  const { lines, sc, width } = svg._data;
  const xs = [...new Set(lines.flatMap((l) => l.points.map(([x]) => x)))].sort((a, b) => a - b);
  if (!xs.length) return;
  svg._at = Math.max(0, Math.min(xs.length - 1, i));
  const t = xs[svg._at], x = sc.x(t);
  const rows = lines.map((l) => ({ l, y: l.points.find(([v]) => v === t)?.[1] ?? null }));
  const texts = [clock(t), ...rows.map(({ l, y }) => `${l.name} ${duration(y)}`)];
  const w = 16 + 6.9 * texts.reduce((a, b) => Math.max(a, b.length), 0), hgt = 8 + 17 * texts.length;
  const left = Math.max(2, Math.min(width - w - 2, x > width / 2 ? x - w - 10 : x + 10));
  svg.querySelector(".hover").replaceChildren(
    s("line", { class: "cross", x1: at(x), x2: at(x), y1: PAD.top, y2: HEIGHT - PAD.bottom }),
    ...rows.filter(({ y }) => y !== null).map(({ l, y }) => s("circle", { class: `dot ${l.cls}`, cx: at(x), cy: at(sc.y(y)), r: 4 })),
    s("rect", { class: "tip", x: at(left), y: PAD.top + 2, width: at(w), height: hgt, rx: 5 }),
    ...texts.map((text, k) => s("text", { class: k ? "tip-text" : "tip-head", x: at(left + 8), y: PAD.top + 18 + 17 * k }, text)));
  return texts.join(", ");
}

// After a refresh: the cross-hair again where somebody looks.
export function restore(root) {
  for (const svg of root.querySelectorAll("svg.plot"))
    if (svg._at !== undefined && (svg === document.activeElement || svg.matches(":hover"))) show(svg, svg._at);
}

function indexAt(svg, clientX) {
  const { lines, sc, width } = svg._data;
  const box = svg.getBoundingClientRect();
  const x = ((clientX - box.left) / box.width) * width;
  const xs = [...new Set(lines.flatMap((l) => l.points.map(([v]) => v)))].sort((a, b) => a - b);
  let best = 0;
  xs.forEach((v, i) => {
    if (Math.abs(sc.x(v) - x) < Math.abs(sc.x(xs[best]) - x)) best = i;
  });
  return best;
}

export function listen(root) {
  root.addEventListener("pointermove", (e) => {
    const svg = e.target.closest?.("svg.plot");
    root.querySelectorAll("svg.plot .hover").forEach((g) => {
      if (!svg || !svg.contains(g)) g.replaceChildren();
    });
    if (svg?._data) show(svg, indexAt(svg, e.clientX));
  });
  root.addEventListener("keydown", (e) => {
    const svg = e.target.closest?.("svg.plot");
    if (!svg?._data || (e.key !== "ArrowLeft" && e.key !== "ArrowRight")) return;
    e.preventDefault();
    const n = svg._at ?? 1e9;
    say(show(svg, n + (e.key === "ArrowLeft" ? -1 : 1)));
  });
}

// Bars of parts, one under the other on one scale. rows: [{name, parts: {part: ns}, wait: ns or null}].
export function splitBars({ rows, title, id, what = "Part of a step" }) {
  const used = [...partNames, ...new Set(rows.flatMap((r) => Object.keys(r.parts)))].filter((p, i, a) => a.indexOf(p) === i)
    .filter((p) => rows.some((r) => r.parts[p] > 0));
  const total = (r) => used.reduce((a, p) => a + (r.parts[p] || 0), 0);
  const scale = rows.reduce((a, r) => Math.max(a, total(r) + (r.wait || 0)), 0) || 1;
  const cls = (p) => (partNames.includes(p) ? `p-${p}` : "p-other");
  const waits = rows.some((r) => r.wait > 0);
  return h("figure", { class: "split", "data-key": id },
    h("figcaption", null, h("span", { class: "chart-title" }, title)),
    rows.map((r) => h("div", { class: "split-row" }, h("div", { class: "split-name" }, r.name, h("b", null, duration(total(r)))),
      h("div", { class: "split-bar", role: "img", "aria-label": `${r.name}: ${used.map((p) => `${part(p)} ${duration(r.parts[p] || 0)}`).join(", ")}` },
        used.filter((p) => r.parts[p] > 0).map((p) => h("i", { class: cls(p), title: `${part(p)} ${duration(r.parts[p])}`, style: { width: `${(100 * r.parts[p]) / scale}%` } })),
        r.wait > 0 && h("i", { class: "p-wait", title: `waiting for peers ${duration(r.wait)}`, style: { width: `${(100 * r.wait) / scale}%` } })))),
    h("div", { class: "scroll" }, h("table", { class: "plain" },
      h("thead", null, h("tr", null, h("th", { scope: "col" }, what), rows.map((r) => h("th", { scope: "col", class: "num" }, r.name)),
        rows.length === 2 && h("th", { scope: "col", class: "num" }, "Difference"))),
      h("tbody", null,
        used.map((p) => h("tr", null, h("th", { scope: "row" }, h("i", { class: `swatch ${cls(p)}` }), part(p)),
          rows.map((r) => h("td", { class: "num" }, duration(r.parts[p] || 0))),
          rows.length === 2 && h("td", { class: "num" }, signed((rows[0].parts[p] || 0) - (rows[1].parts[p] || 0))))),
        waits && h("tr", null, h("th", { scope: "row" }, h("i", { class: "swatch p-wait" }), "waiting for peers"),
          rows.map((r) => h("td", { class: "num" }, duration(r.wait))),
          rows.length === 2 && h("td", { class: "num" }, signed((rows[0].wait || 0) - (rows[1].wait || 0))))))));
}

function signed(ns) {
  return `${ns < 0 ? "−" : ns > 0 ? "+" : ""}${duration(Math.abs(ns))}`;
}
