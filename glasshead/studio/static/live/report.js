// The data of a report: the answers that it holds.
import { Refused, keyOf } from "../source.js";

/** @import { Parameters, Source, Tensor } from "../source.js" */

const NOT_FOUND = 404;

// A tensor in a report, as a report packs it; `as` names another whose data it has.
/** @typedef {{shape: number[], data: string, as?: string}} PackedTensor */

// What a report holds, as its Python module packs it: the plain answers, the numbers, and the
// sentence about an answer that is not in it.
/** @typedef {{told: string, numbers: Record<string, PackedTensor>, missing: string}} Answers */

/** The data that a report holds. @implements {Source} */
export class Report {
  offline = true;
  /** @type {string} */
  language;

  constructor(/** @type {Answers} */ { told, numbers, missing }) {
    this.missing = missing;
    this.tensors = numbers;
    /** @type {Promise<Record<string, any>>} */
    this.answers = inflated(told).then((bytes) => JSON.parse(new TextDecoder().decode(bytes)));
  }

  async send(/** @type {string} */ text) {
    const answers = await this.answers;
    const found = Object.keys(answers).find((key) => {
      return key.startsWith("texts/") && answers[key].text === text;
    });
    if (!found) throw new Refused(this.missing, NOT_FOUND);
    return found.slice("texts/".length);
  }

  /** @param {string} path @param {Parameters} [params] */
  async json(path, params) {
    return structuredClone(this.found(await this.answers, path, params));
  }

  /** @param {string} path @param {Parameters} [params] */
  stream(path, params) {
    return this.json(path, params);
  }

  /** @param {string} path @param {Parameters} [params] @returns {Promise<Tensor>} */
  async numbers(path, params) {
    const held = this.found(this.tensors, path, params);
    const { data } = held.as ? this.tensors[held.as] : held;
    return { values: new Float32Array(await inflated(data)), shape: held.shape };
  }

  /**
   * @template Answer
   * @param {Record<string, Answer>} answers @param {string} path @param {Parameters} params
   */
  found(answers, path, params) {
    const key = keyOf(path, params);
    if (!Object.hasOwn(answers, key)) throw new Refused(this.missing, NOT_FOUND);
    return answers[key];
  }
}

async function inflated(/** @type {string} */ data) {
  const bytes = new Blob([bytesOf(data)]).stream();
  return new Response(bytes.pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
}

/** @param {string} data  In base64 */
export function bytesOf(data) {
  return Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
}

/** The answers in an element of the page. @returns {any} */
export const heldAnswers = () => JSON.parse(document.getElementById("answers").textContent);
