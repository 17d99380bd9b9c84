// A text compared with another one, or a model with another: what is compared, and which side is
// shown. A is what the view reads, B the other, and their difference is A − B.
import { TextPicker, choice, menu } from "../controls.js";
import { button, capitalized, element, fill, setStyle } from "../dom.js";
import { drawMap } from "../map.js";

/** @import { Head } from "../selection.js" */
/** @import { Options, Parameters } from "../source.js" */
/** @import { Summary } from "./heads-grid.js" */
/** @import { HeadsView } from "./heads.js" */

/** @typedef {"a" | "b" | "d"} Side  A, B, or A − B */

// What the studio says of two readings: their differences, and why their weights have none.
/** @typedef {Pick<Summary, "entropy" | "scores"> & {refused: string | null}} Compared */

/** @type {[Side, string][]} */
const SIDES = [
  ["a", "A"],
  ["b", "B"],
  ["d", "A − B"],
];
// Letters of a text that set it apart from another one.
const GLANCE = 80;
// Pixels along the map of a side, at most.
const SMALL = 256;

export class Compare {
  constructor(/** @type {HeadsView} */ heads) {
    const { context } = heads;
    this.heads = heads;
    this.context = context;
    this.first = /** @type {Summary} */ (null);
    this.second = /** @type {Summary} */ (null);
    this.told = /** @type {Compared} */ (null);
    this.picker = new TextPicker(context, ({ text, said }) => {
      return this.change({ minus: text, minussaid: said });
    });
    fill(this.picker.element.querySelector("summary"), context.t("heads.compare"));
    this.picker.element.classList.add("compare");
    this.models = element("div.models");
    this.bar = element("div.compared");
    this.thumbs = element("div.thumbs", { role: "group", "aria-label": context.t("heads.sides") });
    this.showModels();
  }

  /** Compare something else. @param {Record<string, any>} changes */
  async change(changes) {
    this.context.remember(changes);
    await this.heads.read(this.heads.text);
  }

  showModels() {
    const { t, about, state, failed } = this.context;
    const { models } = about;
    if (!models?.length) return;
    const options = models.map((name, at) => [at, name]);
    // With itself a model is compared where an address asks for it.
    const others = options.filter(([at]) => at !== this.model || String(at) === state.minusmodel);
    fill(
      this.models,
      menu(t("heads.model"), options, this.model, (at) => {
        this.change({ model: Number(at) || null, layer: null, head: null }).catch(failed);
        this.showModels();
        this.models.querySelector("select").focus();
      }),
      menu(
        t("heads.minus_model"),
        [["", t("heads.alone")], ...others],
        state.minusmodel ?? "",
        (at) => this.change({ minusmodel: at === "" ? null : at }).catch(failed),
      ),
    );
  }

  /** The number of the model that the view is of. */
  get model() {
    return Number(this.context.state.model) || 0;
  }

  /** The text and the model that it is compared with. */
  get other() {
    const { state, source } = this.context;
    const { minus, minusmodel } = state;
    if (source.offline || (!minus && minusmodel === undefined)) return null;
    return { text: minus ?? this.heads.text, model: Number(minusmodel ?? this.model) || 0 };
  }

  /** @returns {Side} */
  get side() {
    const { side } = this.context.state;
    if (!this.second || (side !== "b" && side !== "d")) return "a";
    return side === "d" && this.told.refused ? "a" : side;
  }

  /** The number of the model whose heads are shown. */
  get modelShown() {
    return this.side === "b" ? this.other.model : this.model;
  }

  /** Read what the first text is compared with. @param {Summary} first @param {Options} options */
  async load(first, options) {
    const { source, state, remember } = this.context;
    this.first = first;
    this.second = null;
    // A link brings its text along.
    if (state.minussaid && !source.offline) {
      remember({ minus: await source.send(state.minussaid) });
    }
    const { other } = this;
    if (other) {
      const second = await source.stream("heads/reading", this.params("b"), options);
      this.told = await source.json("heads/compared", this.params("d"), options);
      this.second = second;
    }
    // What is compared is often the same text with another word.
    if (!source.offline) await this.picker.show(other ? other.text : this.heads.text);
    fill(this.bar, other && this.compared());
  }

