// A text that the story model has read in the browser, and what the views ask of it: the answers of
// the studio's Python, number by number.
import { ROLES as KEYS } from "../arcs.js";
import { largestAt, largestFirst, range, rowAt, sum } from "../numbers.js";
import { Refused } from "../source.js";
import { softmax } from "./story-model.js";
import { running, visible } from "./tokens.js";

/** @import { Tensor } from "../source.js" */
/** @import { HeadSteps, Pass, StoryModel } from "./story-model.js" */
/** @import { Tokens } from "./tokens.js" */

/** @typedef {[number, number]} Head  Its layer, and its number there */

const BAD_REQUEST = 400;
// The most rows and columns of a small map.
const SIDE = 32;
// Of several roles a head has the first of these, and opens first with the first of those.
const PRECEDENCE = ["broad", "induction", "duplicate", "previous", "first", "local"];
const TELLING = ["induction", "duplicate", "previous", "local", "first", "broad"];
const ROLES = ["previous", "first", "induction", "duplicate", "local", "broad"];
/** @type {Record<string, number>} */
const THRESHOLDS = Object.fromEntries(ROLES.map((role) => [role, role === "broad" ? 0.9 : 0.5]));
// Keys of a query that are shown in full, and a text so short that all are.
const SHOWN = 8;
const FEW = 12;

export class Reading {
  /**
   * @param {StoryModel} model @param {Tokens} tokenizer
   * @param {string[]} layers  Their names
   * @param {string} text
   * @param {Set<string>} [away]  Ablated heads
   */
  constructor(model, tokenizer, layers, text, away = new Set()) {
    const whole = tokenizer.encode(text);
    this.model = model;
    this.tokenizer = tokenizer;
    this.layers = layers;
    this.away = away;
    this.tokens = whole.slice(0, model.config.context_length);
    this.of = whole.length;
    this.words = this.tokens.map((token) => visible(tokenizer.text(token)));
    this.pass = /** @type {Pass} */ (model.run(this.tokens, away));
    this.heads = this.pass.heads.map(({ length }) => length);
    /** @type {Head[]} */
    this.every = this.heads.flatMap((count, layer) => {
      return range(count).map((head) => /** @type {Head} */ ([layer, head]));
    });
  }

  get length() {
    return this.tokens.length;
  }

  /** @param {Head} head @returns {HeadSteps} */
  steps([layer, head]) {
    const found = this.pass.heads[layer]?.[head];
    if (!found) throw new Refused(`there is no head ${layer}.${head}.`, BAD_REQUEST);
    return found;
  }

  /** @param {number} layer @param {number} query @param {number} key */
  sees(layer, query, key) {
    return key <= query && key >= this.model.firstKey(layer, query);
  }

  /** The weights of a head; −0 where the mask hides. @param {Head} head */
  weights(head) {
    const { length } = this;
    return this.steps(head).weights.map((weight, at) => {
      return this.sees(head[0], Math.floor(at / length), at % length) ? weight : -0;
    });
  }

  /** Of all heads the pooled maps, and the mean weight of the first token. @returns {Tensor} */
  maps() {
    const side = Math.min(SIDE, this.length);
    const values = this.every.flatMap((head) => [...this.pooled(head, side)]);
    return { values: Float32Array.from(values), shape: [this.every.length, side, side + 1] };
  }

  /** @param {Head} head @param {number} side */
  pooled(head, side) {
    const { length } = this;
    const { weights } = this.steps(head);
    const made = new Float32Array(side * (side + 1));
    const seen = new Uint8Array(made.length);
    const blocks = range(length).map((at) => blockOf(at, length, side));
    const sizes = range(side).map((block) => blocks.filter((each) => each === block).length);
    for (let query = 0; query < length; query++) {
      const row = blocks[query] * (side + 1);
      const share = 1 / sizes[blocks[query]];
      for (let key = 0; key < length; key++) {
        const at = row + blocks[key];
        made[at] += weights[query * length + key] * share;
        if (this.sees(head[0], query, key)) seen[at] = 1;
      }
      made[row + side] += weights[query * length] * share;
      seen[row + side] = 1;
    }
    return made.map((each, at) => (seen[at] ? each : -0));
  }

  /** Entropy and mean distance of each query, and what each key receives. @param {Head} head */
  along(head) {
    const { length } = this;
    const { weights } = this.steps(head);
    const values = new Float32Array(3 * length);
    for (let at = 0; at < weights.length; at++) {
      const [query, key] = [Math.floor(at / length), at % length];
      const weight = weights[at];
      if (weight > 0) values[query] -= weight * Math.log(weight);
      values[length + query] += weight * Math.abs(query - key);
      values[2 * length + key] += weight;
    }
    return { values, shape: [3, length] };
  }

