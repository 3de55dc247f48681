// The API: the token, requests, and problem documents as errors.

const KEY = "deputize-token";
let token = sessionStorage.getItem(KEY) ?? "";
let clockOffset = 0;

/** The scopes of the token, as the last response named them; null before. */
export let scopes = null;

export class ApiError extends Error {
  /** `status` 0: there was no response. */
  constructor(status, problem = {}) {
    super(problem.detail || problem.title || `the service answered with ${status}`);
    this.status = status;
    this.type = problem.type ?? "about:blank";
    this.errors = problem.errors ?? [];
  }
}

export function setToken(value) {
  token = value;
  scopes = null;
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

export const hasToken = () => token !== "";

/** Takes the token of `#token=…` and removes it from the address and the history. */
export function takeTokenFromAddress() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given === null) return;
  history.replaceState(null, "", location.pathname + location.search);
  setToken(given.trim());
}

/** Milliseconds by the clock of the service, which sets when a request expires. */
export const serviceNow = () => Date.now() + clockOffset;

function note(response) {
  scopes = response.headers.get("X-Token-Scopes")?.split(" ") ?? scopes;
  const there = Date.parse(response.headers.get("Date") ?? "");
  if (Number.isNaN(there)) return;
  const offset = there - Date.now();
  clockOffset = Math.abs(offset) < 2000 ? 0 : offset; // the header has whole seconds
}

/** Parses JSON without changing whole numbers that a double cannot hold, in browsers that can. */
export function parseJson(text) {
  if (!/\d{16}/u.test(text)) return JSON.parse(text); // many times faster, and an event has hardly ever one
  return JSON.parse(text, (_, value, context) => {
    const exact = typeof value !== "number" || !Number.isInteger(value) || Number.isSafeInteger(value);
    return exact || !context?.source || !JSON.rawJSON ? value : JSON.rawJSON(context.source);
  });
}

async function problemOf(response) {
  try {
    return new ApiError(response.status, await response.json());
  } catch {
    return new ApiError(response.status, { detail: response.statusText });
  }
}

/** Sends a request and returns its response. Throws ApiError for each that is not a success. */
export async function open(path, options = {}) {
  const headers = { ...options.headers };
  if (token) headers.Authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(path, { cache: "no-store", credentials: "omit", redirect: "error", ...options, headers });
  } catch (error) {
    if (/[^\x20-\x7e]/u.test(token)) throw new ApiError(401, { detail: "this is not a token of the service" });
    throw new ApiError(0, { detail: error.name === "AbortError" ? "aborted" : "the service does not answer" });
  }
  note(response);
  if (!response.ok) throw await problemOf(response);
  return response;
}

export async function get(path) {
  return parseJson(await (await open(path, { headers: { Accept: "application/json" } })).text());
}

/** Sends JSON, or nothing, and returns what is answered, or null. */
export async function post(path, body = undefined) {
  return send(path, body === undefined ? undefined : JSON.stringify(body));
}

async function send(path, body) {
  const headers = { Accept: "application/json", ...(body !== undefined && { "Content-Type": "application/json" }) };
  const text = await (await open(path, { method: "POST", headers, body })).text();
  return text ? parseJson(text) : null;
}

/** One call of `work` at a time; those that come meanwhile are one more, `spacing` ms after the last. */
export function coalesced(work, spacing) {
  let running = false;
  let again = false;
  return async function request() {
    if (running) {
      again = true;
      return;
    }
    running = true;
    again = false;
    await work();
    await new Promise((resolve) => setTimeout(resolve, spacing));
    running = false;
    if (again) request();
  };
}

/** A key with which a request that is sent twice is one delegation. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `page-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** Sends an answer. `argumentsText` is JSON that is sent as it was typed. */
export async function answer(id, outcome, { reason, argumentsText } = {}) {
  const fields = [`"outcome":${JSON.stringify(outcome)}`];
  if (reason) fields.push(`"reason":${JSON.stringify(reason)}`);
  if (argumentsText !== undefined) fields.push(`"arguments":${argumentsText}`);
  await send(`v1/permissions/${encodeURIComponent(id)}`, `{${fields.join(",")}}`);
}