  /** What is asked of a side. @param {Side} side @returns {Parameters} */
  params(side = this.side) {
    const { other } = this;
    const own = { text: this.heads.text, model: this.model || null };
    if (side === "a") return own;
    const model = other.model || null;
    return side === "b"
      ? { text: other.text, model }
      : { ...own, minus: other.text, minus_model: model };
  }

  /** What is compared, and which side is shown. */
  compared() {
    const { first, second, told } = this;
    const { t, about, failed } = this.context;
    const sides = told.refused ? SIDES.slice(0, 2) : SIDES;
    /** @type {Record<string, null>} */
    const none = { minus: null, minussaid: null, minusmodel: null, side: null };
    const texts = [first, second].map(({ running }, at) => {
      const model = about.models?.[at ? this.other.model : this.model];
      const text = running.join("").trim();
      const beginning = text.length > GLANCE ? `${text.slice(0, GLANCE)}…` : text;
      return element(
        "li",
        element("b", "AB"[at]),
        " ",
        beginning,
        " ",
        model && element("code", model),
      );
    });
    return [
      element(
        "div.row",
        choice(t("heads.sides"), sides, this.side, (side) => this.turn(side)),
        button(t("heads.stop"), () => {
          this.change(none).catch(failed);
          this.showModels();
        }),
      ),
      element("ul", texts),
      told.refused && element("p.refused", capitalized(told.refused)),
    ];
  }

  /** The summary of the heads on the side that is shown. @returns {Summary} */
  summary() {
    const { first, second, told, side } = this;
    if (!second) return first;
    if (side === "b") return { ...second, other: first, isSecond: true };
    if (side === "a") return { ...first, other: second };
    const { entropy, scores } = told;
    // Both tokens where they are not the same.
    const tokens = first.tokens.map((word, at) => {
      const other = second.tokens[at] ?? word;
      return other === word ? word : `${word}/${other}`;
    });
    return { ...first, tokens, entropy, scores, other: second, differs: true };
  }

  turn(/** @type {string} */ side) {
    this.context.remember({ side: side === "a" ? null : side });
    this.heads.turn();
  }

  /** The maps of both sides and their difference beside each other: a click enlarges one. */
  async showThumbs(/** @type {Head} */ head) {
    const { first, second, told, heads } = this;
    const { t } = this.context;
    const isIn = (/** @type {Summary} */ summary) => head[1] < (summary?.heads[head[0]] ?? 0);
    const known = { a: isIn(first), b: isIn(second), d: !told?.refused };
    const sides = second ? SIDES.filter(([side]) => known[side]) : [];
    const weights = await Promise.all(sides.map(([side]) => heads.weightsOf(side, head)));
    const thumbs = weights.map(({ values, shape: [count] }, at) => {
      const [side, name] = sides[at];
      const canvas = element("canvas");
      drawMap(canvas, values, count, { diverging: side === "d" }, SMALL);
      const cross = element("span.cross", { "aria-hidden": "true", style: { "--count": count } });
      const look = {
        "data-side": side,
        "aria-label": t("heads.side_map", { side: name }),
        "aria-pressed": String(this.side === side),
      };
      return element(
        "button.thumb",
        { type: "button", onclick: () => this.turn(side), ...look },
        element("span.frame", canvas, cross),
        element("b", name),
      );
    });
    fill(this.thumbs, thumbs);
  }

  /** Mark the cell under the cross-hair in each map. */
  mark() {
    const { query, key } = this.heads.selection;
    setStyle(this.thumbs, { "--query": query, "--key": key });
  }
}
