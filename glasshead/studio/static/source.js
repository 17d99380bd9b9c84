// Where the data comes from: the studio's server, or what a report holds.
import { known } from "./dom.js";

export class Refused extends Error {
  constructor(sentence, status) { super(sentence); this.status = status; }
}

export class Unreachable extends Error {}

const FORGOTTEN = 410;
const LEFT = 499; // the studio ends, and does no work any more

/** The data of a studio that runs: objects; numbers as {values: Float32Array, shape}; the result of long work,
 * `told({stage, done, of})` on the way; and send(text), which gives its name. */
export function served() {
  const ask = async (path, params, { signal, body } = {}) => {
    const query = new URLSearchParams(known(params));
    const headers = { "Content-Type": "application/json" };
    const sent = body && { method: "POST", body: JSON.stringify(body), headers };
    const answer = await fetch(`api/${path}${query.size ? `?${query}` : ""}`, { signal, ...sent }).catch(unreached);
    if (answer.ok) return answer;
    if (await sentAgain(answer.status, params)) return ask(path, params, { signal, body });
    const told = await answer.json().catch(() => ({}));
    if (answer.status === LEFT) throw new Unreachable(told.detail);
    throw new Refused(told.detail ?? answer.statusText, answer.status);
  };
  const send = async (text) => {
    const { id } = await (await ask("texts", null, { body: { text } })).json();
    try { sessionStorage.setItem(`text-${id}`, text); } catch { /* the server has it */ }
    return id;
  };
  // The studio has forgotten a text that the browser has kept.
  const sentAgain = async (status, params) => {
    const text = status === FORGOTTEN && params?.text ? remembered(params.text) : null;
    if (text !== null) await send(text);
    return text !== null;
  };
  return {
    offline: false,
    send,
    async json(path, params, options) { return (await ask(path, params, options)).json(); },
    async numbers(path, params, options) {
      const answer = await ask(path, params, options);
      const shape = answer.headers.get("Shape").split(",").map(Number);
      return { values: new Float32Array(await answer.arrayBuffer()), shape };
    },
    async stream(path, params, { signal, told } = {}) {
      const answer = await ask(path, params, { signal });
      for await (const line of lines(answer.body)) {
        if (line.progress) told?.(line.progress);
        if (await sentAgain(line.status, params)) return this.stream(path, params, { signal, told });
        if (line.error) throw new Refused(line.error, line.status);
        if ("result" in line) return line.result;
      }
      throw new Unreachable("the answer broke off");
    },
  };
}

/** The data that a report holds (answers.py): `missing` is said of what is not in it. */
export function stored({ told, numbers, missing }) {
  const telling = unpacked(told).then((bytes) => JSON.parse(new TextDecoder().decode(bytes)));
  const found = (answers, path, params) => {
    const key = keyOf(path, params);
    if (!Object.hasOwn(answers, key)) throw new Refused(missing, 404);
    return answers[key];
  };
  const json = async (path, params) => structuredClone(found(await telling, path, params));
  return {
    offline: true,
    json,
    stream: json,
    async send(text) {
      const answers = await telling;
      const known = Object.keys(answers).find((key) => key.startsWith("texts/") && answers[key].text === text);
      if (!known) throw new Refused(missing, 404);
      return known.slice("texts/".length);
    },
    async numbers(path, params) {
      const held = found(numbers, path, params);
      const { shape, data } = held.as ? { ...numbers[held.as], ...held } : held;
      return { values: new Float32Array(await unpacked(data)), shape };
    },
  };
}

/** A signal at each call, which aborts the one before. */
export function newest(signal) {
  let last;
  return () => {
    last?.abort();
    last = new AbortController();
    return AbortSignal.any([signal, last.signal]);
  };
}

/** What was asked, as a report names it. */
function keyOf(path, params) {
  const given = known(params).sort(([a], [b]) => (a < b ? -1 : 1));
  return [path, ...given.map(([name, value]) => `${name}=${value}`)].join("|");
}

async function unpacked(data) {
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
}

async function* lines(body) {
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

function unreached(error) {
  throw error.name === "AbortError" ? error : new Unreachable(String(error));
}

function remembered(id) {
  try { return sessionStorage.getItem(`text-${id}`); } catch { return null; }
}
