// The heads of a model as small maps: a click shows the arcs of one, or takes it away.
import { element, fill, moveOf, table } from "../dom.js";
import { drawMap } from "../map.js";
import { range, within } from "../numbers.js";

/**
 * @import { Translate } from "../app.js"
 * @import { Tensor } from "../source.js"
 */

/** @typedef {[number, number]} Head  A layer, and a head of it */

/**
 * Heads as the address holds them, such as "1.3,4.0".
 * @param {string | undefined} written
 * @returns {Head[]}
 */
export function headsOf(written) {
  const names = (written ?? "").split(",").filter((name) => /^\d+\.\d+$/.test(name));
  return names.map((name) => /** @type {Head} */ (name.split(".").map(Number)));
}

/** @param {Head[]} heads */
export function listed(heads) {
  return heads.map((head) => head.join(".")).join(",") || null;
}

export class PromptHeads {
  /**
   * @param {Translate} t
   * @param {(layer: number, head: number) => void} chosen
   * @param {(layer: number) => void} chosenLayer
   */
  constructor(t, chosen, chosenLayer) {
    this.t = t;
    this.chosen = chosen;
    this.chosenLayer = chosenLayer;
    /** @type {number[]} */
    this.counts = [];
    /** @type {HTMLButtonElement[][]} */
    this.buttons = [];
    this.element = element("div.grid");
  }

  /**
   * @param {number[]} counts  Heads of each layer
   * @param {Tensor} maps
   */
  show(counts, maps) {
    if (counts.join() !== this.counts.join()) this.build(counts);
    const [, side, wider] = maps.shape;
    this.buttons.flat().forEach((button, at) => {
      const values = new Float32Array(side * side);
      for (let row = 0; row < side; row += 1) {
        const start = (at * side + row) * wider;
        values.set(maps.values.subarray(start, start + side), row * side);
      }
      drawMap(button.querySelector("canvas"), values, side, { logarithmic: false, skip: 0 });
    });
  }

  /** @param {number[]} counts */
  build(counts) {
    const { t } = this;
    this.counts = counts;
    this.buttons = counts.map((count, layer) => {
      return range(count).map((head) => {
        return element(
          "button.small",
          {
            type: "button",
            tabindex: layer + head ? -1 : 0,
            "aria-label": t("heads.named", { layer, head }),
            "data-layer": layer,
            "data-head": head,
            onclick: () => this.chosen(layer, head),
          },
          element("canvas"),
        );
      });
    });
    const rows = this.buttons.map((row, layer) => {
      const name = t("prompt.layer", { layer });
      const onclick = () => this.chosenLayer(layer);
      const button = element(
        "button.layer",
        { type: "button", onclick, "aria-label": name },
        layer,
      );
      return [element("th", { scope: "row" }, button), row.map((each) => element("td", each))];
    });
    const headings = range(Math.max(...counts)).map((at) => element("th", { scope: "col" }, at));
    const made = table("table", t("heads.grid"), [element("td"), headings], rows);
    made.onkeydown = (event) => this.walk(event);
    made.style.setProperty("--heads", String(Math.max(...counts)));
    fill(this.element, made);
  }

  /** @param {KeyboardEvent} event */
  walk(event) {
    const from = /** @type {HTMLButtonElement} */ (event.target).closest("button.small");
    const move = moveOf(event);
    if (!from || !move) return;
    event.preventDefault();
    const { dataset } = /** @type {HTMLElement} */ (from);
    const layer = within(Number(dataset.layer) + move[0], this.counts.length);
    const head = within(Number(dataset.head) + move[1], this.counts[layer]);
    for (const button of this.buttons.flat()) button.tabIndex = -1;
    this.buttons[layer][head].tabIndex = 0;
    this.buttons[layer][head].focus();
  }

  /**
   * Mark the heads whose arcs are shown, each by its color, and those that are taken away.
   * @param {Head[]} shown
   * @param {string[]} colors
   * @param {Head[]} away
   */
  mark(shown, colors, away) {
    const { t } = this;
    for (const button of this.buttons.flat()) {
      button.style.removeProperty("--own");
      button.classList.remove("shown", "away");
      button.ariaPressed = "false";
      const { layer, head } = button.dataset;
      button.ariaLabel = t("heads.named", { layer, head });
    }
    shown.forEach(([layer, head], at) => {
      const button = this.buttons[layer]?.[head];
      button?.style.setProperty("--own", colors[at]);
      button?.classList.add("shown");
      if (button) button.ariaPressed = "true";
    });
    for (const [layer, head] of away) {
      const button = this.buttons[layer]?.[head];
      if (!button) continue;
      button.classList.add("away");
      button.ariaLabel = t("prompt.gone", { layer, head });
    }
  }
}
