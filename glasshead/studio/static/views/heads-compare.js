// A text compared with another one, or a model with another: what is compared, and which side is
// shown. A is what the view reads, B the other, and their difference is A − B.
import { TextPicker, choice, menu } from "../controls.js";
import { button, element, fill } from "../dom.js";
import { drawMap } from "../map.js";

/**
 * @import { Context } from "../app.js"
 * @import { Options, Parameters, Tensor } from "../source.js"
 * @import { Summary } from "./heads-grid.js"
 */

/** @typedef {"a" | "b" | "d"} Side  A, B, or A − B */

/**
 * What the studio says of two readings.
 * @typedef {object} Compared
 * @property {string | null} refused  Why their weights have no difference
 * @property {number[][]} entropy
 * @property {Record<string, (number | null)[][]>} scores
 */

/** @type {Record<Side, string>} */
const NAMES = { a: "A", b: "B", d: "A − B" };

export class Compare {
  /**
   * @param {Context} context
   * @param {() => Promise<void>} changed  Something else is compared
   * @param {() => void} turned  Another side is shown
   */
  constructor(context, changed, turned) {
    this.context = context;
    this.changed = changed;
    this.turned = turned;
    /** @type {Summary} */
    this.first = null;
    /** @type {Summary} */
    this.second = null;
    /** @type {Compared} */
    this.told = null;
    this.picker = this.textPicker();
    this.models = element("div.models");
    this.bar = element("div.compared");
    this.thumbs = element("div.thumbs", { role: "group", "aria-label": context.t("heads.sides") });
    this.showModels();
  }

  textPicker() {
    const { context } = this;
    const picker = new TextPicker(context, async ({ text, said }) => {
      context.remember({ minus: text, minussaid: said });
      await this.changed();
    });
    fill(picker.element.querySelector("summary"), context.t("heads.compare"));
    picker.element.classList.add("compare");
    return picker;
  }

  showModels() {
    const { t, about, state, remember } = this.context;
    const { models } = about;
    if (!models?.length) return;
    const options = models.map((name, at) => /** @type {[number, string]} */ ([at, name]));
    // With itself a model is compared where an address asks for it.
    /** @param {number} at */
    const isOther = (at) => at !== this.model || String(at) === state.minusmodel;
    /** @param {Record<string, any>} changes */
    const change = (changes) => {
      remember(changes);
      this.changed().catch(this.context.failed);
    };
    fill(
      this.models,
      menu(t("heads.model"), options, this.model, (at) => {
        change({ model: Number(at) || null, layer: null, head: null });
        this.showModels();
        this.models.querySelector("select").focus();
      }),
      menu(
        t("heads.minus_model"),
        [["", t("heads.alone")], ...options.filter(([at]) => isOther(at))],
        state.minusmodel ?? "",
        (at) => change({ minusmodel: at === "" ? null : at }),
      ),
    );
  }

  /** The number of the model that the view is of. */
  get model() {
    return Number(this.context.state.model) || 0;
  }

  /** The text and the model that it is compared with. @param {string} text  That of the view */
  asked(text) {
    const { state, source } = this.context;
    const { minus, minusmodel } = state;
    if (source.offline || (!minus && minusmodel === undefined)) return null;
    return { text: minus ?? text, model: Number(minusmodel ?? this.model) || 0 };
  }

  /** @returns {Side} */
  get side() {
    const { side } = this.context.state;
    if (!this.second || !Object.hasOwn(NAMES, side ?? "")) return "a";
    return side === "d" && this.told.refused ? "a" : /** @type {Side} */ (side);
  }

  /** The number of the model whose heads are shown. @param {string} text */
  modelShown(text) {
    return this.side === "b" ? this.asked(text).model : this.model;
  }

  /**
   * Read what the first text is compared with.
   * @param {string} text
   * @param {Summary} first
   * @param {Options} options
   */
  async load(text, first, options) {
    const { source, state } = this.context;
    this.first = first;
    this.second = null;
    const other = this.asked(text);
    if (other) {
      // A link brings its text along.
      if (state.minussaid) await source.send(state.minussaid);
      const params = { text: other.text, model: other.model || null };
      const second = await source.stream("heads/reading", params, options);
      this.told = await source.json("heads/compared", this.params(text, "d"), options);
      this.second = second;
    }
    // What is compared is often the same text with another word.
    if (!source.offline) await this.picker.show(other ? other.text : text);
    this.showBar(text);
  }

