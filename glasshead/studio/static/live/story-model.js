// The story model in the browser: its forward pass, with every step of every head.
import { rowAt } from "../numbers.js";

/**
 * The config of the model, as of `LanguageModelConfig`, and where its weights lie.
 * @typedef {{vocab_size: number, context_length: number, d_model: number, num_heads: number,
 *   num_layers: number, d_hidden: number, rotary_base: number,
 *   local: {layers: number[], neighbours: number} | null}} StoryConfig
 */

/**
 * The steps of one head: rows of queries, keys and values, and square matrices.
 * @typedef {Record<"queries" | "keys" | "values" | "scores" | "weights" | "context", Float32Array>}
 *   HeadSteps
 */

// A run; `end` is what reaches the last norm at the last token.
/** @typedef {{heads: HeadSteps[][], end: Float32Array, logits: Float32Array}} Pass */

// PyTorch's own where a model states none.
const EPSILON = 2 ** -23;

export class StoryModel {
  // A model of weights as safetensors of float16.
  /** @param {StoryConfig} config @param {ArrayBuffer} file */
  constructor(config, file) {
    this.config = config;
    this.tensors = readTensors(file);
    this.width = config.d_model / config.num_heads;
  }

  get parameters() {
    return Object.values(this.tensors).reduce((sum, { length }) => sum + length, 0);
  }

  /** The first key that a query sees in a layer. @param {number} layer @param {number} query */
  firstKey(layer, query) {
    const { local } = this.config;
    return local?.layers.includes(layer) ? Math.max(0, query - local.neighbours) : 0;
  }

  // Run the model over tokens; the context of ablated heads, as "layer.head", is 0.
  /** @param {number[]} tokens @param {Set<string>} [away] @returns {Pass} */
  run(tokens, away = new Set()) {
    const { d_model, num_layers, d_hidden, vocab_size } = this.config;
    const { tensors } = this;
    const count = tokens.length;
    const embedding = tensors["embedding.tokens.weight"];
    const stream = new Float32Array(count * d_model);
    tokens.forEach((token, at) => {
      stream.set(rowAt(embedding, token, d_model), at * d_model);
    });
    const heads = [];
    for (let layer = 0; layer < num_layers; layer++) {
      const name = `blocks.${layer}`;
      const read = normed(stream, tensors[`${name}.around_attention.norm.weight`]);
      const stack = tensors[`${name}.attention.projections.stacks.0.weight`];
      const own = this.attend(product(read, stack, d_model), layer, count);
      heads.push(own);
      const joined = joinedContext(own, count, this.width, (head) => away.has(`${layer}.${head}`));
      add(stream, product(joined, tensors[`${name}.attention.output.weight`], d_model));
      const fed = normed(stream, tensors[`${name}.around_feed_forward.norm.weight`]);
      const hidden = product(fed, tensors[`${name}.feed_forward.hidden.stacks.0.weight`], d_model);
      const gated = swiglu(hidden, d_hidden);
      add(stream, product(gated, tensors[`${name}.feed_forward.output.weight`], d_hidden));
    }
    const last = normed(stream, tensors["norm.weight"]);
    const logits = product(last, embedding, d_model);
    const end = stream.slice(-d_model);
    return { heads, end, logits: logits.subarray(0, count * vocab_size) };
  }

  /**
   * What a head adds to a logit of the last token, or to that less another one.
   * @param {Pass} pass @param {number} layer @param {number} head @param {number} token
   * @param {number | null} against
   */
  logitPart({ heads, end }, layer, head, token, against) {
    const { d_model } = this.config;
    const { tensors, width } = this;
    const output = tensors[`blocks.${layer}.attention.output.weight`];
    const context = heads[layer][head].context.subarray(-width);
    const embedding = tensors["embedding.tokens.weight"];
    const scale = scaleOf(end);
    let part = 0;
    for (let row = 0; row < d_model; row++) {
      let written = 0;
      for (let at = 0; at < width; at++) {
        written += output[row * d_model + head * width + at] * context[at];
      }
      const other = against === null ? 0 : embedding[against * d_model + row];
      const pulling = embedding[token * d_model + row] - other;
      part += written * scale * tensors["norm.weight"][row] * pulling;
    }
    return part;
  }

  // Attend with each head of a layer, to queries, keys and values of all heads side by side.
  /** @param {Float32Array} projected @param {number} layer @param {number} count */
  attend(projected, layer, count) {
    const { d_model, num_heads, rotary_base } = this.config;
    const { width } = this;
    return Array.from({ length: num_heads }, (_, head) => {
      const [queries, keys, values] = [0, 1, 2].map((part) => {
        const rows = new Float32Array(count * width);
        for (let at = 0; at < count; at++) {
          const from = at * 3 * d_model + part * d_model + head * width;
          rows.set(projected.subarray(from, from + width), at * width);
        }
        return rows;
      });
      rotate(queries, width, rotary_base);
      rotate(keys, width, rotary_base);
      const scores = product(queries, keys, width);
      const weights = new Float32Array(count * count);
      for (let query = 0; query < count; query++) {
        const first = this.firstKey(layer, query);
        const row = scores.subarray(query * count + first, query * count + query + 1);
        weights.set(softmax(row, 1 / Math.sqrt(width)), query * count + first);
      }
      const context = mixed(weights, values, count, width);
      return { queries, keys, values, scores, weights, context };
    });
  }
}

