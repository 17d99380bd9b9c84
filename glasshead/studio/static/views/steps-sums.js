// The sum that made a cell. Its lines come with the data, with places such as {score} for what is
// taken from cells.
import { element } from "../dom.js";
import { decimal, range, sum, term } from "../numbers.js";

/** @import { Translate } from "../app.js" */

/**
 * What the view shows: matrices by name, formulas, and the settings they were computed with.
 * @typedef {object} StepsData
 * @property {string} text
 * @property {string[]} examples  The sentences of the worked examples, the default first
 * @property {string[]} words @property {number} query @property {number} beta
 * @property {string} normalizer
 * @property {{cells: number, sums: number}} decimals  The most of a number in a cell and elsewhere
 * @property {Record<string, (number | null)[][]>} matrices  A hidden score is null
 * @property {Record<string, {formula: string, lines: string[], note?: string}>} sums
 * @property {Record<string, number[][]> | null} projection  The embeddings x, and the matrices
 * @property {{names: string[], top: number}[]} scales @property {number[] | null} thresholds
 * @property {Record<string, any>} chosen @property {Record<string, any>} defaults
 * @property {Record<string, Option[]>} options
 */

// An option of a setting: what stands for it in an address, and how it is said; without that, it is
// a number, or said in the page's language.
/** @typedef {{name: string | number, said?: string, hardens?: boolean}} Option */

// A part of a line: a text, a number as it was computed, or an exponent.
/** @typedef {string | number | {up: Part[]}} Part */

/**
 * The sum behind a cell, and the cells that it was made of.
 * @typedef {{title: string, value: number | null, lines: Part[][], decimals: number, note: string,
 *   cells: string[]}} Sum
 */

// Powers of e above this are written relative to the largest.
const LARGEST_EXPONENT = 10;

/** A number from 1 as an index: "x₃". @param {number} place  Counted from 0 */
export function subscript(place) {
  return String(place + 1).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[Number(digit)]);
}

/**
 * @param {string} cell  Name of a cell, such as "weights.1.0"
 * @param {StepsData} data @param {Translate} t @returns {Sum}
 */
export function sumOf(cell, data, t) {
  const [name, ...place] = cell.split(".");
  const [row, column] = place.map(Number);
  const { matrices, sums, words, decimals } = data;
  const isMaskable = name === "masked" || name === "weights";
  const isHidden = isMaskable && matrices.masked[row][column] === null;
  const { lines, note } = sums[isHidden ? `${name}.hidden` : name];
  const isWeight = name === "weights" && !isHidden;
  // A weight is made of all scores of its row.
  const cells = isWeight ? words.map((_, key) => `masked.${row}.${key}`) : [];
  const scores = scoresOf(data, row);
  const number = data.chosen.head * matrices.queries[0].length + column + 1;
  const filled = filling(data, scores, { name, row, column, number }, cells);
  const named = { word: words[row], query: words[row], key: words[column] };
  const places = { ...named, number, largest: decimal(scores.largest, decimals.sums) };
  const value = matrices[name][row][column];
  const notes = [note, isWeight ? noteOf(data.normalizer, scores, value, column) : null];
  return {
    title: t(`steps.of.${name}`, { ...named, number: column + 1 }),
    value,
    // Every other part between braces is a place.
    lines: lines.map((line) => {
      return line.split(/[{}]/).flatMap((part, at) => (at % 2 ? filled[part]() : part));
    }),
    decimals: decimals.sums,
    note: notes
      .filter(Boolean)
      .map((each) => t(each, places))
      .join(" "),
    cells,
  };
}

// A factor of a product; what is below 0 stands in brackets.
/** @param {number} value @returns {Part[]} */
export const factor = (value) => (value < 0 ? ["(", value, ")"] : [value]);

/** @param {number} left @param {number} right @returns {Part[]} */
export const product = (left, right) => [...factor(left), "·", ...factor(right)];

/** @param {Part[][]} terms @returns {Part[]} */
export function joined(terms, sign = " + ") {
  return terms.flatMap((each, at) => (at ? [sign, ...each] : each));
}

/**
 * @param {Part[]} parts @param {number} [decimals]
 * @param {(name: string, attributes: any, held: any) => any} [make]  An element, or one of a template
 * @returns {any}
 */
