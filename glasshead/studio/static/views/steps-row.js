// One query on its way to its context: what the walk shows in each of its frames, in numbers, in a
// line and in a sentence.
import { decimal, grouped, largestFirst, range, sum } from "../numbers.js";
import { factor, joined, powerOf, product, shiftOf } from "./steps-sums.js";

/** @import { Translate } from "../app.js" */
/** @import { Part, StepsData } from "./steps-sums.js" */

/**
 * A key, and its numbers for the query; a hidden one has no `masked`.
 * @typedef {{place: number, word: string, k: number[], v: number[], score: number, scaled: number,
 *   capped: number, bias: number | null, masked: number | null, weight: number}} Key
 */

/**
 * The keys that are not shown, together: how many, their weight, the mean of their values by weight,
 * and their part of the sum of powers.
 * @typedef {{count: number, hidden: number, weight: number, mean: number[], power: number}} Rest
 */

/**
 * @typedef {object} Row
 * @property {number} query  Its place
 * @property {string} word @property {number[]} q @property {number[]} context
 * @property {Key[]} keys @property {Rest | null} rest @property {number} beta
 * @property {boolean} [isHard]  Whether β is ∞, and `beta` that of the scores
 * @property {number | null} softcap @property {string} normalizer  As it is said
 * @property {string} kind  The normalizer's name
 * @property {boolean} isExponential
 * @property {boolean} sharesOne  Whether weights share what there is, as all but sigmoids do
 * @property {number | null} sink  The score of what takes a part of the weight
 * @property {boolean} isProduct  Whether a score is q · k
 * @property {number} hidden  Keys that the mask hides, of all
 * @property {number} shift  What is subtracted from all scores before they become powers of e
 * @property {number} total  Of these powers
 * @property {string[]} changes  The steps between scores and weights that change a number
 * @property {number} [decimals]  The most of a number
 */

// How many keys that are not shown may have a weight; of hidden ones alone, how many they are.
/** @param {Rest} rest */
export const othersOf = ({ count, hidden }) => count - hidden || count;

// A frame: its phase, and the number of the key that it is of. A phase of "rest" is of the others.
/** @typedef {{phase: string, key?: number, rest?: boolean}} Frame */

// Numbers of vectors whose product is written as a whole, terms of a longer sum that are written, and
// numbers of a vector that have room to be written.
const FACTORS = 6;
const TERMS = 4;
export const NUMBERS = 8;
// The steps that may change nothing, in their order.
const IDLE = ["scaled", "capped", "biased", "masked", "dropped"];

/** The properties of the weights of a normalizer, by its name. @param {string} kind */
export function traitsOf(kind) {
  return { kind, isExponential: kind.startsWith("softmax"), sharesOne: kind !== "sigmoid" };
}

/** The steps that change nothing. @param {Row} row */
export const idleOf = ({ changes }) => IDLE.filter((phase) => !changes.includes(phase));

// Write the places of keys of the same word after the word.
/** @param {Key[]} keys @returns {Key[]} */
export function numbered(keys) {
  return keys.map((key) => {
    const isAlone = keys.every((other) => other === key || other.word !== key.word);
    return isAlone ? key : { ...key, word: `${key.word} ${grouped(key.place)}` };
  });
}

// The row of a word of a sentence, and the name of its normalizer.
/** @param {StepsData} data @param {number} query @param {string} normalizer @returns {Row} */
export function rowOf(data, query, normalizer) {
  const { matrices, words, beta, decimals } = data;
  const masked = matrices.masked[query];
  const seen = masked.filter((score) => score !== null);
  const shift = shiftOf(Math.max(...seen));
  const sink = data.normalizer === "softmax-one" ? 0 : null;
  const powers = sink === null ? seen : [...seen, sink];
  const hidden = masked.length - seen.length;
  const isHard = data.chosen.beta === "inf";
  return {
    query,
    word: words[query],
    q: matrices.queries[query],
    context: matrices.context[query],
    keys: numbered(
      words.map((word, place) => ({
        place,
        word,
        k: matrices.keys[place],
        v: matrices.values[place],
        score: matrices.scores[query][place],
        scaled: matrices.scaled[query][place],
        capped: matrices.scaled[query][place],
        bias: /** @type {number} */ (null),
        masked: masked[place],
        weight: matrices.weights[query][place],
      })),
    ),
    rest: null,
    beta,
    isHard,
    softcap: null,
    normalizer,
    ...traitsOf(data.normalizer),
    sink,
    isProduct: true,
    hidden,
    shift,
    total: sum(powers.map((score) => Math.exp(score - shift))),
    changes: [...(beta === 1 && !isHard ? [] : ["scaled"]), ...(hidden ? ["masked"] : [])],
    decimals: decimals.sums,
  };
}

