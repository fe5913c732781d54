// SPDX-License-Identifier: Apache-2.0
// Elements from data. Text is always set as text: nothing that came from outside is parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(el, attrs, children) {
  for (const [k, v] of Object.entries(attrs || {})) {
    if (v === null || v === undefined || v === false) continue;
    if (k === "style") for (const [p, x] of Object.entries(v)) el.style.setProperty(p, x);
    else if (k === "data") el._data = v;
    else el.setAttribute(k, v === true ? "" : String(v));
  }
  for (const c of children.flat(Infinity)) {
    if (c === null || c === undefined || c === false) continue;
    el.append(c instanceof Node ? c : document.createTextNode(String(c)));
  }
  return el;
}

export function h(tag, attrs, ...children) {
  return fill(document.createElement(tag), attrs, children);
}

export function s(tag, attrs, ...children) {
  return fill(document.createElementNS(SVG, tag), attrs, children);
}

const keyOf = (n) => (n.nodeType === 1 ? n.getAttribute("data-key") : null);

function attributes(a, b) {
  for (const { name } of [...a.attributes]) {
    if (name === "style" || (name === "open" && a.localName === "details")) continue;
    if (!b.hasAttribute(name)) a.removeAttribute(name);
  }
  for (const { name, value } of b.attributes) {
    if (name === "style" || (name === "open" && a.localName === "details")) continue;
    if (a.getAttribute(name) !== value) a.setAttribute(name, value);
  }
  if (a.style.cssText !== b.style.cssText) a.style.cssText = b.style.cssText;
}

// Makes the tree at a look like b, keeping elements (and so focus, selection, scrolling, opened details) where it can.
export function morph(a, b) {
  if (a.nodeType !== b.nodeType || a.nodeName !== b.nodeName || keyOf(a) !== keyOf(b)) {
    a.replaceWith(b);
    return b;
  }
  if (a.nodeType !== 1) {
    if (a.data !== b.data) a.data = b.data;
    return a;
  }
  attributes(a, b);
  a._data = b._data;
  const keyed = new Map();
  for (const c of a.children) if (keyOf(c) !== null) keyed.set(keyOf(c), c);
  let at = a.firstChild;
  for (const want of [...b.childNodes]) {
    const key = keyOf(want);
    const have = key !== null ? keyed.get(key) : at && keyOf(at) === null ? at : null;
    if (have && have.nodeName === want.nodeName) {
      if (have === at) at = at.nextSibling;
      else a.insertBefore(have, at);
      morph(have, want);
    } else a.insertBefore(want, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
  return a;
}

let announced = "";
export function say(text) {
  if (text === announced) return;
  announced = text;
  document.getElementById("live").textContent = text;
}