export function partElements(parts, decimals, make = element) {
  return parts.map((part) => {
    if (typeof part === "string") return part;
    if (typeof part !== "number") return make("sup", {}, partElements(part.up, decimals, make));
    return make("data", { value: part, title: part }, term(part, decimals));
  });
}

/** What is subtracted from all scores, so that their powers of e are not too large to read. */
export const shiftOf = (/** @type {number} */ largest) =>
  Math.abs(largest) > LARGEST_EXPONENT ? largest : 0;

// A power of e, as it is written.
/** @param {number} score @param {number} shift @returns {Part[]} */
export const powerOf = (score, shift) => [
  "e",
  { up: [score, ...(shift ? [" − ", ...factor(shift)] : [])] },
];

// The scores of a row: all, those of keys that are not hidden, and what powers of e are relative to.
/** @param {StepsData} data @param {number} row */
function scoresOf({ matrices, normalizer }, row) {
  const all = matrices.masked[row];
  const keys = range(all.length).filter((key) => all[key] !== null);
  const seen = keys.map((key) => all[key]);
  const largest = Math.max(...seen);
  const shift = shiftOf(largest);
  // SoftmaxOne has a score more, which is not in the row.
  const shared = normalizer === "softmax-one" ? [0, ...seen] : seen;
  return { all, keys, seen, largest, shift, shared };
}

/**
 * What the places of a cell's lines stand for.
 * @param {StepsData} data @param {ReturnType<typeof scoresOf>} scores
 * @param {{name: string, row: number, column: number, number: number}} cell  The place of its
 *   number in all heads together, from 1
 * @param {string[]} cells  To which those are added that the lines are made of
 * @returns {Record<string, () => Part | Part[]>}
 */
function filling(data, { all, keys, seen, largest, shift, shared }, cell, cells) {
  const { name, row, column, number } = cell;
  const { matrices, words, beta, projection, thresholds } = data;
  /** @param {string} matrix @param {number} line @param {number} at */
  const take = (matrix, line, at) => {
    cells.push(`${matrix}.${line}.${at}`);
    return matrices[matrix][line][at];
  };
  // Sparse normalizers leave scores out.
  const above = seen.filter((_, at) => matrices.weights[row][keys[at]] > 0);
  return {
    value: () => matrices[name][row][column],
    word: () => words[row],
    letter: () => name[0],
    number: () => subscript(column),
    // The number's name in the word's own vector, which queries, keys and values all are.
    x: () => {
      const others = ["queries", "keys", "values"].filter((each) => each !== name);
      for (const each of others) take(each, row, column);
      return `x${subscript(number - 1)}`;
    },
    // The word's embedding times a column of the matrix.
    entries: () => {
      const { x, [name]: rows } = projection;
      return joined(x[row].map((each, at) => product(each, rows[at][number - 1])));
    },
    products: () => {
      const places = range(matrices.queries[row].length);
      return joined(
        places.map((at) => product(take("queries", row, at), take("keys", column, at))),
      );
    },
    beta: () => beta,
    unscaled: () => factor(take("scores", row, column)),
    scaled: () => take("scaled", row, column),
    score: () => take("masked", row, column) ?? "−∞",
    seen: () => seen.flatMap((each, at) => (at ? [", ", each] : each)),
    largest: () => largest,
    powers: () => joined(shared.map((each) => powerOf(each, shift))),
    power: () => powerOf(all[column], shift),
    total: () => sum(shared.map((each) => Math.exp(each - shift))),
    share: () => Math.exp(all[column] - shift),
    inverse: () => ["e", { up: [-all[column]] }],
    above: () => joined(above.map(factor)),
    count: () => above.length,
    threshold: () => thresholds[row],
    subtracted: () => factor(thresholds[row]),
    shares: () =>
      joined(keys.map((key) => product(take("weights", row, key), take("values", key, column)))),
  };
}

/**
 * The name of a note on a weight, or null.
 * @param {string} normalizer @param {ReturnType<typeof scoresOf>} scores @param {number} weight
 * @param {number} key
 */
function noteOf(normalizer, { all, seen, largest, shift }, weight, key) {
  if (normalizer.startsWith("softmax")) return shift ? "steps.shifted" : null;
  if (normalizer !== "hardmax") return null;
  if (weight === 0) return all[key] === largest ? "steps.second" : "steps.smaller";
  const equals = seen.filter((each) => each === largest);
  return equals.length > 1 ? "steps.first" : "steps.largest";
}
