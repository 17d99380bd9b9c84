// The ways to follow a query: watch its walk, predict its weights, or drag its arrows.
import { choice } from "../controls.js";
import { element, fill } from "../dom.js";
import { Unreachable } from "../source.js";

/** @import { Context } from "../app.js" */
/** @import { Row } from "./steps-row.js" */
/** @import { Walk } from "./steps-walk.js" */

/**
 * What there is to practice on: the row of the query that is selected, with rows of others after it,
 * which can be selected; where it has no more than some keys, all of them are to be asked for.
 * @typedef {{row: Row, rows: () => Row[] | Promise<Row[]>, select: (query: number) => void,
 *   whole?: () => Promise<Row>}} Material
 */

/**
 * @typedef {{element: HTMLElement, show: (material: Material) => Promise<void> | void}} Exercise
 */

/** What an exercise calls with whether its answer is open. @typedef {(isOpen: boolean) => void} Opened */

export class Practice {
  /** @param {Context} context @param {Walk} walk */
  constructor(context, walk) {
    const { t, state } = context;
    this.context = context;
    this.walk = walk;
    this.made = /** @type {Record<string, Exercise>} */ ({});
    const ways = ["watch", "predict", "drag"];
    this.way = ways.includes(state.way) ? state.way : "watch";
    const options = ways.map((way) => [way, t(`practice.${way}`)]);
    const chosen = (/** @type {string} */ way) => this.choose(way);
    this.place = element("div");
    this.element = element(
      "div.ways",
      { "data-panel": "" },
      choice(t("practice.title"), options, this.way, chosen),
      walk.element,
      this.place,
    );
  }

  /** What is shown: the walk, or an exercise. */
  get shown() {
    return this.made[this.way]?.element ?? this.walk.element;
  }

  show(/** @type {Material} */ material) {
    this.material = material;
    return this.draw();
  }

  choose(/** @type {string} */ way) {
    this.way = way;
    this.context.remember({ way: way === "watch" ? null : way });
    this.walk.pause();
    return this.draw();
  }

  // Hide what shows the answer until all weights are guessed, and numbers that dragged arrows change.
  cover(/** @type {boolean} */ isOpen) {
    this.element.closest(".steps").classList.toggle("practiced", isOpen && this.way !== "watch");
  }

  async draw() {
    const { way, material, context } = this;
    this.walk.element.hidden = way !== "watch";
    if (way === "watch") {
      this.cover(false);
      return fill(this.place);
    }
    try {
      // The code arrives when an exercise is first chosen.
      const { EXERCISES } = await import("./steps-exercises.js").catch(() => {
        throw new Unreachable(way);
      });
      this.made[way] ??= new EXERCISES[way](context, (isOpen) => this.cover(isOpen));
      // Meanwhile another may have been chosen.
      if (way !== this.way || material !== this.material) return;
      fill(this.place, this.made[way].element);
      await this.made[way].show(material);
    } catch (error) {
      if (!context.signal.aborted) context.failed(error);
    }
  }
}
