// What is selected: the one store that the parts of a view and all views share. A pointer shows
// another query or key for as long as it is there; a click keeps it, and the address holds it.
import { given } from "./dom.js";
import { headsOf } from "./parts/heads.js";

/** @import { Context } from "./app.js" */

/**
 * A head, a query, a key, and the text, by its name and itself, as one view leaves them to another.
 * @typedef {Partial<Record<"layer" | "head" | "query" | "key" | "text" | "said", any>>} Selected
 */

/** @typedef {{query: number, key?: number | null}} Place */

/** The query and the key that the parts of a view show. */
export class Selection {
  /**
   * @param {Context["remember"]} remember
   * @param {boolean} [keepsKey]  Whether another query has the same key
   */
  constructor(remember, keepsKey = true) {
    this.remember = remember;
    this.keepsKey = keepsKey;
    /** @type {Place} */
    this.pinned = { query: 0 };
    /** @type {Place} */
    this.shown = this.pinned;
    /** @type {((isPinned: boolean) => void)[]} */
    this.listeners = [];
  }

  get query() {
    return this.shown.query;
  }

  get key() {
    return this.shown.key;
  }

  /**
   * Call when another query or key is shown, or the one that is shown is kept.
   * @param {(isPinned: boolean) => void} changed
   */
  on(changed) {
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

  /** Go back to what is kept. */
  leave() {
    this.turn(this.pinned, false);
  }

  /** Keep a place. @param {Partial<Place>} place */
  pin(place) {
    const next = this.next(place);
    const isNew = !isSame(next, this.pinned);
    this.pinned = next;
    if (isNew) this.remember(next);
    this.turn(next, true, isNew);
  }

  /**
   * @param {Place} place
   * @param {boolean} isPinned
   * @param {boolean} [isNew]
   */
  turn(place, isPinned, isNew = false) {
    const hasMoved = !isSame(place, this.shown);
    this.shown = place;
    if (hasMoved || isNew) for (const changed of this.listeners) changed(isPinned);
  }
}

/** @param {Place} one @param {Place} other */
function isSame(one, other) {
  return one.query === other.query && one.key === other.key;
}

/**
 * What is selected in a view; null of one that has no heads.
 * @param {string} view
 * @param {Record<string, string>} state
 * @returns {Selected | null}
 */
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

/**
 * What the address of a view holds of a selection.
 * @param {string} view
 * @param {Selected} selected
 * @returns {Record<string, string>}
 */
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
