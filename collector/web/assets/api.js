// SPDX-License-Identifier: Apache-2.0
// GET requests to the collector that served the page. The token lives in sessionStorage only.

const KEY = "lanterne-token";
const TIMEOUT_MS = 15000;

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let memory = null;
export function setToken(token) {
  memory = token;
  try {
    sessionStorage.setItem(KEY, token);
  } catch {
    // Kept in memory until the page is left.
  }
}
function token() {
  try {
    return sessionStorage.getItem(KEY) || memory;
  } catch {
    return memory;
  }
}
export const hasToken = () => Boolean(token());

export async function get(path) {
  const headers = { Accept: "application/json" };
  if (token()) headers.Authorization = `Bearer ${token()}`;
  let r;
  try {
    r = await fetch(`/api/v1/${path}`, { headers, cache: "no-store", credentials: "omit", redirect: "error", signal: AbortSignal.timeout(TIMEOUT_MS) });
  } catch (e) {
    throw new ApiError(0, e.name === "TimeoutError" ? "the collector did not answer in time" : "the collector cannot be reached");
  }
  let body = null;
  try {
    body = await r.json();
  } catch {
    if (r.ok) throw new ApiError(r.status, "the answer is not JSON");
  }
  if (!r.ok) throw new ApiError(r.status, body?.error?.message || `HTTP status ${r.status}`);
  return body;
}

// The same, but not asked again while younger than maxAge: for answers that are large in large fleets.
const kept = new Map();
export async function getKept(path, maxAgeMs) {
  const k = kept.get(path);
  if (k && Date.now() - k.at < maxAgeMs) return k.body;
  const body = await get(path);
  kept.delete(path);
  kept.set(path, { at: Date.now(), body });
  if (kept.size > 64) kept.delete(kept.keys().next().value);
  return body;
}
