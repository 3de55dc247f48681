// Numbers, money and times as the reader's locale writes them.

const WHOLE = new Intl.NumberFormat();
const COMPACT = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const RELATIVE = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "narrow" });
const [LARGE, SMALL, TINY] = [2, 3, 4].map((digits) => new Intl.NumberFormat(undefined, {
  style: "currency", currency: "USD", currencyDisplay: "narrowSymbol", minimumFractionDigits: digits,
  maximumFractionDigits: digits,
}));
const unit = (name, digits = 0) => new Intl.NumberFormat(undefined, {
  style: "unit", unit: name, unitDisplay: "narrow", maximumFractionDigits: digits,
});
const UNITS = { day: unit("day"), hour: unit("hour"), minute: unit("minute"), second: unit("second") };
const FRACTION = unit("second", 1);
const SIZES = [["day", 86_400], ["hour", 3600], ["minute", 60], ["second", 1]];

export const number = (value) => WHOLE.format(value);

/** `41K`, for amounts of tokens. */
export const compact = (value) => COMPACT.format(value);

/** All tokens of a usage. */
export const tokensIn = ({ inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens }) =>
  inputTokens + outputTokens + cacheReadTokens + cacheWriteTokens;

/** A dash where the price is not known, which is not the same as zero. */
export function money(usd) {
  if (typeof usd !== "number") return "–";
  const amount = Math.abs(usd);
  return (amount >= 1 || amount === 0 ? LARGE : amount >= 0.01 ? SMALL : TINY).format(usd);
}

/** `4m 5s`: the two largest units. */
export function duration(ms) {
  const seconds = Math.max(0, ms / 1000);
  if (seconds < 10) return FRACTION.format(seconds);
  const at = SIZES.findIndex(([, size]) => seconds >= size);
  const [[large, size], smaller] = [SIZES[at], SIZES[at + 1]];
  const rest = smaller ? Math.floor((seconds % size) / smaller[1]) : 0;
  const first = UNITS[large].format(Math.floor(seconds / size));
  return rest ? `${first} ${UNITS[smaller[0]].format(rest)}` : first;
}

/** `10m ago`, for a time before `now`, both in milliseconds; `now` within the first minute. */
export function age(time, now) {
  const seconds = (now - time) / 1000;
  if (seconds < 60) return RELATIVE.format(0, "second");
  const [name, size] = SIZES.find(([, each]) => seconds >= each);
  return RELATIVE.format(-Math.floor(seconds / size), name);
}
