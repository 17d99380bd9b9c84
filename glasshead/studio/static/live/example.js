// The worked example in the browser: the attention of a sentence, with any setting of the view.
import { NORMALIZERS } from "../normalizers.js";
import { dot, range, sum } from "../numbers.js";
import { Refused } from "../source.js";
import { generated, isWord, names, split } from "./words.js";

/** @typedef {number[][]} Matrix */

/**
 * A sentence as a tutorial works it: its words and their vectors, the word that is explained, and
 * the scale of the score.
 * @typedef {{words: string[], query: number, beta: "auto" | "1", x: Matrix,
 *   projection: Record<"queries" | "keys" | "values", Matrix> | null}} Worked
 */

/** @typedef {{formula: string, lines: string[], note?: string}} Sums */

/**
 * What the view offers, and the tutorials, as the library has them; sums by the mask, and by the
 * normalizer.
 * @typedef {{examples: string[],
 *   works: {text: string, first: string, sources: Record<string, Record<string, Worked>>}[],
 *   betas: string[], masks: string[],
 *   normalizers: {name: string, said: string, hardens: boolean}[],
 *   limits: {sentence: number, words: number, heads: number, decimals: number[]},
 *   sums: Record<"plain" | "projected", Record<string, Sums>>,
 *   masked: Record<string, Record<string, Sums>>, weighed: Record<string, Sums>}} ExampleTables
 */

/** @typedef {Record<string, any>} Asked */

const BAD_REQUEST = 400;
const TOO_MUCH = 413;
const ROOMY = 8;

// All matrices of a sentence's attention, and the settings that there are.
/** @param {ExampleTables} tables @param {Asked} asked  The settings that are not the default */
export function exampleOf(tables, asked) {
  const chosen = settingsOf(tables, asked);
  const { text, work, worked, mask, heads, head, decimals } = chosen;
  const { x, projection, words, query } = worked;
  const width = (projection?.queries ?? x)[0].length;
  if (width % heads || head >= heads) throw new Refused("no such head.", BAD_REQUEST);
  const dim = width / heads;
  const stops = betas(tables, worked.beta, chosen.normalizer, dim, decimals);
  const isHard = chosen.beta === "inf";
  const beta = valueOf(isHard ? worked.beta : chosen.beta, dim);
  const normalizer = isHard ? "hardmax" : chosen.normalizer;
  const matrices = matricesOf(worked, { heads, head, mask, beta, normalizer });
  const { masked, weights } = matrices;
  const threshold = THRESHOLDS[normalizer];
  const stop = stops.find(({ name }) => name === chosen.beta);
  const own = { source: work?.first ?? null, beta: worked.beta, query };
  return {
    text,
    examples: tables.examples,
    words: names(words),
    query,
    chosen: {
      source: chosen.source,
      beta: (stop ?? stops.find(({ value }) => value === beta)).name,
      mask,
      normalizer: chosen.normalizer,
      heads,
      head,
      decimals,
    },
    beta,
    normalizer,
    matrices,
    sums: sumsOf(tables, { projection, mask, normalizer, beta, decimals, isHard }),
    projection: projection && { x, ...projection },
    scales: [
      scale(matrices, ["queries", "keys", "values", "context"]),
      scale(matrices, ["scores", "scaled", "masked"]),
      { names: ["weights"], top: 1 },
    ],
    decimals: { cells: Math.min(fitting(tables, work, words), decimals), sums: decimals },
    thresholds: threshold ? masked.map((row, at) => threshold(row, weights[at])) : null,
    options: optionsOf(tables, chosen, stops, width),
    defaults: { ...DEFAULTS, ...own },
  };
}

/**
 * What each setting offers.
 * @param {ExampleTables} tables @param {ReturnType<typeof settingsOf>} chosen
 * @param {ReturnType<typeof betas>} stops
 * @param {number} width  Of the vectors of all heads
 */
function optionsOf(tables, { work, worked, heads }, stops, width) {
  return {
    source: Object.keys(work?.sources ?? {}).map((name) => ({ name })),
    beta: stops,
    mask: tables.masks.map((name) => ({ name })),
    normalizer: tables.normalizers,
    heads: numbered(range(width + 1).filter((each) => each && width % each === 0)),
    head: numbered(range(heads)),
    query: names(worked.words).map((said, name) => ({ name, said })),
    decimals: numbered(tables.limits.decimals),
  };
}

const DEFAULTS = { mask: "none", normalizer: "softmax", heads: 1, head: 0, decimals: 4 };

// The settings that are asked for, or else the default, and the sentence that they are of.
/** @param {ExampleTables} tables @param {Asked} asked */
function settingsOf(tables, asked) {
  const { text = tables.examples[0], mask, normalizer, ...numbers } = { ...DEFAULTS, ...asked };
  const work = tables.works.find((each) => each.text === text.trim().replace(/!$/, ""));
  const source = work ? (asked.source ?? work.first) : null;
  const ways = work?.sources[source];
  if (work && !ways) throw new Refused("no tutorial has this letter.", BAD_REQUEST);
  const worked = ways ? ways[mask === "causal" ? "causal" : "none"] : madeUp(tables, text);
  const [heads, head, decimals] = [numbers.heads, numbers.head, numbers.decimals].map(Number);
  const beta = asked.beta ?? worked.beta;
  return { text, work, source, worked, mask, normalizer, beta, heads, head, decimals };
}

/**
 * The matrices of one head.
 * @param {Worked} worked
 * @param {{heads: number, head: number, mask: string, beta: number, normalizer: string}} settings
 */
