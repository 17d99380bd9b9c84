// Weights as bars, in templates.
import { html } from "../parts/html.js";
import { weightColor } from "./steps-layout.js";

/**
 * @param {number} weight @param {boolean} isHidden
 * @param {number} [guess]  Where it was guessed, which a line marks
 */
export function bar(weight, isHidden, guess) {
  return html`<span class=${isHidden ? "bar hidden" : "bar"}>
    <b style=${{ "--share": weight, background: weightColor(weight) }}></b>
    ${guess !== undefined && html`<u style=${{ "--share": guess }}></u>`}
  </span>`;
}

// A line of bars: a word, what stands beside it, its bar, and its number.
/** @param {string} word @param {any} beside @param {any} shown @param {string} number */
export function barLine(word, beside, shown, number, kind = "word") {
  return html`<span class=${kind}>${word}</span>${beside ?? html`<span></span>`}${shown}
    <output>${number}</output>`;
}
