// What is selected: the one store that the parts of a view and all views share. A pointer shows
// another query or key for as long as it is there; a click keeps it, and the address holds it; and
// heads by layer and number, as the address lists them.
import { given } from "./dom.js";

/** @import { Context } from "./app.js" */

/**
 * A head, a query, a key, and the text, by its name and itself, as one view leaves them to another.
 * @typedef {Partial<Record<"layer" | "head" | "query" | "key" | "text" | "said", any>>} Selected
 */

/** @typedef {{query: number, key?: number | null}} Place */

/** The query and the key that the parts of a view show. */
export class Selection {
  // It may keep the key where another query is shown.
  /** @param {Context["remember"]} remember */
  constructor(remember, keepsKey = true) {
    this.remember = remember;
    this.keepsKey = keepsKey;
    this.pinned = /** @type {Place} */ ({ query: 0 });
    this.shown = /** @type {Place} */ (this.pinned);
    this.listeners = /** @type {((isPinned: boolean) => void)[]} */ ([]);
  }

  get query() {
    return this.shown.query;
  }

  get key() {
    return this.shown.key;
  }

  /** Call when another query or key is shown, or the one that is shown is kept. */
  on(/** @type {(isPinned: boolean) => void} */ changed) {
    this.listeners.push(changed);
  }

  /** Begin elsewhere, as another text or head is opened: no cell is reported. @param {Place} place */
  begin(place) {
    this.pinned = place;
    this.shown = place;
  }

  /** Show a place until the pointer leaves it. @param {Partial<Place>} place */
  point(place) {
    this.turn(this.next(place), false);
  }

  /** @param {Partial<Place>} place @returns {Place} */
  next(place) {
    const { keepsKey, shown } = this;
    const key = keepsKey || place.query === undefined || place.query === shown.query;
    return { query: shown.query, key: key ? shown.key : null, ...place };
  }

  leave() {
    this.turn(this.pinned, false);
  }

  pin(/** @type {Partial<Place>} */ place) {
    const next = this.next(place);
    const isNew = !isSame(next, this.pinned);
    this.pinned = next;
    if (isNew) this.remember(next);
    this.turn(next, true, isNew);
  }

  /** @param {Place} place @param {boolean} isPinned */
  turn(place, isPinned, isNew = false) {
    const hasMoved = !isSame(place, this.shown);
    this.shown = place;
    if (hasMoved || isNew) for (const changed of this.listeners) changed(isPinned);
  }
}

// Listeners of an element that holds others, each of a query (`data-at`): a pointer shows the query,
// and a click keeps it.
export function pointing(/** @type {Selection} */ selection) {
  const turn = (/** @type {Event} */ { target, type }) => {
    const { at } = /** @type {HTMLElement} */ (target).dataset;
    if (at === undefined) return;
    // What comes under a pointer that rests is not pointed at.
    if (type === "pointermove") selection.point({ query: Number(at) });
    else selection.pin({ query: Number(at) });
  };
  return { onpointermove: turn, onclick: turn, onpointerleave: () => selection.leave() };
}

/** @param {Place} one @param {Place} other */
const isSame = (one, other) => one.query === other.query && one.key === other.key;

/** @typedef {[number, number]} Head  A layer, and a head of it */

// Heads as the address holds them, such as "1.3,4.0".
/** @param {string | undefined} written @returns {Head[]} */
export function headsOf(written) {
  const names = (written ?? "").split(",").filter((name) => /^\d+\.\d+$/.test(name));
  return names.map((name) => /** @type {Head} */ (name.split(".").map(Number)));
}

export function listed(/** @type {Head[]} */ heads) {
  return heads.map((head) => head.join(".")).join(",") || null;
}

// The index of a head in a list; −1 if the list does not contain it.
/** @param {Head[]} heads @param {Head} one */
export function placeOf(heads, [layer, head]) {
  return heads.findIndex((each) => each[0] === layer && each[1] === head);
}

// A list of heads without one that is in it, or with one that is not.
/** @param {Head[]} heads @param {Head} one */
export function toggled(heads, one) {
  const at = placeOf(heads, one);
  return at < 0 ? [...heads, one] : heads.toSpliced(at, 1);
}

// The number of a head among those of all layers.
/** @param {number[]} counts  Heads of each layer @param {Head} head */
export function numberOf(counts, [layer, head]) {
  return counts.slice(0, layer).reduce((sum, count) => sum + count, head);
}

// The head of a number among those of all layers; its layer is beyond the last one if there is none.
/** @param {number[]} counts @param {number} number @returns {Head} */
export function headAt(counts, number) {
  let [layer, head] = [0, number];
  while (head >= counts[layer]) head -= counts[layer++];
  return [layer, head];
}

// What is selected in a view; null of one that has no heads.
/** @param {string} view @param {Record<string, string>} state @returns {Selected | null} */
export function selectionOf(view, state) {
  const { layer, head, query, key, text, said } = state;
  if (view === "heads") return { layer, head, query, key, text, said };
  if (view === "steps" && layer !== undefined) return { layer, head, query, key, text, said };
  if (view === "atlas") return { layer, head, query: state.i, key: state.j, text, said };
  if (view === "model") return { layer, head, query, key, said: text };
  if (view !== "prompt") return null;
  const last = headsOf(state.heads).at(-1);
  return { layer: last?.[0], head: last?.[1], query, said: text };
}

// What the address of a view holds of a selection.
/** @param {string} view @param {Selected} selected @returns {Record<string, string>} */
export function stateOf(view, { layer, head, query, key, text, said }) {
  const shown = layer === undefined ? null : `${layer}.${head}`;
  /** @type {Record<string, Record<string, any>>} */
  const states = {
    heads: { layer, head, query, key, text, said },
    atlas: { layer, head, i: query, j: key, text, said },
    prompt: { heads: shown, query, text: said },
    steps: shown && { layer, head, query, key, text, said },
    model: { layer, head, query, key, text: said },
  };
  return Object.fromEntries(given(states[view]).map(([name, value]) => [name, String(value)]));
}

// A link to a view, with what its address is to hold; null and undefined values are omitted.
/** @param {string} view @param {Record<string, any>} [state] */
export function linkTo(view, state) {
  const query = new URLSearchParams(given(state));
  return `#${view}${query.size ? `?${query}` : ""}`;
}
