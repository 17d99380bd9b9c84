// Numbers, as the library writes them.

export function decimal(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const said = value.toFixed(digits);
  return Number(said) === 0 ? said.replace("-", "") : said.replace("-", "−");
}

export function weight(value) {
  if (value === 0) return "0";
  return value < 0.0001 ? powers(value.toExponential(1)) : decimal(value);
}

/** A number in a sum: at most four decimals, or in powers of ten. */
export function figure(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (!Number.isFinite(size)) return decimal(value);
  if (size >= 1e-4 && size < 1e6) return decimal(value).replace(/\.?0+$/, "");
  return powers(value.toExponential(1));
}

export function short(value, digits = 4) {
  if (!Number.isFinite(value)) return decimal(value);
  return powers(String(Number(value.toPrecision(digits))));
}

export function within(place, many) { return Math.max(0, Math.min(many - 1, place)); }

/** 0, 1, … below a count. */
export function upTo(many) { return [...Array(many).keys()]; }

/** Round numbers between two, about `most`. */
export function ticks(low, high, most) {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(1, most);
  const ten = 10 ** Math.floor(Math.log10(rough));
  const gap = [1, 2, 5, 10].map((each) => each * ten).find((each) => each >= rough * 0.999);
  const from = Math.ceil(low / gap - 1e-9);
  const many = Math.floor(high / gap + 1e-9) - from + 1;
  return upTo(many).map((at) => Number(((from + at) * gap).toPrecision(12)));
}

/** A count with thin spaces between thousands. */
export function count(value) { return String(value).replace(/\B(?=(\d{3})+$)/g, " "); }

function powers(said) {
  const raised = (power) => power.replace("-", "⁻").replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);
  return said.replace(/e\+?(-?\d+)$/, (_, power) => `·10${raised(power)}`).replace("-", "−");
}
