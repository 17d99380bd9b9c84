// The settings of the view "steps": a control for each, which offers what there is.
import { choice, menu, slider, textField } from "../controls.js";
import { button, element, fill } from "../dom.js";

/** @import { Context } from "../app.js" */
/** @import { Control, MakeControl } from "../controls.js" */
/** @import { Option, StepsData } from "./steps-sums.js" */

/** The controls of settings that are no menu. @type {Record<string, MakeControl>} */
const CONTROLS = { beta: stops, mask: choice, heads: choice, head: choice };
/** What makes no sense with other heads. @type {Record<string, null>} */
const OF_HEADS = { head: null, at: null };
/** What makes no sense with another sentence. @type {Record<string, null>} */
const OF_A_SENTENCE = { ...OF_HEADS, heads: null, query: null, source: null };

export class Settings {
  /** @param {Context} context @param {(changes: Record<string, any>) => void} ask */
  constructor({ t, source, about, signal }, ask) {
    this.t = t;
    this.ask = ask;
    // The controls by their settings, where each stands, and what it offers.
    /** @type {Record<string, {slot: HTMLElement, offer?: string, control?: Control | null}>} */
    this.made = {};
    const sent = (/** @type {string} */ text) => ask({ ...OF_A_SENTENCE, text });
    const most = about.limits.sentence;
    this.text = textField(t("steps.text"), "", t("steps.show"), sent, most);
    this.examples = element("div.control", { role: "group", "aria-label": t("steps.examples") });
    // What is asked first: a sentence.
    this.asking = element("div.controls", source.offline ? null : [this.text, this.examples]);
    this.others = element("div.controls", { role: "group", "aria-label": t("steps.choices") });
    // On a telephone the other settings are folded.
    const narrow = matchMedia("(max-width: 40rem)");
    this.frame = element(
      "details.settings",
      { open: !narrow.matches },
      element("summary", t("steps.choices")),
      this.others,
    );
    // A wide window has no way to unfold them.
    const unfold = () => {
      this.frame.open ||= !narrow.matches;
    };
    narrow.addEventListener("change", unfold, { signal });
  }

  /** @param {StepsData} data @param {number} query */
  draw(data, query) {
    const { chosen, defaults } = data;
    // A link that changes a setting shows it.
    const isSet = Object.entries(chosen).some(([name, value]) => value !== defaults[name]);
    const isNew = !this.data && isSet;
    if (isNew) this.frame.open = true;
    this.data = data;
    this.text.set(data.text);
    const others = data.examples.filter((each) => each !== data.text);
    this.examples.replaceChildren(
      ...others.map((each) => button(each, () => this.toExample(each))),
    );
    const values = /** @type {Record<string, any>} */ ({ ...data.chosen, query });
    for (const [name, options] of Object.entries(data.options)) {
      if (!this.made[name]) {
        this.made[name] = { slot: element("div.slot") };
        this.others.append(this.made[name].slot);
      }
      const made = this.made[name];
      // A control is made again only where its offer has changed: what is held by pointer or
      // keyboard stays.
      const offer = JSON.stringify(options);
      if (offer !== made.offer) {
        made.offer = offer;
        made.control = this.control(name, options);
        fill(made.slot, made.control);
      }
      made.control?.set(String(values[name]));
    }
    // A tour speaks of it, below a stage that is drawn in the next frame.
    if (isNew && "tour" in document.documentElement.dataset) {
      const show = () => this.made.beta.control?.scrollIntoView({ block: "nearest" });
      requestAnimationFrame(() => requestAnimationFrame(show));
    }
  }

  toExample(/** @type {string} */ sentence) {
    const text = sentence === this.data.examples[0] ? null : sentence;
    this.ask({ ...OF_A_SENTENCE, text, beta: null });
  }

  /** @param {string} name @param {Option[]} options */
  control(name, options) {
    if (options.length < 2) return null;
    const chosen = (/** @type {string} */ value) => this.take(name, value);
    const saidOf = (/** @type {Option} */ { name: value, said }) =>
      said ?? (typeof value === "number" ? String(value) : this.t(`steps.${name}.${value}`));
    const pairs = options.map((each) => [String(each.name), saidOf(each)]);
    return (CONTROLS[name] ?? menu)(this.t(`steps.${name}`), pairs, "", chosen);
  }

  // Ask for another value of a setting; the default has no place in the address.
  /** @param {string} name @param {string} value */
  take(name, value) {
    const { defaults, options, chosen } = this.data;
    /** @type {Record<string, any>} */
    const changes = { [name]: value === String(defaults[name]) ? null : value };
    if (name === "heads") Object.assign(changes, OF_HEADS);
    // Texts have matrices of their own, and some no scale.
    if (name === "source") Object.assign(changes, OF_HEADS, { heads: null, beta: null });
    // What never becomes hard goes on with the sharpest β that is a number.
    const normalizer = options.normalizer.find((each) => each.name === value);
    if (chosen.beta === "inf" && normalizer && !normalizer.hardens) {
      changes.beta = options.beta.at(-2).name;
    }
    this.ask(changes);
  }

  /** @param {number} query  The word to explain, where there is one */
  explain(query) {
    const { query: offered } = this.data.options;
    if (offered.some(({ name }) => name === query)) this.take("query", String(query));
  }
}

/** A slider over options, soft to hard. @type {MakeControl} */
function stops(label, given, _, chosen) {
  const options = /** @type {string[][]} */ (given);
  const textOf = (/** @type {number} */ place) => options[place][1];
  const control = slider(label, options.length, 0, textOf, (place) => chosen(options[place][0]));
  const setPlace = control.set;
  const set = (/** @type {string | number} */ value) =>
    setPlace(options.findIndex(([each]) => each === value));
  return Object.assign(/** @type {HTMLElement} */ (control), { set });
}
