// The turns of a presentation, as what has steps takes them.
import { hasBox } from "../dom.js";

/**
 * Take turns while an element is in sight, and say that they would be taken.
 * @param {HTMLElement} shown @param {AbortSignal} signal
 * @param {(by: number) => false | (() => void)} turn  What a turn does, if it does something
 */
export function takeTurns(shown, signal, turn) {
  for (const name of ["turn", "canturn"]) {
    const take = (/** @type {any} */ event) => {
      const go = hasBox(shown) && turn(event.detail);
      if (!go) return;
      event.preventDefault();
      if (name === "turn") go();
    };
    document.addEventListener(name, take, { signal });
  }
}
