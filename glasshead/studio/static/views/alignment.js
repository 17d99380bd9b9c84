// The view "alignment": a sentence, what a translator made of it, and what each word looked at.
import { scale } from "../colors.js";
import { choice, menu, slider, tellOrigin, textField } from "../controls.js";
import { capitalized, element, fill, headingCell, table, unique } from "../dom.js";
import { clamped, decimal, range } from "../numbers.js";
import { newest } from "../source.js";
import { Bands } from "./alignment-bands.js";

/** @import { Context, Sample, Translate, View } from "../app.js" */
/** @import { Tensor } from "../source.js" */
/** @import { Word } from "./alignment-bands.js" */

/** The sentences that a report holds. @typedef {{sentences: string[], beam: number}} Stored */

const MEAN = "mean";
const WIDEST_BEAM = 10;
const USUAL_BEAM = 5;
// The status of a refusal that another sentence or beam may mend.
const MENDED = [400, 413, 422];

class Alignment {
  /**
   * @param {HTMLElement} frame @param {Context} context @param {Stored | null} stored
   * @param {Sample | null} sample  Of a studio, where the address names no sentence
   */
  constructor(frame, context, stored, sample) {
    const { state, t, signal } = context;
    this.frame = frame;
    this.context = context;
    this.newSignal = newest(signal);
    const isMissing = stored && !stored.sentences.includes(state.sentence);
    this.sentence = isMissing ? stored.sentences[0] : (state.sentence ?? sample.text);
    const width = Math.round(Number(state.beam)) || USUAL_BEAM;
    this.beam = stored?.beam ?? clamped(width, 1, WIDEST_BEAM);
    this.layer = MEAN;
    this.head = MEAN;
    this.found = /** @type {Translations} */ (null);
    this.weights = /** @type {Tensor} */ (null);
    // The picture of the candidate that is shown, and its table.
    this.bands = /** @type {Bands | null} */ (null);
    this.table = /** @type {ReturnType<typeof weightTable>} */ (null);
    // A presentation hides the choice of the layer and the head.
    this.name = element("p.which");
    this.heat = element("figure.heat", { "data-panel": "" });
    this.result = element("div.result");
    this.shown = element("div.shown");
    this.origin = element("p.quiet.origin");
    if (sample) tellOrigin(this.origin, t, sample.origin, sample.why);
    fill(frame, element("div.controls", this.controls(stored), this.origin), this.result);
  }

  controls(/** @type {Stored | null} */ stored) {
    const { t, about } = this.context;
    const label = t("alignment.sentence");
    const sent = (/** @type {string} */ sentence) => this.change({ sentence });
    if (stored) return menu(label, stored.sentences, this.sentence, sent);
    const widthOf = (/** @type {number} */ at) => at + 1;
    const moved = (/** @type {number} */ at) => this.change({ beam: widthOf(at) });
    return [
      textField(label, this.sentence, t("alignment.translate"), sent, about.limits.sentence),
      slider(t("alignment.beam"), WIDEST_BEAM, this.beam - 1, widthOf, moved),
    ];
  }

  change(/** @type {{sentence?: string, beam?: number}} */ changes) {
    Object.assign(this, changes);
    this.context.remember({ ...changes, candidate: null, word: null });
    if (changes.sentence) fill(this.origin);
    this.translate();
  }

  async translate() {
    const { source, state } = this.context;
    await this.showing(async (signal) => {
      const params = { sentence: this.sentence, beam: this.beam };
      this.found = await source.json("alignment", params, { signal });
      signal.throwIfAborted();
      const { candidates } = this.found;
      const place = Math.max(0, Object.keys(candidates).indexOf(state.candidate));
      fill(this.result, this.candidates(place), this.choices(), this.shown);
      await this.choose(candidates[place], signal);
    });
  }

  candidates(/** @type {number} */ place) {
    const { t, remember } = this.context;
    return candidateList(this.found, place, t, (candidate) => {
      remember({ candidate, word: null });
      this.showing((signal) => this.choose(this.found.candidates[candidate], signal));
    });
  }