// The tensors of a safetensors file, whose numbers are float16.
/** @param {ArrayBuffer} file @returns {Record<string, Float32Array>} */
function readTensors(file) {
  const size = Number(new DataView(file).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 8, size)));
  delete header.__metadata__;
  const named = Object.entries(header).map(([name, { data_offsets: offsets }]) => {
    const [begin, end] = offsets.map((/** @type {number} */ each) => 8 + size + each);
    return [name, Float32Array.from(new Uint16Array(file.slice(begin, end)), fromHalf)];
  });
  return Object.fromEntries(named);
}

/** The number that the bits of a float16 stand for. @param {number} bits */
function fromHalf(bits) {
  const exponent = (bits >> 10) & 31;
  const fraction = (bits & 1023) / 1024;
  const size = exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction;
  return bits >> 15 ? -size : size;
}

// x Wᵀ, of rows of `width` numbers.
/** @param {Float32Array} x @param {Float32Array} matrix @param {number} width */
function product(x, matrix, width) {
  const rows = x.length / width;
  const columns = matrix.length / width;
  const made = new Float32Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      let sum = 0;
      const [from, other] = [row * width, column * width];
      for (let at = 0; at < width; at++) sum += x[from + at] * matrix[other + at];
      made[row * columns + column] = sum;
    }
  }
  return made;
}

// Each row divided by its root mean square, times the weights.
/** @param {Float32Array} x @param {Float32Array} weight */
function normed(x, weight) {
  const width = weight.length;
  const made = new Float32Array(x.length);
  for (let from = 0; from < x.length; from += width) {
    const scale = scaleOf(x.subarray(from, from + width));
    for (let at = 0; at < width; at++) made[from + at] = x[from + at] * scale * weight[at];
  }
  return made;
}

/** One over the root mean square. @param {Float32Array} row */
function scaleOf(row) {
  const squares = row.reduce((all, each) => all + each ** 2, 0);
  return 1 / Math.sqrt(squares / row.length + EPSILON);
}

// Turn the two halves of each row by angles that grow with its place.
/** @param {Float32Array} rows @param {number} width @param {number} base */
function rotate(rows, width, base) {
  const half = width / 2;
  for (let place = 0; place * width < rows.length; place++) {
    for (let pair = 0; pair < half; pair++) {
      const angle = place * base ** (-pair / half);
      const [cosine, sine] = [Math.cos(angle), Math.sin(angle)];
      const [one, other] = [place * width + pair, place * width + pair + half];
      const [first, second] = [rows[one], rows[other]];
      rows[one] = first * cosine - second * sine;
      rows[other] = first * sine + second * cosine;
    }
  }
}

/** e^(β·s) over their sum. @param {Float32Array | number[]} scores @param {number} beta */
export function softmax(scores, beta) {
  let largest = -Infinity;
  for (const score of scores) largest = Math.max(largest, score);
  const powers = Float64Array.from(scores, (score) => Math.exp(beta * (score - largest)));
  const sum = powers.reduce((all, each) => all + each, 0);
  return powers.map((each) => each / sum);
}

/**
 * The values of all keys, each times its weight.
 * @param {Float32Array} weights @param {Float32Array} values @param {number} count
 * @param {number} width
 */
function mixed(weights, values, count, width) {
  const made = new Float32Array(count * width);
  for (let query = 0; query < count; query++) {
    for (let key = 0; key <= query; key++) {
      const weight = weights[query * count + key];
      for (let at = 0; at < width; at++) {
        made[query * width + at] += weight * values[key * width + at];
      }
    }
  }
  return made;
}

/**
 * The contexts of all heads side by side; of an ablated one zeros.
 * @param {HeadSteps[]} heads @param {number} count @param {number} width
 * @param {(head: number) => boolean} isAway
 */
function joinedContext(heads, count, width, isAway) {
  const made = new Float32Array(count * width * heads.length);
  heads.forEach(({ context }, head) => {
    if (isAway(head)) return;
    for (let at = 0; at < count; at++) {
      const row = rowAt(context, at, width);
      made.set(row, (at * heads.length + head) * width);
    }
  });
  return made;
}

/** silu(gate) · hidden, of rows that hold both. @param {Float32Array} both @param {number} width */
function swiglu(both, width) {
  const made = new Float32Array(both.length / 2);
  for (let at = 0; at < made.length; at++) {
    const from = Math.floor(at / width) * 2 * width + (at % width);
    made[at] = (both[from] / (1 + Math.exp(-both[from]))) * both[from + width];
  }
  return made;
}

/** @param {Float32Array} x @param {Float32Array} y */
function add(x, y) {
  for (let at = 0; at < x.length; at++) x[at] += y[at];
}
