// The data of a page without a server: what the page holds, and what it works out itself, the
// example and the story model.
import { largestFirst } from "../numbers.js";
import { given } from "../dom.js";
import { Refused, keep, keptText, keyOf } from "../source.js";
import { compared } from "./compared.js";
import { exampleOf } from "./example.js";
import { Reading } from "./reading.js";
import { Report, bytesOf } from "./report.js";
import { StoryModel } from "./story-model.js";
import { Tokens, visible } from "./tokens.js";

/** @import { Parameters, Tensor } from "../source.js" */
/** @import { Answers } from "./report.js" */
/** @import { ExampleTables } from "./example.js" */
/** @import { StoryConfig } from "./story-model.js" */

/**
 * The story model as the page holds it: its layers' names and masks, and its safetensors in base64.
 * @typedef {{config: StoryConfig, vocabulary: Record<string, number>, merges: [string, string][],
 *   layers: string[], masks: string[], weights: string}} Story
 */

/** @typedef {Record<string, any>} Asked */

const NOT_FOUND = 404;
const BAD_REQUEST = 400;
// Passes that are remembered: of a text with and without heads, and some before.
const PASSES = 8;

export class Live extends Report {
  offline = false;

  constructor(/** @type {Answers & {example: ExampleTables}} */ answers) {
    super(answers);
    this.example = answers.example;
    this.texts = /** @type {Map<string, string>} */ (new Map());
    this.readings = /** @type {Map<string, Reading>} */ (new Map());
    /** @type {Promise<{model: StoryModel, tokens: Tokens, layers: string[], masks: string[]}>} */
    this.opened = null;
  }

  async send(/** @type {string} */ text) {
    if (!text.trim()) throw new Refused((await this.words())["prompt.empty"], BAD_REQUEST);
    const name = nameOf(text);
    this.texts.set(name, text);
    keep("sessionStorage", `text-${name}`, text);
    return name;
  }

  /** @param {string} path @param {Parameters} [params] */
  async json(path, params) {
    return this.answer(path, Object.fromEntries(given(params)));
  }

  /**
   * @param {string} path @param {Parameters} [params]
   * @param {import("../source.js").Options} [options] @returns {Promise<any>}
   */
  async stream(path, params, { onProgress } = {}) {
    onProgress?.({ stage: "heads.opening", done: 0, of: 1 });
    return this.json(path, params);
  }

  /** @param {string} path @param {Parameters} [params] @returns {Promise<Tensor>} */
  async numbers(path, params) {
    if (Object.hasOwn(this.tensors, keyOf(path, params))) return super.numbers(path, params);
    return this.answer(path, Object.fromEntries(given(params)));
  }

  /** @param {string} path @param {Asked} asked @returns {Promise<any>} */
  async answer(path, asked) {
    const stored = await this.answers;
    const key = keyOf(path, asked);
    if (Object.hasOwn(stored, key)) return structuredClone(stored[key]);
    if (path === "steps") return exampleOf(this.example, asked);
    if (path === "steps/words") return this.wordless();
    if (path.startsWith("texts/")) return { text: this.textOf(path.slice("texts/".length)) };
    const view = ANSWERS[path];
    if (!view) throw new Refused(this.missing, NOT_FOUND);
    return view(this, asked);
  }

  async words() {
    return (await this.answers)[keyOf("words", { lang: this.language ?? "en" })];
  }

  /** What stands for the explanation of a sentence, which takes the library. */
  async wordless() {
    const words = await this.words();
    const [title, text] = [words["steps.words"], [words["live.words"]]];
    const none = /** @type {any[]} */ ([]);
    const step = { name: "opening", title, text, formula: none, numbers: none, printed: none };
    return { title, notes: none, steps: [{ ...step, why: none }] };
  }

  textOf(/** @type {string} */ name) {
    const text = this.texts.get(name) ?? keptText(name);
    if (text === null) throw new Refused(this.missing, NOT_FOUND);
    return text;
  }

  /** The story model, once the page has arrived. */
  story() {
    this.opened ??= held("story").then((text) => {
      /** @type {Story} */
      const { config, vocabulary, merges, weights, layers, masks } = JSON.parse(text);
      const model = new StoryModel(config, bytesOf(weights).buffer);
      return { model, tokens: new Tokens(vocabulary, merges), layers, masks };
    });
    return this.opened;
  }

  // A text as the model reads it, without some heads.
  /** @param {string} text @param {string} [without]  Heads, as the address lists them */
  async reading(text, without = "") {
    const { model, tokens, layers } = await this.story();
    const away = new Set(without.split(",").filter(Boolean));
    const key = [...[...away].sort(), text].join(" ");
    const known = this.readings.get(key) ?? new Reading(model, tokens, layers, text, away);
    this.readings.delete(key);
    this.readings.set(key, known);
    if (this.readings.size > PASSES) this.readings.delete(this.readings.keys().next().value);
    return known;
  }

  /** A text that was sent, as the model reads it. @param {Asked} asked */
  sent({ text }) {
    return this.reading(this.textOf(text));
  }
}

