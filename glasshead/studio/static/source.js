// Where the data comes from: the studio's server here, and "live" for a page without one.
import { capitalized, given } from "./dom.js";

/** @typedef {{values: Float32Array, shape: number[]}} Tensor */

/** @typedef {Record<string, string | number | boolean | null | undefined>} Parameters */

/** @typedef {{stage: string, done: number, of: number}} Progress */

/** @typedef {{signal?: AbortSignal, onProgress?: (progress: Progress) => void}} Options */

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
  /** @param {string} why @param {number} status */
  constructor(why, status) {
    super(capitalized(why));
    this.status = status;
  }
}

export class Unreachable extends Error {}

// The studio has forgotten a text, which is to be sent again.
const FORGOTTEN = 410;
// The studio ends, and does no work any more.
const ENDING = 499;
// Answers that are kept for a file of what is shown, and those that all views share.
const MOST_KEPT = 256;
const SHARED = /^(about|words|sample|texts|tour|prompt\/model)\b/;

/** The data of a studio that runs. @implements {Source} */
export class Server {
  offline = false;
  /** @type {string} */
  language;
  answered = /** @type {Map<string, any>} */ (new Map());

  async send(/** @type {string} */ text) {
    const id = await this.post("texts", JSON.stringify({ text }), "application/json");
    this.recording(`texts/${id}`, null, { text });
    keep("sessionStorage", `text-${id}`, text);
    return id;
  }

  sendPicture(/** @type {Blob} */ picture) {
    return this.post("picture", picture, "application/octet-stream");
  }

  // Send something; gives its name.
  /** @param {string} path @param {BodyInit} body @param {string} type @returns {Promise<string>} */
  async post(path, body, type) {
    const headers = { "Content-Type": type };
    return (await (await this.ask(path, null, { method: "POST", body, headers })).json()).id;
  }

  /** @param {string} path @param {Parameters} [params] @param {Options} [options] */
  async json(path, params, { signal } = {}) {
    return this.recording(path, params, await (await this.ask(path, params, { signal })).json());
  }

  /** @template Answer @param {string} path @param {Parameters} params @param {Answer} answer */
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

  // Send texts again that the studio has forgotten, where the browser has kept them.
  /** @param {number} status @param {Parameters} params */
  async sendAgain(status, params) {
    const names = [params?.text, params?.minus].filter(Boolean);
    const texts = status === FORGOTTEN ? names.map(keptText) : [];
    for (const text of texts) if (text !== null) await this.send(text);
    return texts.length > 0 && !texts.includes(null);
  }
}

/** A text that was sent; null of one that is not kept. @param {Parameters[string]} name */
export const keptText = (name) => kept("sessionStorage", `text-${name}`);

/** What a browser keeps by a name. @param {"localStorage" | "sessionStorage"} where @param {string} name */
export function kept(where, name) {
  try {
    return window[where].getItem(name);
  } catch {
    return null;
  }
}

/** @param {"localStorage" | "sessionStorage"} where @param {string} name @param {string} value */
export function keep(where, name, value) {
  try {
    window[where].setItem(name, value);
  } catch {
    // A browser that keeps nothing is asked again.
  }
}

// Let an abort be one, and any other failure to reach the server be reported as such.
/** @param {Error} error @returns {never} */
function unreached(error) {
  throw error.name === "AbortError" ? error : new Unreachable(String(error));
}

/** The values in a body of JSON lines, as they come. @param {ReadableStream<BufferSource>} body */
async function* jsonLines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch(unreached);
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line) yield JSON.parse(line);
  }
}

/** A request as a report names it. @param {string} path @param {Parameters} params */
export function keyOf(path, params) {
  const sorted = given(params).sort(([one], [other]) => (one < other ? -1 : 1));
  return [path, ...sorted.map(([name, value]) => `${name}=${value}`)].join("|");
}

// A function that gives a signal at each call, and aborts the one before.
/** @param {AbortSignal} signal  Aborts each of them */
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
