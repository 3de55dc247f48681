// Text for people: invisible characters made visible, times, amounts.

// As in shared/text.py: what a terminal or a page would hide, or show in another order than it is executed.
const HIDDEN = "\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f" +
  "\\ufeff\\ufff0-\\ufffb\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u2800\\u3164\\uffa0" +
  "\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\ud800-\\udfff\\u{e0000}-\\u{e00ff}\\u{e01f0}-\\u{e0fff}";
const JOINER = "(?<![\\u0300-\\u{10ffff}])" +
  "[\\u180b-\\u180d\\u180f\\u200c\\u200d\\ufe00-\\ufe0f\\u{e0100}-\\u{e01ef}](?!\\u20e3)";
const LINE = new RegExp(`[\\x00-\\x1f${HIDDEN}]|${JOINER}`, "gu");
const BLOCK = new RegExp(`[\\x00-\\x08\\x0b-\\x1f${HIDDEN}]|${JOINER}`, "gu");
const JSON_TEXT = new RegExp(`[${HIDDEN}]|${JOINER}`, "gu");
const NAMED = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function escaped(char) {
  const code = char.codePointAt(0);
  if (code > 0xffff) return `\\U${code.toString(16).padStart(8, "0")}`;
  if (NAMED[char]) return NAMED[char];
  return code <= 0xff ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
}

function jsonEscaped(char) {
  const units = Array.from({ length: char.length }, (_, at) => char.charCodeAt(at));
  return units.map((unit) => `\\u${unit.toString(16).padStart(4, "0")}`).join("");
}

/** The text on one line, with every control and invisible character as an escape. */
export const visible = (text) => String(text ?? "").replace(LINE, escaped);

/** The same for a text of several lines, which keeps its line ends and tabs. */
export const visibleBlock = (text) => String(text ?? "").replaceAll("\r\n", "\n").replace(BLOCK, escaped);

/** A value as indented JSON in which no character is invisible; its value is unchanged. */
export const visibleJson = (value) => JSON.stringify(value, null, 2).replace(JSON_TEXT, jsonEscaped);

export function cut(text, width) {
  const line = visible(String(text ?? "").split(/\s+/u).filter(Boolean).join(" "));
  const chars = [...line];
  return chars.length <= width ? line : `${chars.slice(0, width - 1).join("")}…`;
}

/** How a permission request was answered, as in shared/wording.py; `by` is the name of a token. */
export function answerWords(outcome, by) {
  const how = outcome === "cancel" ? "denied" : "approved";
  const more = outcome === "modify" ? " with other arguments" : outcome.includes("always") ? " always" : "";
  return `${how}${more}${by ? ` by token "${visible(by)}"` : ""}`;
}

export const count = (number, thing) => `${number} ${thing}${number === 1 ? "" : "s"}`;
export const shortId = (id) => `…${visible(String(id).slice(-6))}`;
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const PERCENT = new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 1 });
const UNITS = ["byte", "kilobyte", "megabyte", "gigabyte"].map((unit) =>
  new Intl.NumberFormat(undefined, { style: "unit", unit, maximumFractionDigits: 1 }));

/** The time of day of a number of milliseconds. */
export const clock = (ms) => CLOCK.format(ms);
export const percent = (part) => (typeof part === "number" ? PERCENT.format(part) : "–");

export function size(bytes) {
  const power = Math.min(3, Math.floor(Math.log(Math.max(1, bytes)) / Math.log(1000)));
  return UNITS[power].format(bytes / 1000 ** power);
}

/** `4:05`, for a countdown. */
export function countdown(value) {
  const whole = Math.max(0, Math.ceil(value));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
  const two = (number) => String(number).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}
