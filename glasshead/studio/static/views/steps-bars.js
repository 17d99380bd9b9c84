// Weights as bars, and the parts of a line, in templates.
import { term } from "../numbers.js";
import { html } from "../parts/html.js";
import { weightColor } from "./steps-layout.js";

/** @import { Part } from "./steps-sums.js" */

/**
 * @param {number} weight
 * @param {boolean} isHidden
 * @param {number} [guess]  Where it was guessed, which a line marks
 */
export function bar(weight, isHidden, guess) {
  return html`<span class=${isHidden ? "bar hidden" : "bar"}>
    <b style=${{ "--share": weight, background: weightColor(weight) }}></b>
    ${guess === undefined ? null : html`<u style=${{ "--share": guess }}></u>`}
  </span>`;
}

/**
 * @param {Part[]} parts
 * @param {number} [decimals]
 * @returns {any[]}
 */
export function partsOf(parts, decimals) {
  return parts.map((part) => {
    if (typeof part === "string") return part;
    if (typeof part !== "number") return html`<sup>${partsOf(part.up, decimals)}</sup>`;
    return html`<data value=${part} title=${part}>${term(part, decimals)}</data>`;
  });
}
