// Numbers, money and times as the reader's locale writes them.

const WHOLE = new Intl.NumberFormat();
const COMPACT = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const RELATIVE = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "narrow" });
const dollars = (digits) => new Intl.NumberFormat(undefined, {
  style: "currency", currency: "USD", currencyDisplay: "narrowSymbol", minimumFractionDigits: 2,
  maximumFractionDigits: digits,
});
const LARGE = dollars(2);
const SMALL = dollars(4);
const unit = (name, digits = 0) => new Intl.NumberFormat(undefined, {
  style: "unit", unit: name, unitDisplay: "narrow", maximumFractionDigits: digits,
});
const UNITS = { day: unit("day"), hour: unit("hour"), minute: unit("minute"), second: unit("second") };
const FRACTION = unit("second", 1);
const SIZES = [["day", 86_400], ["hour", 3600], ["minute", 60], ["second", 1]];

export const number = (value) => WHOLE.format(value);

/** `41K`, for amounts of tokens. */
export const compact = (value) => COMPACT.format(value);

/** A dash where the price is not known, which is not the same as zero. */
export function money(usd) {
  if (typeof usd !== "number") return "–";
  return (Math.abs(usd) < 1 ? SMALL : LARGE).format(usd);
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

/** `10m ago`, for a time before `now`; both are milliseconds. */
export function age(time, now) {
  const seconds = Math.max(0, (now - time) / 1000);
  const [name, size] = SIZES.find(([, each]) => seconds >= each) ?? ["second", 1];
  return RELATIVE.format(-Math.floor(seconds / size), name);
}