function matricesOf({ x, projection }, { heads, head, mask, beta, normalizer }) {
  const vectors = (/** @type {"queries" | "keys" | "values"} */ name) => {
    const rows = projection ? times(x, projection[name]) : x;
    const size = rows[0].length / heads;
    return rows.map((row) => row.slice(head * size, (head + 1) * size));
  };
  const [queries, keys, values] = [vectors("queries"), vectors("keys"), vectors("values")];
  const scores = queries.map((query) => keys.map((key) => dot(query, key)));
  const scaled = scores.map((row) => row.map((score) => score * beta));
  const masked = scaled.map((row, query) => {
    return row.map((score, key) => (sees(mask, query, key) ? score : null));
  });
  const weights = masked.map((row) => {
    return NORMALIZERS[normalizer](row.map((score) => score ?? -Infinity));
  });
  const context = times(weights, values);
  return { queries, keys, values, scores, scaled, masked, weights, context };
}

/** @param {ExampleTables} tables @param {Record<string, any>} settings */
function sumsOf(tables, { projection, mask, normalizer, beta, decimals, isHard }) {
  const formula = `× β = ${figure(beta, decimals)}`;
  const note = isHard ? { note: "steps.hard" } : {};
  return {
    ...tables.sums[projection ? "projected" : "plain"],
    ...tables.masked[mask],
    weights: tables.weighed[normalizer],
    scaled: { ...tables.sums.plain.scaled, formula, ...note },
  };
}

/**
 * The decimals that fit into a cell.
 * @param {ExampleTables} tables @param {ExampleTables["works"][number]} work
 * @param {string[]} words
 */
function fitting(tables, work, words) {
  if (work === tables.works[0]) return 4;
  return words.length <= ROOMY ? 3 : 0;
}

// A sentence of one's own, whose vectors are made up.
/** @param {ExampleTables} tables @param {string} text @returns {Worked} */
function madeUp({ limits }, text) {
  const words = split(text);
  if (!words.length) throw new Refused("Enter at least one word.", BAD_REQUEST);
  if (words.length > limits.words || text.length > limits.sentence) {
    const sentence = `A sentence must have at most ${limits.words} words and marks, got ${words.length}.`;
    throw new Refused(sentence, TOO_MUCH);
  }
  const last = words.findLastIndex(isWord);
  const query = last < 0 ? words.length - 1 : last;
  return { words, query, beta: "auto", x: words.map(generated), projection: null };
}

/** @param {string} mask @param {number} query @param {number} key */
function sees(mask, query, key) {
  if (mask === "causal") return key <= query;
  return mask === "none" || Math.abs(query - key) <= 1;
}

/**
 * The stops of the slider, from soft to hard; of two names of one number the default's stays.
 * @param {ExampleTables} tables @param {string} own @param {string} normalizer @param {number} dim
 * @param {number} decimals
 */
function betas({ betas: all, normalizers }, own, normalizer, dim, decimals) {
  const auto = dim ** -0.5;
  const twin = all.find((name) => name !== "auto" && Number(name) === auto);
  const hidden = twin && twin === own ? "auto" : twin;
  /** @type {{name: string, value: number | null, said: string}[]} */
  const stops = all
    .filter((name) => name !== hidden && name !== "inf")
    .map((name) => {
      const value = valueOf(name, dim);
      const said = figure(value, decimals);
      return { name, value, said: name === "auto" ? `1/√${dim} = ${said}` : said };
    })
    .sort((one, other) => one.value - other.value);
  const hardens = normalizers.find(({ name }) => name === normalizer)?.hardens;
  return hardens ? [...stops, { name: "inf", value: null, said: "∞" }] : stops;
}

/** @param {string} name @param {number} dim */
const valueOf = (name, dim) => (name === "auto" ? dim ** -0.5 : Number(name));

/** The threshold τ of a row. @type {Record<string, (row: (number | null)[], weights: number[]) => number>} */
const THRESHOLDS = {
  sparsemax: (row, weights) => {
    const above = row.filter((_, at) => weights[at] > 0);
    return (sum(above) - 1) / above.length;
  },
  entmax15: (row, weights) => {
    const first = weights.findIndex((weight) => weight === Math.max(...weights));
    return row[first] / 2 - Math.sqrt(weights[first]);
  },
};

/** @param {Matrix} left @param {Matrix} right */
function times(left, right) {
  const columns = right[0].map((_, at) => right.map((other) => other[at]));
  return left.map((row) => columns.map((column) => dot(row, column)));
}

// Matrices with one scale of colors, and its upper end.
/** @param {Record<string, (number | null)[][]>} matrices @param {string[]} of */
function scale(matrices, of) {
  const sizes = of.flatMap((name) => matrices[name].flat().map((each) => Math.abs(each ?? 0)));
  return { names: of, top: Math.max(...sizes) };
}

/** A number shortly, as the library writes one. @param {number} value @param {number} decimals */
function figure(value, decimals) {
  const [, after = ""] = String(value).split(".");
  const isRoomy = value >= 1;
  const digits = decimals + (isRoomy ? Math.min(1 + Math.floor(Math.log10(value)), 4) : 0);
  const whole = String(value).split(".")[0].length;
  const most = isRoomy ? digits - whole : digits;
  return after.length <= most ? String(value) : value.toFixed(Math.max(0, most));
}

const numbered = (/** @type {number[]} */ numbers) => numbers.map((name) => ({ name }));
