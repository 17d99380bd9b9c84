// Where the data comes from: the studio's server, what a report holds, or what a page brings.
import { given } from "./dom.js";

/** @typedef {{values: Float32Array, shape: number[]}} Tensor */

/** @typedef {Record<string, string | number | boolean | null | undefined>} Parameters */

/** @typedef {{stage: string, done: number, of: number}} Progress */

/**
 * @typedef {object} Options
 * @property {AbortSignal} [signal]
 * @property {(progress: Progress) => void} [onProgress]
 */

/**
 * @typedef {object} Source
 * @property {boolean} offline
 * @property {string} [language]  That of refusals; the browser's until the page has one
 * @property {(text: string) => Promise<string>} send  Sends a text; gives its name
 * @property {(file: Blob) => Promise<string>} [sendPicture]  Sends a picture; gives its name
 * @property {(path: string, params?: Parameters, options?: Options) => Promise<any>} json
 * @property {(path: string, params?: Parameters, options?: Options) => Promise<Tensor>} numbers
 * @property {(path: string, params?: Parameters, options?: Options) => Promise<any>} stream  The
 *   result of long work
 */

/** What the studio will not do; the message is a sentence for the reader. */
export class Refused extends Error {
  /**
   * @param {string} sentence
   * @param {number} status
   */
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

/** The studio does not answer. */
export class Unreachable extends Error {}

const NOT_FOUND = 404;
// The studio has forgotten a text, which is to be sent again.
const FORGOTTEN = 410;
// The studio ends, and does no work any more.
const ENDING = 499;

/** The data of a studio that runs. @implements {Source} */
class Server {
  offline = false;
  /** @type {string} */
  language;

  /** @param {string} text */
  async send(text) {
    const headers = { "Content-Type": "application/json" };
    const body = JSON.stringify({ text });
    const { id } = await (await this.ask("texts", null, { method: "POST", body, headers })).json();
    try {
      sessionStorage.setItem(`text-${id}`, text);
    } catch {
      // The server has it, for as long as it runs.
    }
    return id;
  }

  /** @param {Blob} body */
  async sendPicture(body) {
    const headers = { "Content-Type": "application/octet-stream" };
    const { id } = await (
      await this.ask("picture", null, { method: "POST", body, headers })
    ).json();
    return id;
  }

  /**
   * @param {string} path
   * @param {Parameters} [params]
   * @param {Options} [options]
   */
  async json(path, params, { signal } = {}) {
    return (await this.ask(path, params, { signal })).json();
  }

  /**
   * @param {string} path
   * @param {Parameters} [params]
   * @param {Options} [options]
   */
  async numbers(path, params, { signal } = {}) {
    const answer = await this.ask(path, params, { signal });
    const shape = answer.headers.get("Shape").split(",").map(Number);
    return { values: new Float32Array(await answer.arrayBuffer()), shape };
  }

  /**
   * @param {string} path
   * @param {Parameters} [params]
   * @param {Options} [options]
   * @returns {Promise<any>}
   */
  async stream(path, params, { signal, onProgress } = {}) {
    const answer = await this.ask(path, params, { signal });
    for await (const line of jsonLines(answer.body)) {
      if (line.progress) onProgress?.(line.progress);
      if (await this.sendAgain(line.status, params)) {
        return this.stream(path, params, { signal, onProgress });
      }
      if (line.error) throw new Refused(line.error, line.status);
      if ("result" in line) return line.result;
    }
    throw new Unreachable("the answer broke off");
  }

  /**
   * @param {string} path
   * @param {Parameters} params
   * @param {RequestInit} request
   * @returns {Promise<Response>}
   */
  async ask(path, params, request) {
    const query = new URLSearchParams(given(params));
    const url = `api/${path}${query.size ? `?${query}` : ""}`;
    const language = this.language && { "Accept-Language": this.language };
    const headers = { ...request.headers, ...language };
    const answer = await fetch(url, { ...request, headers }).catch(unreached);
    if (answer.ok) return answer;
    if (await this.sendAgain(answer.status, params)) return this.ask(path, params, request);
    const { detail } = await answer.json().catch(() => ({}));
    if (answer.status === ENDING) throw new Unreachable(detail);
    throw new Refused(detail ?? answer.statusText, answer.status);
  }

