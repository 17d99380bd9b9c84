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
 * @property {Map<string, any>} [answered]  What it answered, by the names of a report
 * @property {(path: string, params: Parameters, answer: any) => any} [recording]  Records an answer
 * @property {(count?: number) => void} [forget]  Forgets what it answered for a view
 * @property {(text: string) => Promise<string>} send  Sends a text; gives its name
 * @property {(file: Blob) => Promise<string>} [sendPicture]  Sends a picture; gives its name
 * @property {(path: string, params?: Parameters, options?: Options) => Promise<any>} json
 * @property {(path: string, params?: Parameters, options?: Options) => Promise<Tensor>} numbers
 * @property {(path: string, params?: Parameters, options?: Options) => Promise<any>} stream  The
 *   result of long work
 */

/** What the studio will not do; the message is a sentence for the reader. */
export class Refused extends Error {
  /** @param {string} sentence @param {number} status */
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
// Answers that are kept for a file of what is shown, and those that all views share.
const MOST_KEPT = 256;
const SHARED = /^(about|words|sample|texts|tour|prompt\/model)\b/;

/** The data of a studio that runs. @implements {Source} */
class Server {
  offline = false;
  /** @type {string} */
  language;
  /**
   * What it answered since a view was opened, by the names of a report.
   * @type {Map<string, any>}
   */
  answered = new Map();

  /** @param {string} text */
  async send(text) {
    const headers = { "Content-Type": "application/json" };
    const body = JSON.stringify({ text });
    const { id } = await (await this.ask("texts", null, { method: "POST", body, headers })).json();
    this.recording(`texts/${id}`, null, { text });
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

  /** @param {string} path @param {Parameters} [params] @param {Options} [options] */
  async json(path, params, { signal } = {}) {
    return this.recording(path, params, await (await this.ask(path, params, { signal })).json());
  }

  /**
   * Record an answer, and return it.
   * @template Answer
   * @param {string} path @param {Parameters} params @param {Answer} answer
   */
  recording(path, params, answer) {
    if (path === "file") return answer;
    this.answered.set(keyOf(path, params), answer);
    if (this.answered.size > MOST_KEPT) this.forget(this.answered.size - MOST_KEPT);
    return answer;
  }

  /** Forget the oldest answers for the view that is shown. @param {number} [count] */
  forget(count = Infinity) {
    const own = [...this.answered.keys()].filter((key) => !SHARED.test(key));
    for (const key of own.slice(0, count)) this.answered.delete(key);
  }

  /** @param {string} path @param {Parameters} [params] @param {Options} [options] */
  async numbers(path, params, { signal } = {}) {
    const answer = await this.ask(path, params, { signal });
    const shape = answer.headers.get("Shape").split(",").map(Number);
    const values = new Float32Array(await answer.arrayBuffer());
    return this.recording(path, params, { values, shape });
  }

  /**
   * @param {string} path @param {Parameters} [params] @param {Options} [options]
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
      if ("result" in line) return this.recording(path, params, line.result);
    }
    throw new Unreachable("the answer broke off");
  }

  /**
   * @param {string} path @param {Parameters} params @param {RequestInit} request
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
    // What was given up while the answer arrived is no refusal.
    request.signal?.throwIfAborted();
    if (answer.status === ENDING) throw new Unreachable(detail);
    throw new Refused(detail ?? answer.statusText, answer.status);
  }

  /**
   * Send texts again that the studio has forgotten, where the browser has kept them.
   * @param {number} status @param {Parameters} params
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
 * @param {Error} error @returns {never}
 */
function unreached(error) {
  throw error.name === "AbortError" ? error : new Unreachable(String(error));
}

/** The values in a body of JSON lines, as they come. @param {ReadableStream<Uint8Array>} body */
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

/** A request as a report names it. @param {string} path @param {Parameters} params */
export function keyOf(path, params) {
  const sorted = given(params).sort(([one], [other]) => (one < other ? -1 : 1));
  return [path, ...sorted.map(([name, value]) => `${name}=${value}`)].join("|");
}

/**
 * What a server has answered for the view that is shown, as a report holds it.
 * @param {Source} source
 * @param {Record<string, any>} changed  Answers that take the place of recorded ones
 * @param {string} missing  The sentence about an answer that is not in it
 */
export async function recorded({ answered }, changed, missing) {
  /** @type {Answers["numbers"]} */
  const numbers = {};
  /** @type {Record<string, any>} */
  const told = {};
  for (const [key, answer] of answered) {
    if (!(answer?.values instanceof Float32Array)) told[key] = answer;
    else numbers[key] = { shape: answer.shape, data: await deflated(answer.values) };
  }
  const plain = new TextEncoder().encode(JSON.stringify({ ...told, ...changed }));
  return JSON.stringify({ missing, told: await deflated(plain), numbers });
}

/** @param {Uint8Array<ArrayBuffer> | Float32Array<ArrayBuffer>} values */
async function deflated(values) {
  const stream = new Blob([values]).stream().pipeThrough(new CompressionStream("deflate"));
  const packed = await new Response(stream).blob();
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).split(",", 2)[1]);
    reader.readAsDataURL(packed);
  });
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
  let last = new AbortController();
  // AbortSignal.any, which older browsers lack.
  const stop = () => last.abort(signal.reason);
  signal.addEventListener("abort", stop);
  return () => {
    last.abort();
    last = new AbortController();
    if (signal.aborted) stop();
    return last.signal;
  };
}
