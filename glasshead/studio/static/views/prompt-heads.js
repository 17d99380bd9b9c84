// The heads of a model as small maps: a click shows the arcs of one, or takes it away.
import { HeadGrid } from "../parts/head-grid.js";
import { placeOf } from "../selection.js";
import { html } from "../parts/html.js";
import { MapCanvas } from "../parts/map-canvas.js";

/** @import { Translate } from "../app.js" */
/** @import { Head } from "../selection.js" */
/** @import { Tensor } from "../source.js" */

const LOOK = { logarithmic: false, skip: 0 };

/**
 * @param {object} props @param {Translate} props.t
 * @param {number[]} props.counts  Heads of each layer
 * @param {Tensor} props.maps
 * @param {Head[]} props.shown  Heads whose arcs are shown
 * @param {string[]} props.colors  Of their arcs
 * @param {Head[]} props.away  Heads that are taken away
 * @param {(layer: number, head: number) => void} props.chosen
 * @param {(layer: number) => void} props.chosenLayer
 */
export function PromptHeads({ t, counts, maps, shown, colors, away, chosen, chosenLayer }) {
  /** @param {number} layer @param {number} head @param {number} at @param {number} tabindex */
  const cell = (layer, head, at, tabindex) => {
    const place = placeOf(shown, [layer, head]);
    const isAway = placeOf(away, [layer, head]) >= 0;
    return html`<button
      key=${`${layer}.${head}`}
      type="button"
      class=${["small", place >= 0 && "shown", isAway && "away"].filter(Boolean).join(" ")}
      style=${place >= 0 ? `--own: ${colors[place]}` : ""}
      tabindex=${tabindex}
      aria-label=${t(isAway ? "prompt.gone" : "heads.named", { layer, head })}
      aria-pressed=${String(place >= 0)}
      data-layer=${layer}
      data-head=${head}
      onClick=${() => chosen(layer, head)}
    >
      <${MapCanvas} maps=${maps} at=${at} tokens=${0} look=${LOOK} />
    </button>`;
  };
  /** @param {number} layer */
  const rowHead = (layer) =>
    html`<button
      class="layer"
      type="button"
      aria-label=${t("prompt.layer", { layer })}
      onClick=${() => chosenLayer(layer)}
    >
      ${layer}
    </button>`;
  return html`<${HeadGrid}
    label=${t("heads.grid")}
    counts=${counts}
    corner=${html`${t("heads.head")} →<br />${t("heads.layer")} ↓`}
    cell=${cell}
    rowHead=${rowHead}
  />`;
}