// A whole row has frames of steps that change nothing.
/** @param {Row} row @returns {Frame[]} */
export function framesOf(row, isWhole = false) {
  const { keys, rest, isExponential } = row;
  // At β = ∞ no score is scaled.
  const folded = [...(isWhole ? [] : idleOf(row)), row.isHard && "scaled"];
  const powers = isExponential ? ["power"] : [];
  const shared = [...IDLE.slice(0, -1), ...powers, "weights", ...IDLE.slice(-1)];
  return [
    { phase: "query" },
    ...keys.map((_, key) => ({ phase: "score", key })),
    ...(rest ? [{ phase: "score", rest: true }] : []),
    ...shared.filter((phase) => !folded.includes(phase)).map((phase) => ({ phase })),
    ...keys.flatMap(({ weight }, key) => (weight > 0 ? [{ phase: "mix", key }] : [])),
    ...(rest?.weight > 0 ? [{ phase: "mix", rest: true }] : []),
    { phase: "context" },
  ];
}

// Describe a phase in a sentence.
/** @param {Row} row @param {Frame} frame @param {Translate} t */
export function sentenceOf(row, { phase, rest }, t) {
  if (idleOf(row).includes(phase)) return t(`walk.idle.${phase}`);
  if (phase === "weights" && row.isHard) return t("steps.hard");
  const exponential = row.sink === null ? "weights" : "sunk";
  const normalized = row.isExponential ? exponential : "normalized";
  const queried = row.q.length === 1 ? "query.one" : "query";
  const name = { weights: normalized, query: queried }[phase] ?? phase;
  const ends = { word: row.word, count: row.q.length, normalizer: row.normalizer };
  const numbers = { beta: decimal(row.beta, row.decimals), cap: row.softcap, hidden: row.hidden };
  const said = t(`walk.${name}`, { ...ends, ...numbers });
  if (phase === "power" && row.shift) {
    return `${said} ${t("steps.shifted", { largest: decimal(row.shift, row.decimals) })}`;
  }
  return rest ? `${said} ${t(`walk.${phase}.rest`, { count: othersOf(row.rest) })}` : said;
}

// The numbers of a frame; of what happens to all keys at once, those of the largest weight.
/** @param {Row} row @param {Frame} frame @returns {Part[]} */
export function lineOf(row, { phase, key, rest }) {
  if (rest && phase === "score") return othersLine(row);
  if (rest) return ["Σ p·v = ", row.rest.weight, "·", ...vector(row.rest.mean)];
  const byWeight = largestFirst(row.keys, ({ weight }) => weight);
  // The power of the largest score less itself is 1.
  const told = byWeight[Number(phase === "power" && row.shift && byWeight[1]?.weight > 0)];
  const one = row.keys[key] ?? told;
  const power = Math.exp(one.masked - row.shift);
  if (phase === "dropped") return [`p(${one.word}) = `, one.weight];
  if (phase !== "scaled" && idleOf(row).includes(phase)) {
    // A mask comes after a bias.
    return [`s(${one.word}) = `, phase === "masked" ? one.masked : one.capped];
  }
  /** @type {Record<string, () => Part[]>} */
  const lines = {
    query: () => [`q(${row.word}) = `, ...vector(row.q)],
    score: () => [`s(${one.word}) = `, ...products(row, one), one.score],
    scaled: () => [`β·s(${one.word}) = `, ...product(row.beta, one.score), " = ", one.scaled],
    capped: () => [row.softcap, "·tanh(", one.scaled, " / ", row.softcap, ") = ", one.capped],
    biased: () => [`s(${one.word}) = `, one.capped, " + ", ...factor(one.bias), " = ", one.masked],
    masked: () => [`s(${hiddenOf(row)}) → −∞`],
    power: () => [...powerOf(one.masked, row.shift), " = ", power],
    weights: () => {
      const share = row.isExponential ? [power, " / ", row.total, " = "] : [];
      return [`p(${one.word}) = `, ...share, one.weight];
    },
    mix: () => [`p·v(${one.word}) = `, one.weight, "·", ...vector(one.v)],
    context: () => [`c(${row.word}) = Σ p·v = `, ...vector(row.context)],
  };
  return lines[phase]();
}

const othersLine = (/** @type {Row} */ { isProduct }) => [isProduct ? "s = q·k" : "…"];

function hiddenOf(/** @type {Row} */ { keys }) {
  const names = keys.filter(({ masked }) => masked === null).map(({ word }) => word);
  return names.length > 3 ? `${names.slice(0, 3).join(", ")}, …` : names.join(", ") || "…";
}

// The products of a score, of a long vector the largest ones and the sum of the others.
/** @param {Row} row @param {Key} key @returns {Part[]} */
function products({ q, isProduct }, { k, score }) {
  if (!isProduct) return [];
  const all = range(q.length);
  if (q.length <= FACTORS) {
    return ["q·k = ", ...joined(all.map((at) => product(q[at], k[at]))), " = "];
  }
  const largest = largestFirst(all, (at) => Math.abs(q[at] * k[at])).slice(0, TERMS);
  const others = score - sum(largest.map((at) => q[at] * k[at]));
  const terms = largest.map((at) => product(q[at], k[at]));
  // What the others add, so that the sum is that of all.
  return ["q·k = ", ...joined([...terms, ["… (", others, ")"]]), " = "];
}

/** @param {number[]} values @returns {Part[]} */
export function vector(values) {
  const shown = values.slice(0, NUMBERS).map((each) => [each]);
  return ["[", ...joined(shown, ", "), values.length > NUMBERS ? ", …]" : "]"];
}