  /**
   * Send texts again that the studio has forgotten, where the browser has kept them.
   * @param {number} status
   * @param {Parameters} params
   */
  async sendAgain(status, params) {
    const names = [params?.text, params?.minus].filter(Boolean);
    const texts = status === FORGOTTEN ? names.map(keptText) : [];
    for (const text of texts) if (text !== null) await this.send(text);
    return texts.length > 0 && !texts.includes(null);
  }
}

/** @param {Parameters[string]} name */
function keptText(name) {
  try {
    return sessionStorage.getItem(`text-${name}`);
  } catch {
    return null;
  }
}

/**
 * Let an abort be one, and any other failure to reach the server be told as such.
 * @param {Error} error
 * @returns {never}
 */
function unreached(error) {
  throw error.name === "AbortError" ? error : new Unreachable(String(error));
}

/**
 * The values in a body of JSON lines, as they come.
 * @param {ReadableStream<Uint8Array>} body
 */
async function* jsonLines(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch(unreached);
    rest += decoder.decode(value ?? new Uint8Array(), { stream: !done });
    const whole = rest.split("\n");
    rest = whole.pop();
    for (const line of whole) if (line) yield JSON.parse(line);
    if (done) return;
  }
}

/**
 * A tensor in a report, as a report packs it; `as` names another whose data it has.
 * @typedef {{shape: number[], data: string, as?: string}} PackedTensor
 */

/**
 * What a report holds, as its Python module packs it.
 * @typedef {object} Answers
 * @property {string} told  The plain answers
 * @property {Record<string, PackedTensor>} numbers
 * @property {string} missing  The sentence about an answer that is not in it
 */

/** The data that a report holds. @implements {Source} */
export class Report {
  offline = true;
  /** @type {string} */
  language;

  /** @param {Answers} answers */
  constructor({ told, numbers, missing }) {
    this.missing = missing;
    this.tensors = numbers;
    /** @type {Promise<Record<string, any>>} */
    this.answers = inflated(told).then((bytes) => JSON.parse(new TextDecoder().decode(bytes)));
  }

  /** @param {string} text */
  async send(text) {
    const answers = await this.answers;
    const isOfText = (/** @type {string} */ key) => {
      return key.startsWith("texts/") && answers[key].text === text;
    };
    const found = Object.keys(answers).find(isOfText);
    if (!found) throw new Refused(this.missing, NOT_FOUND);
    return found.slice("texts/".length);
  }

  /**
   * @param {string} path
   * @param {Parameters} [params]
   */
  async json(path, params) {
    return structuredClone(this.found(await this.answers, path, params));
  }

  /**
   * @param {string} path
   * @param {Parameters} [params]
   */
  stream(path, params) {
    return this.json(path, params);
  }

  /**
   * @param {string} path
   * @param {Parameters} [params]
   * @returns {Promise<Tensor>}
   */
  async numbers(path, params) {
    const held = this.found(this.tensors, path, params);
    const { data } = held.as ? this.tensors[held.as] : held;
    return { values: new Float32Array(await inflated(data)), shape: held.shape };
  }

  /**
   * @template Answer
   * @param {Record<string, Answer>} answers
   * @param {string} path
   * @param {Parameters} params
   */
  found(answers, path, params) {
    const key = keyOf(path, params);
    if (!Object.hasOwn(answers, key)) throw new Refused(this.missing, NOT_FOUND);
    return answers[key];
  }
}

/**
 * A request as a report names it.
 * @param {string} path
 * @param {Parameters} params
 */
export function keyOf(path, params) {
  const sorted = given(params).sort(([one], [other]) => (one < other ? -1 : 1));
  return [path, ...sorted.map(([name, value]) => `${name}=${value}`)].join("|");
}

/** @param {string} data */
async function inflated(data) {
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

/** Sources that scripts of the page bring. @type {Source[]} */
export const sources = [];

/**
 * The data of the page: what it brings, or of the report that it is, or of the studio that serves it.
 * @returns {Source}
 */
export function sourceOfPage() {
  if (sources.length) return sources[0];
  const held = document.getElementById("answers");
  return held ? new Report(JSON.parse(held.textContent)) : new Server();
}

/**
 * A function that gives a signal at each call, and aborts the one before.
 * @param {AbortSignal} signal  Aborts each of them
 */
export function newest(signal) {
  /** @type {AbortController} */
  let last;
  return () => {
    last?.abort();
    last = new AbortController();
    return AbortSignal.any([signal, last.signal]);
  };
}
