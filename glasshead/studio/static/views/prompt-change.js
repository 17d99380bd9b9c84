// What changes between two prompts: the logits of their candidates, and the heads that wrote it.
import { signed } from "../diverging.js";
import { decimal, weight } from "../numbers.js";
import { html } from "../parts/html.js";
import { Waterfall } from "../parts/waterfall.js";

/** @import { Translate } from "../app.js" */
/** @import { Parts } from "../parts/waterfall.js" */

/**
 * What the studio says of two prompts: of each number, that of A and that of B.
 * @typedef {object} Told
 * @property {{text: string, logit: [number, number], p: [number, number]}[]} candidates
 * @property {string} of  The most likely candidate of A
 * @property {string | null} against  And that of B; null where it is the same
 * @property {[number, number]} logit  Of the one less that of the other
 * @property {Parts | null} changed  By heads
 * @property {string | null} refused  Why they are not known
 */

/**
 * @param {object} props @param {Translate} props.t @param {Told} props.told
 * @param {string} props.href  Both prompts in the view "heads"
 * @param {(layer: number, head: number) => void} props.go
 * @param {any} props.away  Heads that are taken away
 */
export function Change({ t, told, href, go, away }) {
  const { candidates, of, against, changed, refused } = told;
  const longest = Math.max(...candidates.flatMap((each) => each.p), 1e-9);
  const [first, second] = told.logit.map((each) => decimal(each, 3));
  const places = { text: of, against, first, second };
  return html`<section class="likely" aria-label=${t("prompt.change")}>
      <h2>${t("prompt.change")}</h2>
      <p class="quiet">${t("prompt.change.told")}</p>
      <table class="bars pair">
        <thead>
          <tr>
            <td />
            <th scope="col">
              ${t("prompt.probabilities")} <span class="swatch" />A <span class="swatch less" />B
            </th>
            <th scope="colgroup" colspan="3">${t("prompt.logits")}</th>
          </tr>
          <tr>
            <td />
            <td />
            ${["A", "B", "A − B"].map((name) => html`<th scope="col">${name}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${candidates.map((each) => html`<${Row} each=${each} longest=${longest} />`)}
        </tbody>
      </table>
    </section>
    <section class="changed" aria-label=${t("prompt.changed")}>
      <h2>${t("prompt.changed")}</h2>
      ${refused && html`<p class="note">${refused}</p>`}
      ${
        changed &&
        html`<p class="quiet">
            ${t(`prompt.changed.${against === null ? "one" : "pair"}`, places)}
            ${" "}${away && t("prompt.changed.away")}
          </p>
          <${Waterfall}
            t=${t}
            caption=${t("prompt.changed")}
            of=${changed}
            sum=${told.logit[0] - told.logit[1]}
            go=${go}
          />`
      }
      <p><a class="more" href=${href}>${t("prompt.both")}</a></p>
    </section>`;
}

/** @param {{each: Told["candidates"][number], longest: number}} props */
function Row({ each, longest }) {
  const { text, logit } = each;
  const change = logit[0] - logit[1];
  return html`<tr>
    <th scope="row"><span class="token">${text}</span></th>
    <td>
      ${each.p.map(
        (share, at) =>
          html`<span
            class=${at ? "bar plain less" : "bar plain"}
            title=${`${"AB"[at]} ${weight(share)}`}
            style=${`--now: ${share / longest}`}
          />`,
      )}
    </td>
    ${logit.map((one) => html`<td class="number" data-value=${one}>${decimal(one, 2)}</td>`)}
    <td class="number difference" data-value=${change}>${signed(change, 2)}</td>
  </tr>`;
}