  choices() {
    const { layers, heads } = this.found;
    // To begin with, the mean of the heads of the last layer.
    const layer = this.numberChoice("layer", layers, String(layers - 1));
    const head = this.numberChoice("head", heads, heads > 1 ? MEAN : "0");
    return element("div.controls.choices", layer, head);
  }

  // A choice of one layer or head, or of the mean of all.
  /** @param {"layer" | "head"} name @param {number} count @param {string} usual */
  numberChoice(name, count, usual) {
    const { t, remember, state } = this.context;
    const known = range(count).map(String);
    /** @type {import("../controls.js").Option[]} */
    const options = count > 1 ? [[MEAN, t("alignment.mean")], ...known] : known;
    const isThere = known.includes(state[name]) || (count > 1 && state[name] === MEAN);
    this[name] = isThere ? state[name] : usual;
    return choice(t(`alignment.${name}`), options, this[name], (chosen) => {
      this[name] = chosen;
      remember({ [name]: chosen });
      this.redraw();
    });
  }

  /** Do what shows something else, and show a refusal in its place. */
  async showing(/** @type {(signal: AbortSignal) => Promise<void>} */ work) {
    delete this.frame.dataset.drawn;
    const signal = this.newSignal();
    this.bands = null;
    try {
      await work(signal);
    } catch (error) {
      if (!MENDED.includes(error.status)) {
        this.context.failed(error);
        return;
      }
      fill(this.result, element("div.refused", { role: "alert" }, element("p", error.message)));
    }
    const { bands } = this;
    this.context.picture(bands && (() => ({ title: this.which(), parts: [bands.stage] })));
    this.frame.dataset.drawn = "";
  }

  /** @param {Candidate} candidate @param {AbortSignal} signal */
  async choose({ target, tokens }, signal) {
    const { source, t, remember, state } = this.context;
    const params = { sentence: this.sentence, tokens: tokens.join(",") };
    this.weights = await source.numbers("alignment/weights", params, { signal });
    signal.throwIfAborted();
    if (!target.length) {
      fill(this.shown, element("p.note", t("alignment.nothing")));
      return;
    }
    this.bands = new Bands(
      this.found.source,
      target,
      t,
      (word) => this.table.mark(word),
      (word) => remember({ word }),
    );
    this.bands.element.prepend(this.name);
    fill(this.shown, this.bands.element, this.heat);
    this.redraw();
    this.bands.keep(state.word);
  }

  redraw() {
    const { bands } = this;
    if (!bands) return;
    const matrix = mean(this.weights, this.layer, this.head);
    const { source, target } = bands.words;
    const name = this.which();
    this.table = weightTable(source, target, matrix, name, this.context.t, (word) => {
      bands.show(word);
    });
    fill(this.name, capitalized(name));
    fill(this.heat, this.table);
    bands.redraw(matrix);
  }

  /** The layer and head that are shown, in words. */
  which() {
    const { t } = this.context;
    const words = (/** @type {"layer" | "head"} */ name) => {
      const kind = this[name] === MEAN ? "mean_of" : "one";
      return t(`alignment.${kind}.${name}`, { [name]: this[name] });
    };
    return words("layer") + t("shell.comma") + words("head");
  }
}

/**
 * A matrix of weights, of one layer and head or the mean of several.
 * @param {Tensor} weights  [layers, heads, target, source]
 * @param {string} layer @param {string} head
 */
function mean({ values, shape: [layers, heads, rows, columns] }, layer, head) {
  const chosenLayers = layer === MEAN ? range(layers) : [Number(layer)];
  const chosenHeads = head === MEAN ? range(heads) : [Number(head)];
  const maps = chosenLayers.flatMap((one) => chosenHeads.map((other) => one * heads + other));
  const cell = (/** @type {number} */ at) => {
    return maps.reduce((sum, map) => sum + values[map * rows * columns + at], 0) / maps.length;
  };
  return range(rows).map((row) => range(columns).map((column) => cell(row * columns + column)));
}