  /**
   * What is asked of a side.
   * @param {string} text
   * @param {Side} side
   * @returns {Parameters}
   */
  params(text, side) {
    const other = this.asked(text);
    const own = { text, model: this.model || null };
    if (side === "b") return { text: other.text, model: other.model || null };
    if (side === "a") return own;
    return { ...own, minus: other.text, minus_model: other.model || null };
  }

  /**
   * What is told of the heads on the side that is shown.
   * @returns {Summary}
   */
  summary() {
    const { first, second, told, side } = this;
    if (!second) return first;
    if (side === "b") return { ...second, other: first, isSecond: true };
    if (side === "a") return { ...first, other: second };
    const { entropy, scores } = told;
    const tokens = paired(first.tokens, second.tokens);
    return { ...first, tokens, entropy, scores, other: second, differs: true };
  }

  /** @param {string} text */
  showBar(text) {
    const { t, about, remember } = this.context;
    if (!this.second) {
      fill(this.bar);
      return;
    }
    const sides = /** @type {Side[]} */ (this.told.refused ? ["a", "b"] : ["a", "b", "d"]);
    const options = sides.map((side) => /** @type {[string, string]} */ ([side, NAMES[side]]));
    const stop = button(t("heads.stop"), () => {
      remember({ minus: null, minussaid: null, minusmodel: null, side: null });
      this.showModels();
      this.changed().catch(this.context.failed);
    });
    const models = [this.model, this.asked(text).model].map((at) => about.models?.[at]);
    const told = [this.first, this.second].map(({ running }, at) => {
      const name = models[at] && element("code", models[at]);
      return element("li", element("b", NAMES[at ? "b" : "a"]), " ", beginning(running), " ", name);
    });
    fill(
      this.bar,
      element(
        "div.row",
        choice(t("heads.sides"), options, this.side, (side) => this.turn(side)),
        stop,
      ),
      element("ul.plain", told),
      this.told.refused && element("p.refused", this.told.refused),
    );
  }

  /** @param {string} side */
  turn(side) {
    this.context.remember({ side: side === "a" ? null : side });
    this.turned();
  }

  /**
   * The maps of both sides and their difference beside each other: a click enlarges one.
   * @param {number} layer
   * @param {number} head
   * @param {(side: Side) => Promise<Tensor>} weights
   */
  async showThumbs(layer, head, weights) {
    const { first, second } = this;
    const { t } = this.context;
    if (!second) {
      fill(this.thumbs);
      return;
    }
    const isIn = (/** @type {Summary} */ one) => head < (one.heads[layer] ?? 0);
    const known = [isIn(first) && "a", isIn(second) && "b", !this.told.refused && "d"];
    const sides = /** @type {Side[]} */ (known.filter(Boolean));
    const all = await Promise.all(sides.map(weights));
    const made = all.map(({ values, shape }, at) => {
      const side = sides[at];
      const canvas = element("canvas");
      const cross = element("span.cross", { "aria-hidden": "true" });
      const look = { logarithmic: false, skip: 0, diverging: side === "d" };
      drawMap(canvas, values, shape[0], look, 256);
      const label = t("heads.side_map", { side: NAMES[side] });
      const pressed = String(this.side === side);
      return element(
        "button.thumb",
        {
          type: "button",
          "data-side": side,
          "aria-label": label,
          "aria-pressed": pressed,
          onclick: () => this.turn(side),
        },
        element("span.frame", canvas, cross),
        element("b", NAMES[side]),
      );
    });
    fill(this.thumbs, made);
    all.forEach(({ shape }, at) => {
      made[at].dataset.count = String(shape[0]);
    });
  }

  /**
   * Mark the cell under the cross-hair in each map.
   * @param {number} query
   * @param {number} key
   */
  mark(query, key) {
    for (const thumb of this.thumbs.querySelectorAll("button")) {
      const count = Number(thumb.dataset.count);
      const cross = /** @type {HTMLElement} */ (thumb.querySelector(".cross"));
      cross.hidden = query >= count || key >= count;
      cross.style.left = `${(100 * (key + 0.5)) / count}%`;
      cross.style.top = `${(100 * (query + 0.5)) / count}%`;
    }
  }
}

/**
 * The tokens of two texts, both where they are not the same.
 * @param {string[]} words
 * @param {string[]} others
 */
function paired(words, others) {
  return words.map((word, at) => {
    const other = others[at];
    return other === word || other === undefined ? word : `${word}/${other}`;
  });
}

/** @param {string[]} running */
function beginning(running) {
  const text = running.join("").trim();
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}
