// Two texts or models beside each other: what is compared, and the maps of both and their difference.
import { choice } from "../controls.js";
import { button, element, fill } from "../dom.js";
import { drawMap } from "../map.js";

/** @import { Tensor } from "../source.js" */
/** @import { Compare, Side } from "./heads-compare.js" */
/** @import { Summary } from "./heads-grid.js" */

/** @type {Record<Side, string>} */
const NAMES = { a: "A", b: "B", d: "A − B" };

/** What is compared, and which side is shown. @param {Compare} compare @param {string} text */
export function showBar(compare, text) {
  const { t, about, remember } = compare.context;
  const sides = /** @type {Side[]} */ (compare.told.refused ? ["a", "b"] : ["a", "b", "d"]);
  const options = sides.map((side) => /** @type {[string, string]} */ ([side, NAMES[side]]));
  const stop = button(t("heads.stop"), () => {
    remember({ minus: null, minussaid: null, minusmodel: null, side: null });
    compare.showModels();
    compare.changed().catch(compare.context.failed);
  });
  const models = [compare.model, compare.asked(text).model].map((at) => about.models?.[at]);
  const told = [compare.first, compare.second].map(({ running }, at) => {
    const name = models[at] && element("code", models[at]);
    return element("li", element("b", NAMES[at ? "b" : "a"]), " ", beginning(running), " ", name);
  });
  fill(
    compare.bar,
    element(
      "div.row",
      choice(t("heads.sides"), options, compare.side, (side) => compare.turn(side)),
      stop,
    ),
    element("ul.plain", told),
    compare.told.refused && element("p.refused", compare.told.refused),
  );
}

/**
 * The maps of both sides and their difference beside each other: a click enlarges one.
 * @param {Compare} compare @param {number} layer @param {number} head
 * @param {(side: Side) => Promise<Tensor>} weights
 */
export async function showThumbs(compare, layer, head, weights) {
  const { first, second } = compare;
  const { t } = compare.context;
  const isIn = (/** @type {Summary} */ one) => head < (one.heads[layer] ?? 0);
  const known = [isIn(first) && "a", isIn(second) && "b", !compare.told.refused && "d"];
  const sides = /** @type {Side[]} */ (known.filter(Boolean));
  const all = await Promise.all(sides.map(weights));
  const made = all.map(({ values, shape }, at) => {
    const side = sides[at];
    const canvas = element("canvas");
    const cross = element("span.cross", { "aria-hidden": "true" });
    const look = { logarithmic: false, skip: 0, diverging: side === "d" };
    drawMap(canvas, values, shape[0], look, 256);
    const label = t("heads.side_map", { side: NAMES[side] });
    const pressed = String(compare.side === side);
    return element(
      "button.thumb",
      {
        type: "button",
        "data-side": side,
        "aria-label": label,
        "aria-pressed": pressed,
        onclick: () => compare.turn(side),
      },
      element("span.frame", canvas, cross),
      element("b", NAMES[side]),
    );
  });
  fill(compare.thumbs, made);
  all.forEach(({ shape }, at) => {
    made[at].dataset.count = String(shape[0]);
  });
}

/** @param {string[]} running */
function beginning(running) {
  const text = running.join("").trim();
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}