/** @type {View} */
export const alignment = async (frame, context) => {
  const { source } = context;
  // A file of one view has its sentence alone.
  const none = /** @returns {Stored} */ () => null;
  const stored = source.offline ? await source.json("alignment/stored").catch(none) : null;
  const isNamed = stored || context.state.sentence;
  const sample = isNamed ? null : await context.sample();
  await new Alignment(frame, context, stored, sample).translate();
};

// The tables of an alignment: what a beam found, and the weights cell by cell.

/**
 * A translation that the beam found: `own` are places of its words that the best candidate lacks.
 * @typedef {{text: string, own: number[], target: string[], tokens: number[], score: number,
 *   log_probability: number, ended: boolean}} Candidate
 */

/**
 * What the studio says of a sentence, the best candidate first.
 * @typedef {{source: string[], layers: number, heads: number, length_penalty: number,
 *   candidates: Candidate[]}} Translations
 */

/**
 * The candidates, of which one is chosen.
 * @param {Translations} found
 * @param {number} place  Which one
 * @param {Translate} t @param {(place: number) => void} chosen
 */
function candidateList({ candidates, length_penalty: penalty }, place, t, chosen) {
  // The sentence has its power as an exponent.
  const ranked = t("alignment.ranked").split("^{penalty}");
  const name = unique("candidate");
  const rows = candidates.map((candidate, at) => {
    const look = { type: "radio", name, checked: at === place, onchange: () => chosen(at) };
    return candidateRow(candidate, element("input", look), t);
  });
  const head = element(
    "div.row.head",
    { "aria-hidden": "true" },
    element("span"),
    element("span", t("alignment.candidate")),
    element("span.figure", t("alignment.score")),
    element("span.figure.second", t("alignment.ln_p")),
  );
  return element(
    "fieldset.candidates",
    { "data-panel": 1 },
    element("legend", t("alignment.candidates")),
    head,
    rows,
    element("p.quiet", ranked[0], element("sup", penalty), ranked[1]),
  );
}

/** @param {Candidate} candidate @param {HTMLInputElement} input @param {Translate} t */
function candidateRow({ text, target, own, score, log_probability: logP, ended }, input, t) {
  const words = text.split(" ").map((word, at) => {
    return [at > 0 && " ", own.includes(at) ? element("b", word) : word];
  });
  return element(
    "label.row",
    input,
    element(
      "span.text",
      target.length ? words : element("i", t("alignment.empty")),
      !ended && element("span.quiet", ` (${t("alignment.cut_off")})`),
    ),
    element("span.figure", { "data-value": score }, decimal(score)),
    element("span.figure.second", { "data-value": logP }, decimal(logP)),
  );
}

/**
 * The weights as numbers: a row for each word of the translation.
 * @param {string[]} source @param {string[]} target @param {number[][]} matrix
 * @param {string} which  Layer and head, in words
 * @param {Translate} t
 * @param {(word: Word | null) => void} pointed  Called with the word whose row has the pointer
 */
function weightTable(source, target, matrix, which, t, pointed) {
  const place = scale();
  /** @param {number} value */
  const cell = (value) => element(`td.w${place(value)}`, { "data-value": value }, decimal(value));
  const headings = [element("td"), source.map((word) => wordHeading("col", word))];
  const body = matrix.map((row, at) => [wordHeading("row", target[at]), row.map(cell)]);
  const caption = t("alignment.table", { what: which });
  const made = table("table.weights", caption, headings, body, t("alignment.picture"));
  // The first row has the words of the source, and the first column those of the target.
  const rows = [...made.querySelectorAll("tr")];
  rows.slice(1).forEach((row, at) => {
    row.onpointerenter = () => pointed({ side: "target", at });
    row.onpointerleave = () => pointed(null);
  });
  const mark = (/** @type {Word | null} */ word) => {
    const at = word && word.at + 1;
    rows.forEach((row, other) => {
      row.classList.toggle("here", word?.side === "target" && other === at);
      [...row.cells].forEach((each, column) => {
        each.classList.toggle("marked", word?.side === "source" && column === at);
      });
    });
  };
  return Object.assign(made, { mark });
}

/** @param {"row" | "col"} scope @param {string} word */
const wordHeading = (scope, word) => headingCell(scope, element("bdi", word));