  summary() {
    const found = new Map(this.every.map((head) => [head.join("."), this.scored(head)]));
    const byHead = (/** @type {(one: ReturnType<Reading["scored"]>) => any} */ part) => {
      return this.heads.map((count, layer) => {
        return range(count).map((head) => part(found.get(`${layer}.${head}`)));
      });
    };
    const scores = Object.fromEntries(
      ROLES.map((role) => [role, byHead(({ scores: own }) => own[role])]),
    );
    const roles = byHead(({ role }) => role);
    const entropy = byHead((one) => one.entropy);
    return {
      ...this.told(),
      roles,
      scores,
      thresholds: THRESHOLDS,
      entropy,
      side: Math.min(SIDE, this.length),
      whole: /** @type {Head[] | null} */ (null),
      first: this.firstHead(roles, scores, entropy),
    };
  }

  /** Tokens and heads, as all views tell them. */
  told() {
    const { words, of, layers, heads } = this;
    return { tokens: words, running: running(words), of, layers, heads };
  }

  /**
   * The highest score of the most telling role, or else the lowest entropy.
   * @param {(string | null)[][]} roles @param {Record<string, (number | null)[][]>} scores
   * @param {number[][]} entropy
   */
  firstHead(roles, scores, entropy) {
    for (const role of TELLING) {
      const having = this.every.filter(([layer, head]) => roles[layer][head] === role);
      if (having.length) return best(having, ([layer, head]) => scores[role][layer][head] ?? 0);
    }
    return best(this.every, ([layer, head]) => -entropy[layer][head]);
  }

  /** The scores of a head, its role and its mean entropy. @param {Head} head */
  scored(head) {
    const { length } = this;
    const entropies = this.along(head).values.subarray(0, length);
    const { weights } = this.steps(head);
    const sums = Object.fromEntries(ROLES.map((role) => [role, { sum: 0, even: 0, count: 0 }]));
    for (let query = 0; query < length; query++) {
      const first = this.model.firstKey(head[0], query);
      const keys = query - first + 1;
      for (const role of ROLES.slice(0, -1)) {
        const own = range(keys)
          .map((at) => first + at)
          .filter(
            (key) => (role === "local" || key !== query) && KEYS[role](query, key, this.tokens),
          );
        const mass = sum(own.map((key) => weights[query * length + key]));
        if (own.length > 0 && own.length < keys) tally(sums[role], mass, own.length / keys);
      }
      if (keys > 1) tally(sums.broad, entropies[query] / Math.log(keys), 0);
    }
    const scores = Object.fromEntries(
      ROLES.map((role) => [role, sums[role].count ? sums[role].sum / sums[role].count : null]),
    );
    const role = PRECEDENCE.find((each) => {
      const even = sums[each].even / sums[each].count;
      return scores[each] !== null && scores[each] >= even + THRESHOLDS[each] * (1 - even);
    });
    const entropy = sum(entropies) / length;
    return { scores, role: role ?? null, entropy };
  }

  /** The head whose last query looks most sharply at one token, but the first and the two last. */
  tellingHead() {
    const { values, shape } = this.maps();
    const [, side] = shape;
    return best(this.every, (_, at) => {
      const from = (at * side + side - 1) * (side + 1);
      return Math.max(0, ...values.subarray(from + 1, from + Math.max(1, side - 2)));
    });
  }

  /** @param {number} temperature  0 gives all to the most likely */
  next(temperature) {
    const logits = this.lastLogits();
    if (temperature > 0) return softmax(logits, 1 / temperature);
    const top = largestAt(logits);
    return Float64Array.from(logits, (_, at) => (at === top ? 1 : 0));
  }

  lastLogits() {
    return this.pass.logits.subarray((this.length - 1) * this.model.config.vocab_size);
  }

  /** The mean of −ln p of each token but the first; null of a single one. */
  loss() {
    const size = this.model.config.vocab_size;
    const targets = this.tokens.slice(1);
    if (!targets.length) return null;
    const losses = targets.map((token, at) => {
      return -Math.log(softmax(rowAt(this.pass.logits, at, size), 1)[token]);
    });
    return sum(losses) / targets.length;
  }

