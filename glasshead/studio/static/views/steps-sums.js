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
 * @property {string[]} words
 * @property {number} query
 * @property {number} beta
 * @property {string} normalizer
 * @property {{cells: number, sums: number}} decimals  The most of a number in a cell and elsewhere
 * @property {Record<string, (number | null)[][]>} matrices  A hidden score is null
 * @property {Record<string, {formula: string, lines: string[], note?: string}>} sums
 * @property {Record<string, number[][]> | null} projection  The embeddings x, and the matrices
 * @property {{names: string[], top: number}[]} scales
 * @property {number[] | null} thresholds
 * @property {Record<string, any>} chosen
 * @property {Record<string, any>} defaults
 * @property {Record<string, Option[]>} options
 */

/**
 * An option of a setting: what stands for it in an address, and how it is said; without that, it is
 * a number, or said in the page's language.
 * @typedef {{name: string | number, said?: string, hardens?: boolean}} Option
 */

/**
 * A part of a line: a text, a number as it was computed, or an exponent.
 * @typedef {string | number | {up: Part[]}} Part
 */

/**
 * The sum behind a cell, and the cells that it was made of.
 * @typedef {object} Sum
 * @property {string} title
 * @property {number | null} value
 * @property {Part[][]} lines
 * @property {number} decimals
 * @property {string} note
 * @property {string[]} cells
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
  const { matrices, sums, words } = data;
  const maskable = name === "masked" || name === "weights";
  const isHidden = maskable && matrices.masked[row][column] === null;
  const { lines, note } = sums[isHidden ? `${name}.hidden` : name];
  const terms = new Terms(data, name, row, column);
  const isWeight = name === "weights" && !isHidden;
  // A weight is made of all scores of its row.
  if (isWeight) words.forEach((_, key) => terms.take("masked", row, key));
  const named = { word: words[row], query: words[row], key: words[column] };
  const decimals = data.decimals.sums;
  const largest = decimal(terms.largest(), decimals);
  const places = { ...named, number: terms.dimension(), largest };
  const notes = [note, isWeight && terms.note()].filter(Boolean);
  return {
    title: t(`steps.of.${name}`, { ...named, number: column + 1 }),
    value: matrices[name][row][column],
    lines: lines.map((line) => filledIn(line, terms)),
    decimals,
    note: notes.map((each) => t(/** @type {string} */ (each), places)).join(" "),
    cells: terms.cells,
  };
}

/**
 * A line with its places filled in: every other part between braces is a place.
 * @param {string} line @param {Terms} terms @returns {Part[]}
 */
function filledIn(line, terms) {
  return line.split(/[{}]/).flatMap((part, at) => {
    return at % 2 ? terms[/** @type {"value"} */ (part)]() : part;
  });
}

/**
 * A factor of a product; what is below 0 stands in brackets.
 * @param {number} value @returns {Part[]}
 */
export function factor(value) {
  return value < 0 ? ["(", value, ")"] : [value];
}

/** @param {number} left @param {number} right @returns {Part[]} */
export function product(left, right) {
  return [...factor(left), "·", ...factor(right)];
}

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

/** What the places of a cell's lines stand for: a method for each name. */
class Terms {
  /**
   * @param {StepsData} data
   * @param {string} name  Of the matrix
   * @param {number} row @param {number} column
   */
  constructor(data, name, row, column) {
    this.data = data;
    this.name = name;
    this.row = row;
    this.column = column;
    /** @type {string[]} */
    this.cells = [];
    this.width = data.matrices.queries[0].length;
    const masked = data.matrices.masked[row];
    this.seenKeys = range(masked.length).filter((key) => masked[key] !== null);
    this.scores = this.seenKeys.map((key) => masked[key]);
    this.ownScore = masked[column];
    const largest = Math.max(...this.scores);
    this.shift = Math.abs(largest) > LARGEST_EXPONENT ? largest : 0;
    // SoftmaxOne has a score more, which is not in the row.
    this.shared = data.normalizer === "softmax-one" ? [0, ...this.scores] : this.scores;
    // Sparse normalizers leave scores out.
    const weights = data.matrices.weights[row];
    this.scoresAbove = this.scores.filter((_, at) => weights[this.seenKeys[at]] > 0);
  }

  /**
   * A number of a matrix, which the sum is made of.
   * @param {string} name @param {number} row @param {number} column
   */
  take(name, row, column) {
    this.cells.push(`${name}.${row}.${column}`);
    return this.data.matrices[name][row][column];
  }

  /** @returns {Part | Part[]} */
  value() {
    return this.data.matrices[this.name][this.row][this.column];
  }

  word() {
    return this.data.words[this.row];
  }

  letter() {
    return this.name[0];
  }

  number() {
    return subscript(this.column);
  }

  /** The number's name in the word's own vector, which queries, keys and values all are. */
  x() {
    for (const each of ["queries", "keys", "values"]) {
      if (each !== this.name) this.take(each, this.row, this.column);
    }
    return `x${subscript(this.dimension() - 1)}`;
  }

  /** The word's embedding times a column of the matrix. */
  entries() {
    const { x, [this.name]: rows } = this.data.projection;
    const column = this.dimension() - 1;
    return joined(x[this.row].map((each, at) => product(each, rows[at][column])));
  }

  /** The place of the number in all heads together, from 1. */
  dimension() {
    return this.data.chosen.head * this.width + this.column + 1;
  }

  products() {
    const { row, column } = this;
    const products = range(this.width).map((at) => {
      return product(this.take("queries", row, at), this.take("keys", column, at));
    });
    return joined(products);
  }

  beta() {
    return this.data.beta;
  }

  unscaled() {
    return factor(this.take("scores", this.row, this.column));
  }

  scaled() {
    return this.take("scaled", this.row, this.column);
  }

  score() {
    return this.take("masked", this.row, this.column) ?? "−∞";
  }

  seen() {
    const scores = this.scores.map((each) => [each]);
    return joined(scores, ", ");
  }

  largest() {
    return Math.max(...this.scores);
  }

  powers() {
    return joined(this.shared.map((each) => this.powerOf(each)));
  }

  power() {
    return this.powerOf(this.ownScore);
  }

  /** @param {number} score @returns {Part[]} */
  powerOf(score) {
    return ["e", { up: this.shift ? [score, " − ", ...factor(this.shift)] : [score] }];
  }

  total() {
    return sum(this.shared.map((each) => Math.exp(each - this.shift)));
  }

  share() {
    return Math.exp(this.ownScore - this.shift);
  }

  /** @returns {Part[]} */
  inverse() {
    return ["e", { up: [-this.ownScore] }];
  }

  above() {
    return joined(this.scoresAbove.map(factor));
  }

  count() {
    return this.scoresAbove.length;
  }

  threshold() {
    return this.data.thresholds[this.row];
  }

  subtracted() {
    return factor(this.threshold());
  }

  shares() {
    const { row, column } = this;
    const products = this.seenKeys.map((key) => {
      return product(this.take("weights", row, key), this.take("values", key, column));
    });
    return joined(products);
  }

  /** The name of a note on this weight, or null. */
  note() {
    const { normalizer } = this.data;
    if (normalizer.startsWith("softmax")) return this.shift ? "steps.shifted" : null;
    if (normalizer !== "hardmax") return null;
    const largest = this.largest();
    if (this.value() === 0) return this.ownScore === largest ? "steps.second" : "steps.smaller";
    const equals = this.scores.filter((each) => each === largest);
    return equals.length > 1 ? "steps.first" : "steps.largest";
  }
}
