// What the model predicts, as bars: with heads taken away, and behind each its bar with all heads.
import { signed } from "../diverging.js";
import { decimal, weight } from "../numbers.js";
import { html } from "../parts/html.js";

/** @import { PromptView } from "./prompt.js" */

/** @typedef {{text: string, p: number, before: number}} Likely */

/**
 * What the studio says of a prompt.
 * @typedef {object} Told
 * @property {string[]} tokens
 * @property {string[]} running
 * @property {number} of
 * @property {string[]} layers
 * @property {number[]} heads
 * @property {[number, number]} first  The head to show first
 * @property {"tokens" | "blanks" | "labels" | "token_labels" | "translations" | "nothing"} predicts
 * @property {string | null} blank  The mask token that stands for a word to be predicted
 * @property {Likely[]} likely
 * @property {number | null} loss
 * @property {number | null} loss_before
 */

/** @param {PromptView} prompt */
export function barsOf(prompt) {
  const { t, told } = prompt;
  const isWhole = !prompt.without.length;
  const { predicts, likely, blank, loss, loss_before: before } = told;
  const isBlank = predicts === "blanks";
  const isToken = isBlank || predicts === "tokens";
  const title = t(`prompt.predicts.${predicts}`, { blank });
  const hint = t(isBlank ? "prompt.fill" : "prompt.follow");
  const longest = Math.max(...likely.map((each) => Math.max(each.p, each.before)), 1e-9);
  const places = { loss: decimal(loss), before: decimal(before) };
  const losses = loss !== null && t(isWhole ? "prompt.loss" : "prompt.losses", places);
  /** @param {Likely} likely */
  const row = ({ text, p, before: all }) =>
    html`<tr>
      <th scope="row">
        ${
          isToken
            ? html`<button
                class="token"
                type="button"
                title=${hint}
                onClick=${() => prompt.follow(text)}
              >
                ${text}
              </button>`
            : text
        }
      </th>
      <td>
        <span
          class="bar"
          aria-hidden="true"
          style=${`--now: ${p / longest}; --before: ${all / longest}`}
        />
      </td>
      <td class="number" data-value=${p} data-before=${all}>
        ${weight(p)}${!isWhole && html`<small>${signed(p - all, 4)}</small>`}
      </td>
    </tr>`;
  return html`<section class="likely">
    <h2>${title}</h2>
    <table class=${isToken ? "bars" : "bars long"} aria-label=${title} hidden=${!likely.length}>
      <tbody>
        ${likely.map(row)}
      </tbody>
    </table>
    <p class="loss" role="status" data-value=${loss ?? ""} data-before=${before ?? ""}>
      ${isBlank && !likely.length ? t("prompt.blank", { blank }) : losses}
    </p>
  </section>`;
}