  // All numbers behind the context of a query of a head, or of its last query; a chosen key is shown
  // in any case.
  /** @param {Head} head @param {number | null} asked @param {number | null} chosen */
  cell(head, asked, chosen) {
    const { length, words } = this;
    const [layer] = head;
    const query = asked ?? length - 1;
    if (query >= length || (chosen ?? 0) >= length) {
      throw new Refused(`there are ${length} tokens, from 0 on.`, BAD_REQUEST);
    }
    const steps = this.steps(head);
    const { width } = this.model;
    const beta = 1 / Math.sqrt(width);
    const weights = [...rowAt(steps.weights, query, length)];
    /** @param {Float32Array} rows @param {number} at */
    const vector = (rows, at) => [...rowAt(rows, at, width)];
    const scoreOf = (/** @type {number} */ key) => steps.scores[query * length + key];
    const places = range(length);
    const seen = places.filter((key) => this.sees(layer, query, key));
    const largest = Math.max(...seen.map((key) => beta * scoreOf(key)));
    const powerOf = (/** @type {number} */ key) => Math.exp(beta * scoreOf(key) - largest);
    const shown = shownKeys(weights, query, chosen);
    const others = places.filter((key) => !shown.includes(key));
    const rest = sum(others.map((key) => weights[key]));
    const mean = range(width).map((at) => {
      return rest && sum(others.map((key) => weights[key] * steps.values[key * width + at])) / rest;
    });
    const hidden = others.filter((key) => !seen.includes(key)).length;
    const power = sum(others.filter((key) => seen.includes(key)).map(powerOf));
    return {
      tokens: words,
      of: this.of,
      layers: this.layers,
      heads: this.heads,
      layer,
      head: head[1],
      query,
      key: chosen,
      word: words[query],
      q: vector(steps.queries, query),
      context: vector(steps.context, query),
      keys: shown.map((key) => this.keyOf(head, query, key)),
      rest: others.length ? { count: others.length, hidden, weight: rest, mean, power } : null,
      weights,
      largest,
      total: sum(seen.map(powerOf)),
      beta,
      softcap: /** @type {number | null} */ (null),
      normalizer: "softmax",
      sink: /** @type {number | null} */ (null),
      key_head: [head[1], this.heads[layer]],
      is_product: true,
      changes: [...(beta === 1 ? [] : ["scaled"]), ...(seen.length < length ? ["masked"] : [])],
      hidden: length - seen.length,
    };
  }

  // Each key, its value and its bias for a query, side by side; −∞ where hidden.
  /** @param {Head} head @param {number} query @returns {Tensor} */
  vectors(head, query) {
    const { width } = this.model;
    const { keys, values } = this.steps(head);
    const rows = range(this.length).flatMap((key) => {
      const [own, value] = [keys, values].map((each) => rowAt(each, key, width));
      return [...own, ...value, this.sees(head[0], query, key) ? 0 : -Infinity];
    });
    return { values: Float32Array.from(rows), shape: [this.length, 2 * width + 1] };
  }

  // The numbers of a key on the way from a query to its context.
  /** @param {Head} head @param {number} query @param {number} key */
  keyOf(head, query, key) {
    const { width } = this.model;
    const { keys, values, scores, weights } = this.steps(head);
    const at = query * this.length + key;
    const scaled = scores[at] / Math.sqrt(width);
    const vector = (/** @type {Float32Array} */ rows) => [...rowAt(rows, key, width)];
    return {
      place: key,
      word: this.words[key],
      k: vector(keys),
      v: vector(values),
      score: scores[at],
      scaled,
      capped: scaled,
      bias: /** @type {number | null} */ (null),
      masked: this.sees(head[0], query, key) ? scaled : null,
      weight: weights[at],
    };
  }
}

// Count a query's mass on its keys, and what uniform attention would give them.
/** @param {Record<string, number>} tallied @param {number} mass @param {number} even */
function tally(tallied, mass, even) {
  tallied.sum += mass;
  tallied.even += even;
  tallied.count++;
}

/**
 * The first element with the largest number.
 * @template Element
 * @param {Element[]} elements @param {(element: Element, at: number) => number} number
 */
const best = (elements, number) => elements[largestAt(elements.map(number))];

// The block of a place, where a length is divided into blocks.
/** @param {number} at @param {number} length @param {number} blocks */
function blockOf(at, length, blocks) {
  const block = Math.floor((at * blocks) / length);
  return Math.floor(((block + 1) * length) / blocks) <= at ? block + 1 : block;
}

// Keys in order: those of the largest weights, the query's own, and the chosen one.
/** @param {number[]} weights @param {number} query @param {number | null} chosen */
function shownKeys(weights, query, chosen) {
  const places = weights.map((_, key) => key);
  if (places.length <= FEW) return places;
  const largest = largestFirst(places, (at) => weights[at]).slice(0, SHOWN);
  const all = new Set([...largest, query, ...(chosen === null ? [] : [chosen])]);
  return [...all].sort((one, other) => one - other);
}