/** What the views of the model ask for. @type {Record<string, (live: Live, asked: Asked) => Promise<any>>} */
const ANSWERS = {
  prompt: async (live, { text, without, top = 10, temperature = 1 }) => {
    const [own, whole] = [await live.reading(text, without), await live.reading(text)];
    const [now, before] = [own, whole].map((each) => each.next(Number(temperature)));
    const { tokens } = await live.story();
    const ranked = largestFirst([...now.keys()], (at) => now[at]);
    return {
      ...own.told(),
      first: own.tellingHead(),
      predicts: "tokens",
      blank: null,
      likely: ranked.slice(0, Number(top)).map((token) => {
        return { text: visible(tokens.text(token)), p: now[token], before: before[token] };
      }),
      loss: own.loss(),
      loss_before: whole.loss(),
    };
  },
  "prompt/compared": async (live, { text, minus, without, top = 10, temperature = 1 }) => {
    const { tokens } = await live.story();
    const readings = [await live.reading(text, without), await live.reading(minus, without)];
    return compared(
      /** @type {[Reading, Reading]} */ (readings),
      Number(top),
      Number(temperature),
      (token) => visible(tokens.text(token)),
    );
  },
  "prompt/maps": async (live, { text, without }) => (await live.reading(text, without)).maps(),
  "prompt/weights": async (live, { text, without, heads }) => {
    const reading = await live.reading(text, without);
    const maps = heads.split(",").map((/** @type {string} */ head) => {
      const [layer, own] = head.split(".");
      return [...reading.weights(headOf(layer, own))];
    });
    const { length } = reading;
    return { values: Float32Array.from(maps.flat()), shape: [maps.length, length, length] };
  },
  "prompt/model": async (live) => {
    const { model } = await live.story();
    const { num_layers: layers, num_heads: heads } = model.config;
    return { name: null, layers, heads, parameters: model.parameters };
  },
  "heads/reading": async (live, asked) => (await live.sent(asked)).summary(),
  "heads/maps": (live, asked) => difference(live, asked, (reading) => reading.maps()),
  "heads/weights": (live, asked) => {
    return difference(live, asked, (reading) => {
      const values = reading.weights(headOf(asked.layer, asked.head));
      return { values, shape: [reading.length, reading.length] };
    });
  },
  "heads/along": (live, asked) => {
    return difference(live, asked, (reading) => reading.along(headOf(asked.layer, asked.head)));
  },
  "heads/compared": async (live, asked) => {
    const [one, other] = [await live.sent(asked), await live.sent({ text: asked.minus })];
    const [first, second] = [one.summary(), other.summary()];
    /** @param {(number | null)[][]} rows @param {(number | null)[][]} others */
    const less = (rows, others) => {
      return rows.map((row, layer) => {
        return row.map((each, head) => {
          return each === null || others[layer][head] === null ? null : each - others[layer][head];
        });
      });
    };
    const scores = Object.entries(first.scores).map(([role, rows]) => {
      return [role, less(rows, second.scores[role])];
    });
    const words = await live.words();
    const refused = one.length === other.length ? null : words["live.lengths"];
    const entropy = less(first.entropy, second.entropy);
    return { entropy, scores: Object.fromEntries(scores), refused };
  },
  "steps/cell": async (live, asked) => {
    const reading = await live.sent(asked);
    const { masks } = await live.story();
    const head = headOf(asked.layer, asked.head);
    const [query, key] = [asked.query, asked.key].map((place) => {
      return place === undefined ? null : Number(place);
    });
    return { ...reading.cell(head, query, key), mask: masks[head[0]] };
  },
  "steps/vectors": async (live, asked) => {
    const reading = await live.sent(asked);
    return reading.vectors(headOf(asked.layer, asked.head), Number(asked.query));
  },
};

// Numbers of a reading; of two, the first's less the second's.
/** @param {Live} live @param {Asked} asked @param {(reading: Reading) => Tensor} select */
async function difference(live, asked, select) {
  const one = select(await live.sent(asked));
  if (asked.minus === undefined) return one;
  const other = select(await live.sent({ text: asked.minus }));
  if (one.values.length !== other.values.length) {
    throw new Refused((await live.words())["live.lengths"], BAD_REQUEST);
  }
  // A pair that is hidden in both has −0, an equal one +0.
  const values = one.values.map((each, at) => {
    const isHidden = Object.is(each, -0) && Object.is(other.values[at], -0);
    return isHidden ? -0 : each - other.values[at] + 0;
  });
  return { values, shape: one.shape };
}

/** @param {string | number} layer @param {string | number} head @returns {[number, number]} */
const headOf = (layer, head) => [Number(layer), Number(head)];

/** A name of a text, of 16 hexadecimal digits. @param {string} text */
function nameOf(text) {
  const hashes = [0x811c9dc5, 0x01000193].map((start) => {
    return [...text].reduce((hash, sign) => {
      return Math.imul(hash ^ sign.codePointAt(0), 0x01000193) >>> 0;
    }, start);
  });
  return hashes.map((hash) => hash.toString(16).padStart(8, "0")).join("");
}

/** The text of a script element, which may not have arrived yet. @param {string} id */
async function held(id) {
  if (document.readyState === "loading") {
    await new Promise((done) => addEventListener("DOMContentLoaded", done, { once: true }));
  }
  return document.getElementById(id).textContent;
}
