// A text compared with another one, or a model with another: what is compared, and which side is
// shown. A is what the view reads, B the other, and their difference is A − B.
import { TextPicker, menu } from "../controls.js";
import { element, fill } from "../dom.js";

/** @import { Context } from "../app.js" */
/** @import { Options, Parameters, Tensor } from "../source.js" */
/** @import { Summary } from "./heads-grid.js" */

/** @typedef {"a" | "b" | "d"} Side  A, B, or A − B */

/**
 * What the studio says of two readings.
 * @typedef {object} Compared
 * @property {string | null} refused  Why their weights have no difference
 * @property {number[][]} entropy
 * @property {Record<string, (number | null)[][]>} scores
 */

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
    /** @type {typeof import("./heads-sides.js")} */
    this.sides = null;
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
    if (!this.second || !["a", "b", "d"].includes(side)) return "a";
    return side === "d" && this.told.refused ? "a" : /** @type {Side} */ (side);
  }

  /** The number of the model whose heads are shown. @param {string} text */
  modelShown(text) {
    return this.side === "b" ? this.asked(text).model : this.model;
  }

  /**
   * Read what the first text is compared with.
   * @param {string} text @param {Summary} first @param {Options} options
   */
  async load(text, first, options) {
    const { source, state, remember } = this.context;
    this.first = first;
    this.second = null;
    // A link brings its text along.
    if (state.minussaid && !source.offline) {
      remember({ minus: await source.send(state.minussaid) });
    }
    const other = this.asked(text);
    if (other) {
      this.sides ??= await import("./heads-sides.js");
      const params = { text: other.text, model: other.model || null };
      const second = await source.stream("heads/reading", params, options);
      this.told = await source.json("heads/compared", this.params(text, "d"), options);
      this.second = second;
    }
    // What is compared is often the same text with another word.
    if (!source.offline) await this.picker.show(other ? other.text : text);
    if (other) this.sides.showBar(this, text);
    else fill(this.bar);
  }

  /** What is asked of a side. @param {string} text @param {Side} side @returns {Parameters} */
  params(text, side) {
    const other = this.asked(text);
    const own = { text, model: this.model || null };
    if (side === "b") return { text: other.text, model: other.model || null };
    if (side === "a") return own;
    return { ...own, minus: other.text, minus_model: other.model || null };
  }

  /** The summary of the heads on the side that is shown. @returns {Summary} */
  summary() {
    const { first, second, told, side } = this;
    if (!second) return first;
    if (side === "b") return { ...second, other: first, isSecond: true };
    if (side === "a") return { ...first, other: second };
    const { entropy, scores } = told;
    const tokens = paired(first.tokens, second.tokens);
    return { ...first, tokens, entropy, scores, other: second, differs: true };
  }

  /** @param {string} side */
  turn(side) {
    this.context.remember({ side: side === "a" ? null : side });
    this.turned();
  }

  /**
   * The maps of both sides and their difference beside each other: a click enlarges one.
   * @param {number} layer @param {number} head @param {(side: Side) => Promise<Tensor>} weights
   */
  async showThumbs(layer, head, weights) {
    if (this.second) await this.sides.showThumbs(this, layer, head, weights);
    else fill(this.thumbs);
  }

  /** Mark the cell under the cross-hair in each map. @param {number} query @param {number} key */
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
 * @param {string[]} words @param {string[]} others
 */
function paired(words, others) {
  return words.map((word, at) => {
    const other = others[at];
    return other === word || other === undefined ? word : `${word}/${other}`;
  });
}
