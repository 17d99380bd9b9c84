// A sum as a waterfall: each part begins where the part before it ends. Parts that heads wrote lead
// to their heads.
import { signed } from "../diverging.js";
import { grouped } from "../numbers.js";
import { html } from "./html.js";

/** @import { Translate } from "../app.js" */
/** @import { Head } from "../selection.js" */

// A part that a component wrote; `layer` and `head` are null where it is no head.
/** @typedef {{name: string, layer: number | null, head: number | null, part: number}} Part */

// The parts of a sum; `count` others add up to the `rest`.
/** @typedef {{parts: Part[], rest: number, count: number}} Parts */

/**
 * @param {object} props @param {Translate} props.t @param {string} props.caption
 * @param {Parts} props.of @param {[string, number][]} [props.more]  Parts below the rest
 * @param {number} props.sum @param {string} [props.total]  Names the sum
 * @param {(head: Head) => void} props.go  Opens a head
 */
export function Waterfall({ t, caption, of: { parts, rest, count }, more = [], sum, go, total }) {
  const label = (/** @type {Part} */ { name, layer, head }) => {
    // A line may break after each module.
    if (layer === null) return html`<code>${name.replaceAll(".", ".\u200b")}</code>`;
    return html`<button type="button" onClick=${() => go([layer, head])}>
      ${t("heads.named", { layer, head })}
    </button>`;
  };
  /** @type {[any, number][]} */
  const steps = parts.map((one) => [label(one), one.part]);
  if (count) steps.push([t("why.rest", { count: grouped(count) }), rest]);
  steps.push(...more);
  let at = 0;
  const ends = steps.map(([, part]) => [at, (at += part)]);
  const low = Math.min(0, sum, ...ends.flat());
  const high = Math.max(0, sum, ...ends.flat());
  const share = (/** @type {number} */ value) => (value - low) / (high - low || 1);
  /** @param {any} name @param {number} part @param {number[]} places */
  const row = (name, part, places, kind = "") => {
    const [from, to] = places.map(share);
    return html`<tr class=${kind}>
      <th scope="row">${name}</th>
      <td class="track">
        <span
          class=${part < 0 ? "piece less" : "piece"}
          aria-hidden="true"
          style=${`--from: ${Math.min(from, to)}; --width: ${Math.abs(to - from)}`}
        />
      </td>
      <td class="part" data-value=${part}>${signed(part, 3)}</td>
    </tr>`;
  };
  return html`<table class="waterfall" style=${`--zero: ${share(0)}`}>
    <caption>
      <span>${caption}</span>
    </caption>
    <thead>
      <tr>
        <th scope="col">${t("why.component")}</th>
        <td />
        <th scope="col">${t("why.part")}</th>
      </tr>
    </thead>
    <tbody>
      ${steps.map(([name, part], place) => row(name, part, ends[place]))}
      ${row(total ?? t("why.sum"), sum, [0, sum], "sum")}
    </tbody>
  </table>`;
}
