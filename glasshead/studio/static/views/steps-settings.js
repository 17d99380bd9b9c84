// The settings of the view "steps": a control for each, which offers what there is.
import { choice, menu, slider, textField } from "../controls.js";
import { button, element, fill } from "../dom.js";
import { range } from "../numbers.js";

/**
 * @import { Context } from "../app.js"
 * @import { StepsData } from "./steps-sums.js"
 */

/** @typedef {HTMLElement & {set: (value: string) => void}} Control */

/**
 * @typedef {(label: string, options: [string, string][], value: string,
 *   chosen: (value: string) => void) => Control} MakeControl
 */

/** @type {Record<string, MakeControl>} */
const CONTROLS = {
  source: menu,
  beta: stops,
  mask: choice,
  normalizer: menu,
  heads: choice,
  head: choice,
  query: menu,
};
/**
 * What makes no sense with other heads.
 * @type {Record<string, null>}
 */
const OF_HEADS = { head: null, at: null };
/**
 * What makes no sense with another sentence.
 * @type {Record<string, null>}
 */
const OF_A_SENTENCE = { ...OF_HEADS, heads: null, query: null, source: null };

export class Settings {
  /**
   * @param {Context} context
   * @param {(changes: Record<string, any>) => void} ask
   */
  constructor({ t, source, about }, ask) {
    this.t = t;
    this.ask = ask;
    /** @type {StepsData} */
    this.data = null;
    /** @type {Record<string, Control | null>} */
    this.controls = {};
    // What each control offers, to see whether it has changed.
    /** @type {Record<string, string>} */
    this.offers = {};
    const names = Object.keys(CONTROLS);
    this.slots = Object.fromEntries(names.map((name) => [name, element("div.slot")]));
    /** @param {string} text */
    const sent = (text) => ask({ ...OF_A_SENTENCE, text });
    const most = about.limits.sentence;
    this.text = textField(t("steps.sentence"), "", t("steps.show"), sent, most);
    this.examples = element("div.control", { role: "group", "aria-label": t("steps.examples") });
    this.frame = element(
      "div.controls",
      { role: "group", "aria-label": t("steps.choices") },
      source.offline ? null : [this.text, this.examples],
      Object.values(this.slots),
    );
  }

  /**
   * @param {StepsData} data
   * @param {number} query
   */
  draw(data, query) {
    this.data = data;
    this.text.set(data.text);
    const others = data.examples.filter((each) => each !== data.text);
    fill(
      this.examples,
      others.map((each) => button(each, () => this.toExample(each))),
    );
    /** @type {Record<string, any>} */
    const values = { ...data.chosen, query };
    for (const [name, options] of Object.entries(this.options())) {
      // A control is made anew only where its offer has changed: what is held by pointer or
      // keyboard stays.
      const offer = JSON.stringify(options);
      if (offer !== this.offers[name]) {
        this.offers[name] = offer;
        this.controls[name] = this.control(name, options);
        fill(this.slots[name], this.controls[name]);
      }
      this.controls[name]?.set(String(values[name]));
    }
  }

  /** @param {string} sentence */
  toExample(sentence) {
    const text = sentence === this.data.examples[0] ? null : sentence;
    this.ask({ ...OF_A_SENTENCE, text, beta: null });
  }

  /**
   * @param {string} name
   * @param {[string, string][]} options
   */
  control(name, options) {
    if (options.length < 2) return null;
    const chosen = (/** @type {string} */ value) => this.take(name, value);
    return CONTROLS[name](this.t(`steps.${name}`), options, "", chosen);
  }

  /**
   * The options of each control, as values and texts.
   * @returns {Record<string, [string, string][]>}
   */
  options() {
    const { options, chosen, words } = this.data;
    /**
     * @param {any[]} values
     * @param {(value: any) => string} textOf
     * @returns {[string, string][]}
     */
    const pairs = (values, textOf) =>
      values.map((each) => [String(each.name ?? each), textOf(each)]);
    return {
      source: pairs(options.sources, (each) => each.said),
      beta: pairs(options.betas, (each) => each.said),
      mask: pairs(options.masks, (each) => this.t(`steps.mask.${each}`)),
      normalizer: pairs(options.normalizers, (each) => each.said),
      heads: pairs(options.heads, String),
      head: pairs(range(chosen.heads), String),
      query: pairs(options.queries, (each) => words[each]),
    };
  }

  /**
   * Ask for another value of a setting; the default has no place in the address.
   * @param {string} name
   * @param {string} value
   */
  take(name, value) {
    const { defaults, options, chosen } = this.data;
    /** @type {Record<string, any>} */
    const changes = { [name]: value === String(defaults[name]) ? null : value };
    if (name === "heads") Object.assign(changes, OF_HEADS);
    // Texts have matrices of their own, and some no scale.
    if (name === "source") Object.assign(changes, OF_HEADS, { heads: null, beta: null });
    // What never becomes hard goes on with the sharpest β that is a number.
    const normalizer = options.normalizers.find((each) => each.name === value);
    if (chosen.beta === "inf" && normalizer && !normalizer.hardens) {
      changes.beta = options.betas.at(-2).name;
    }
    this.ask(changes);
  }

  /** @param {number} query  The word to explain, where there is one */
  explain(query) {
    if (this.data.options.queries.includes(query)) this.take("query", String(query));
  }
}

/**
 * A slider over options, soft to hard.
 * @type {MakeControl}
 */
function stops(label, options, _, chosen) {
  /** @param {number} place */
  const textOf = (place) => options[place][1];
  const control = slider(label, options.length, 0, textOf, (place) => chosen(options[place][0]));
  const setPlace = control.set;
  /** @param {string} value */
  const set = (value) => setPlace(options.findIndex(([each]) => each === value));
  return Object.assign(/** @type {HTMLElement} */ (control), { set });
}
