// Numbers as the library writes them, and places in lists.

// As in the library, where nobody chose another number of them.
const DECIMALS = 4;

// A number with so many decimals; "–" where there is none.
/** @param {number | null | undefined} value */
export function decimal(value, digits = DECIMALS) {
  if (value === null || value === undefined) return "–";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const written = value.toFixed(digits);
  // No minus before a zero.
  return Number(written) === 0 ? written.replace("-", "") : written.replace("-", "−");
}

/** A weight: four decimals, or a power of ten where these would be zeros. @param {number} value */
export function weight(value) {
  if (value === 0) return "0";
  return value < 0.0001 ? powerOfTen(value.toExponential(1)) : decimal(value);
}

// A number in a sum: at most so many decimals, or a power of ten.
/** @param {number} value @param {number} [decimals] */
export function term(value, decimals = DECIMALS) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (!Number.isFinite(size)) return decimal(value);
  if (size >= 10 ** -decimals && size < 1e6) return decimal(value, decimals).replace(/\.?0+$/, "");
  return powerOfTen(value.toExponential(1));
}

// A number with so many significant digits; a power of ten where it is very small or large.
/** @param {number | null} value */
export function significant(value, digits = 4) {
  if (!Number.isFinite(value)) return decimal(value);
  const size = Math.abs(value);
  const isPlain = size === 0 || (size >= 1e-4 && size < 1e9);
  const short = Number(value.toPrecision(digits));
  return powerOfTen(isPlain ? String(short) : short.toExponential());
}

/** A count with spaces between thousands, at which no line breaks. */
export function grouped(/** @type {number | string} */ value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, "\u00a0");
}

// A number with its unit or in few letters, as a language writes them; with a point, as all numbers.
/** @param {number} value @param {string} language @param {Intl.NumberFormatOptions} look */
export function localized(value, language, look) {
  const parts = new Intl.NumberFormat(language, look).formatToParts(value);
  return parts.map(({ type, value: part }) => (type === "decimal" ? "." : part)).join("");
}

/** "1.5e-7" as "1.5·10⁻⁷". @param {string} written */
function powerOfTen(written) {
  const raised = (/** @type {string} */ power) => {
    return power.replace("-", "⁻").replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(digit)]);
  };
  return written.replace(/e\+?(-?\d+)$/, (_, power) => `·10${raised(power)}`).replace("-", "−");
}

/** The nearest number between two. @param {number} value @param {number} low @param {number} high */
export const clamped = (value, low, high) => Math.max(low, Math.min(high, value));

/** The nearest index of a list. @param {number} index @param {number} length */
export const within = (index, length) => clamped(index, 0, length - 1);

// The whole number that a text is, as in an address; `other` if it is not one.
/** @template Other @param {string | undefined} text @param {Other} other */
export const wholeNumber = (text, other) => (/^\d{1,15}$/.test(text ?? "") ? Number(text) : other);

// The place of the largest number, the first of several. A map has more numbers than a call may
// have arguments.
/** @param {number[] | Float32Array | Float64Array} numbers @returns {number} */
export const largestAt = (numbers) =>
  /** @type {any} */ (numbers).reduce(
    (/** @type {number} */ best, /** @type {number} */ each, /** @type {number} */ at) =>
      each > numbers[best] ? at : best,
    0,
  );

/** @template Each @param {Each[]} list @param {(each: Each) => number} sizeOf */
export function largestFirst(list, sizeOf) {
  return list.toSorted((one, other) => sizeOf(other) - sizeOf(one));
}

/** @param {Float32Array} all @param {number} row @param {number} length */
export const rowAt = (all, row, length) => all.subarray(row * length, (row + 1) * length);

/** 0, 1, … below a count. @param {number} count */
export const range = (count) => [...Array(count).keys()];

// The members of a list by a key, in their order: Map.groupBy, which older browsers lack.
/** @template Each, Key @param {Each[]} list @param {(each: Each) => Key} keyOf */
export function byKey(list, keyOf) {
  const groups = /** @type {Map<Key, Each[]>} */ (new Map());
  for (const each of list) {
    const key = keyOf(each);
    groups.set(key, [...(groups.get(key) ?? []), each]);
  }
  return groups;
}

export function sum(/** @type {ArrayLike<number> & Iterable<number>} */ numbers) {
  let all = 0;
  for (const each of numbers) all += each;
  return all;
}

/** @param {ArrayLike<number>} one @param {ArrayLike<number>} other */
export function dot(one, other) {
  let all = 0;
  for (let at = 0; at < one.length; at++) all += one[at] * other[at];
  return all;
}

// Round numbers between two.
/** @param {number} low @param {number} high @param {number} count  About how many */
export function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(1, count);
  const ten = 10 ** Math.floor(Math.log10(rough));
  const gap = [1, 2, 5, 10].map((each) => each * ten).find((each) => each >= rough * 0.999);
  // A tick at an end counts, however its quotient is rounded.
  const first = Math.ceil(low / gap - 1e-9);
  const last = Math.floor(high / gap + 1e-9);
  return range(last - first + 1).map((at) => Number(((first + at) * gap).toPrecision(12)));
}
