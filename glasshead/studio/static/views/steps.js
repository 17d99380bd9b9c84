// The view "steps": every matrix of a small attention, and the sum behind each of its numbers.
import { element, fill, given, sightOf } from "../dom.js";
import { decimal, largestAt, range } from "../numbers.js";
import { Refused } from "../source.js";
import { divergingGradient } from "../diverging.js";
import { CellOfModel } from "./steps-cell.js";
import { Explanation, SumFrame } from "./steps-explanation.js";
import { Matrix } from "./steps-matrix.js";
import { Practice } from "./steps-practice.js";
import { rowOf } from "./steps-row.js";
import { Settings } from "./steps-settings.js";
import { sumOf } from "./steps-sums.js";
import { Walk } from "./steps-walk.js";

/** @import { Context, View } from "../app.js" */
/** @import { Explained } from "./steps-explanation.js" */
/** @import { StepsData } from "./steps-sums.js" */

// The way of the numbers in two lines, and what stands between a matrix and the next.
/** @type {Record<string, string | null>[]} */
const LINES = [
  { queries: "·", keys: "=", scores: "→", scaled: "→", masked: "→" },
  { weights: "·", values: "=", context: null },
];
// Matrices that may be the same as that before them, and that one.
const BEFORE = /** @type {Record<string, string>} */ ({ scaled: "scores", masked: "scaled" });
// Where one looks is no setting.
const PLACES = ["at", "frame", "idle", "way"];

// The sections of the explanation that phases of the walk are of, where these have another name.
/** @type {Record<string, string>} */
const SECTIONS = { query: "queries", score: "scores", power: "weights", mix: "context" };

class Steps {
  /** @param {HTMLElement} frame @param {Context} context */
  constructor(frame, context) {
    const { t, state } = context;
    this.frame = frame;
    this.context = context;
    this.t = t;
    this.state = state;
    // The word that is explained, and the cells of the keyboard and of the pointer.
    this.query = 0;
    this.at = /** @type {string} */ (null);
    this.shown = /** @type {string} */ (null);
    // The words, the head's width and the decimals that the tables were built for.
    this.shape = "";
    // The scales that the legend was drawn for.
    this.scales = "";
    // Whether something is being asked for, and whether that is out of date already.
    this.isAsking = false;
    this.isStale = false;
    // Whether a slider is held, and will move on.
    this.isHeld = false;
    // Whether the walk went on to the weights since the explanation was drawn.
    this.isTurned = false;
    // The state that was drawn last, to go back to, and why the one that is asked for is refused.
    this.drawn = /** @type {Record<string, string>} */ ({});
    this.settings = new Settings(context, (changes) => this.ask(changes));
    this.refusal = element("div", { role: "alert" });
    this.pipeline = this.pipelineFrame();
    this.legend = element("p.legend", { "aria-label": t("steps.legend"), role: "note" });
    this.sum = new SumFrame(t);
    this.sight = sightOf(this.sum.element);
    this.walk = new Walk(
      context,
      (phase) => this.explanation.mark(SECTIONS[phase] ?? phase, true),
      () => this.fold(),
    );
    this.practice = new Practice(context, this.walk);
    this.explanation = new Explanation(t("steps.words"));
    const hint = element(
      "p.quiet",
      t("steps.hint"),
      " ",
      element("span.help", t("steps.keyboard")),
    );
    this.sought = element("div.sought", this.pipeline, this.sum.element);
    const { legend } = this;
    const numbers = element("div.numbers", { "data-panel": "" }, this.sought, legend, hint);
    const { asking, frame: settings } = this.settings;
    this.followSliders(settings);
    const made = element(
      "div.made",
      this.practice.element,
      asking,
      settings,
      this.refusal,
      numbers,
    );
    this.columns = element("div.columns", made, this.explanation.frame);
  }

  pipelineFrame() {
    return element("div.pipeline", {
      role: "group",
      "aria-label": this.t("steps.matrices"),
      onpointerover: ({ target, pointerType }) => {
        // A finger rests nowhere: it settles by a click.
        if (pointerType !== "touch") this.show(cellOf(target) ?? this.at, true);
      },
      onpointerleave: () => this.show(this.at, true),
      onfocusin: (/** @type {FocusEvent} */ { target }) => this.settle(cellOf(target)),
      onclick: ({ target }) => this.explain(cellOf(target)),
    });
  }

  /** Follow a slider that is held, and draw the rest when it is released. @param {HTMLElement} settings */
  followSliders(settings) {
    settings.addEventListener("pointerdown", (/** @type {any} */ { target }) => {
      this.isHeld = target.type === "range";
    });
    const release = () => {
      if (!this.isHeld) return;
      this.isHeld = false;
      this.ask();
    };
    const { signal } = this.context;
    for (const name of ["pointerup", "pointercancel"]) addEventListener(name, release, { signal });
  }

  /** Whether more will be drawn at once. */
  get isMoving() {
    return this.isStale || this.isHeld;
  }

  // Ask for other settings. While an answer is under way only the newest settings wait for it.
  /** @param {Record<string, any>} changes */
  async ask(changes = {}) {
    const { signal } = this.context;
    this.context.remember(changes);
    delete this.frame.dataset.drawn;
    this.isStale = true;
    if (this.isAsking) return;
    this.isAsking = true;
    while (this.isStale && !signal.aborted) {
      this.isStale = false;
      this.problem = null;
      const asked = { ...this.state };
      try {
        await this.answer(asked, signal);
      } catch (error) {
        if (!signal.aborted) await this.recover(error, asked, signal);
        // Draw the matrices that were skipped while the slider moved.
        if (!signal.aborted && this.data) this.drawCells();
      }
    }
    this.isAsking = false;
    if (!signal.aborted && this.data) this.frame.dataset.drawn = "";
  }

  /** @param {Record<string, string>} state @param {AbortSignal} signal */
  async answer(state, signal) {
    const { source, language } = this.context;
    const { query, ...chosen } = state;
    for (const name of PLACES) delete chosen[name];
    const data = await source.json("steps", chosen, { signal });
    if (signal.aborted) return;
    // Of a query that is selected meanwhile, the numbers are here.
    const newest = Number(this.state.query);
    this.draw(data, newest in data.words ? newest : data.query);
    // While a slider moves, the numbers follow the walk in the next frame; the words wait.
    const { isMoving } = this;
    if (isMoving) await new Promise(requestAnimationFrame);
    if (signal.aborted) return;
    this.drawCells();
    if (isMoving) return;
    // A word of a sentence that is refused may be none of the one that is drawn.
    const isThere = !this.problem || Number(query) in data.words;
    const params = { ...chosen, query: isThere ? query : null, lang: language };
    const explained = await source.json("steps/words", params, { signal });
    if (!signal.aborted && !this.isMoving) this.tell(explained, state);
  }

  // Tell of a refusal beside the sentence that was drawn before, with all other settings; where
  // these are refused as well, go back to those that were drawn.
  /** @param {Error} error @param {Record<string, string>} asked @param {AbortSignal} signal */
  async recover(error, asked, signal) {
    if (!(error instanceof Refused)) {
      this.context.failed(error);
      return;
    }
    this.problem = error.message;
    const { text, source, ...others } = asked;
    const { text: before, source: beforeAs } = this.drawn;
    const sentence = Object.fromEntries(given({ text: before, source: beforeAs }));
    try {
      if (text === before && source === beforeAs) throw error;
      await this.answer({ ...others, ...sentence }, signal);
      // What is to be shortened is left in its field.
      if (!signal.aborted && !this.isStale) this.settings.text.set(text ?? "");
    } catch (again) {
      if (!signal.aborted && !this.isStale) await this.goBack(again, asked, signal);
    }
  }

  /** @param {Error} error @param {Record<string, string>} asked @param {AbortSignal} signal */
  async goBack(error, asked, signal) {
    const nothing = /** @type {Record<string, string | null>} */ ({});
    for (const name of Object.keys(this.state)) nothing[name] = null;
    this.context.remember({ ...nothing, ...this.drawn });
    const isLast = !Object.keys(asked).length || !(error instanceof Refused);
    if (isLast) this.context.failed(error);
    else await this.answer({ ...this.state }, signal).catch(this.context.failed);
  }

  /** @param {StepsData} data @param {number} query */
  draw(data, query) {
    this.data = data;
    this.query = query;
    const { words, matrices, decimals } = data;
    const shape = JSON.stringify([words, matrices.queries[0].length, decimals]);
    if (shape !== this.shape) this.build(shape);
    this.at ??= this.strongestCell();
    this.walk.fold.open ||= this.isFolded(this.at);
    const normalizer = data.options.normalizer.find(({ name }) => name === data.normalizer)?.said;
    const row = (/** @type {number} */ of) => rowOf(data, of, normalizer ?? data.normalizer);
    const own = row(query);
    const isTurned = this.walk.show(own);
    this.isTurned ||= isTurned;
    // What is being moved or typed is left alone.
    if (!this.isStale) this.settings.draw(data, query);
    this.practice.show({
      row: own,
      rows: () => range(words.length).map((at) => row((query + at) % words.length)),
      select: (of) => this.settings.explain(of),
    });
  }

  /** Draw the matrices, and the sum of the cell that is shown. */
  drawCells() {
    this.drawNumbers();
    if (this.isMoving && !this.sight.isIn) return;
    reachByTab(this.cells.get(this.at));
    this.show(this.shown && !this.isFolded(this.shown) ? this.shown : this.at);
  }

  /** @param {Explained} explained @param {Record<string, string>} state */
  tell(explained, state) {
    const isAtFrame = this.isTurned || (!this.explained && state.frame !== undefined);
    this.isTurned = false;
    this.explained = explained;
    this.drawn = state;
    this.explanation.draw(explained);
    if (isAtFrame) {
      this.explanation.followed = null;
      this.walk.save();
    }
    fill(this.refusal, this.problem ? element("p.refused", this.problem) : null);
  }

  build(/** @type {string} */ shape) {
    const { data, t, state } = this;
    if (!this.shape) fill(this.frame, this.columns);
    const lines = LINES.map((line) => {
      return Object.entries(line).map(
        ([name, sign]) => new Matrix(name, t(`steps.${name}`), data, sign),
      );
    });
    this.matrices = Object.fromEntries(lines.flat().map((matrix) => [matrix.name, matrix]));
    const cells = lines.flat().flatMap((matrix) => matrix.cells.flat());
    this.cells = new Map(cells.map((cell) => [cell.element.dataset.cell, cell.element]));
    const frames = lines.map((line) => line.map(({ frame }) => frame));
    this.pipeline.replaceChildren(...frames.map((line) => element("div.way", line)));
    this.sought.style.setProperty("--rows", String(data.words.length));
    this.shape = shape;
    this.at = this.cells.has(state.at) ? state.at : null;
    this.shown = null;
  }

  /** Whether the matrix of a cell is the same as that before it, and out of sight. */
  isFolded(/** @type {string} */ cell) {
    const { beta, matrices } = this.data;
    const isIdle = cell.startsWith("scaled")
      ? beta === 1
      : cell.startsWith("masked") && !matrices.masked.flat().includes(null);
    return isIdle && !this.walk.fold.open;
  }

  /** Show or hide matrices without effect, and no cell that is hidden. */
  fold() {
    if (!this.data) return;
    this.drawNumbers();
    if (this.isFolded(this.at)) this.settle(this.strongestCell());
    else this.show(this.at);
  }

  drawNumbers() {
    const { t, query, data } = this;
    const { matrices, sums } = data;
    for (const name of Object.keys(BEFORE)) {
      this.matrices[name].frame.classList.toggle("folded", this.isFolded(name));
    }
    for (const { names, top } of data.scales) {
      for (const name of names) {
        const matrix = this.matrices[name];
        // A hidden score is null, and the weight of it a 0.
        const seen = matrices[name === "weights" ? "masked" : name];
        matrix.draw(matrices[name], top, seen, this.isMoving);
        fill(matrix.formula, t(sums[name].formula));
        if (!hasRowPerQuery(name)) continue;
        matrix.rows.forEach((row, at) => row.classList.toggle("here", at === query));
      }
    }
    const scales = JSON.stringify(data.scales);
    if (scales === this.scales) return;
    this.scales = scales;
    const swatches = ["hidden", "made"].map((name) => {
      return element("span.key", element(`span.swatch.${name}`), t(`steps.${name}`));
    });
    // The colors of all but the weights, which come last, are on both sides of 0.
    const bars = data.scales.map(({ names, top }, at) => {
      const isOfWeights = at === data.scales.length - 1;
      const label = names.map((name) => t(`steps.${name}`)).join(t("shell.comma"));
      const end = decimal(top, 2);
      const begin = label + t("shell.colon") + (isOfWeights ? "0" : `−${end}`);
      const style = !isOfWeights && { background: divergingGradient() };
      return element("span.key", begin, element("span.ramp", { style }), end);
    });
    fill(this.legend, swatches, bars);
  }

  picture() {
    const { explained, legend, pipeline } = this;
    const { shown } = this.practice;
    return { title: explained.title, parts: [pipeline, legend, shown], card: [shown] };
  }

  /** The largest weight of the word that is explained. */
  strongestCell() {
    const row = this.data.matrices.weights[this.query];
    return `weights.${this.query}.${largestAt(row)}`;
  }

  // Show the sum of a cell, and the cells that it is made of.
  /** @param {string} cell @param {boolean} follow  Whether the explanation scrolls to its matrix */
  show(cell, follow = false) {
    this.shown = cell;
    const sum = sumOf(cell, this.data, this.t);
    const at = this.cells.get(cell);
    const made = new Set(sum.cells.map((each) => this.cells.get(this.inSight(each))));
    const before = /** @type {NodeListOf<HTMLTableCellElement>} */ (
      this.pipeline.querySelectorAll(".at, .made")
    );
    // What stays as it is is not styled again.
    for (const each of [...before, ...made, at]) {
      each.classList.toggle("at", each === at);
      each.classList.toggle("made", made.has(each));
    }
    this.sum.draw(sum);
    this.sum.drawWeights(this.data, this.query);
    this.explanation.mark(cell.split(".")[0], follow);
  }

  // A cell of the same number, in a matrix that is in sight.
  /** @param {string} cell @returns {string} */
  inSight(cell) {
    const [name] = cell.split(".");
    return this.isFolded(cell) ? this.inSight(cell.replace(name, BEFORE[name])) : cell;
  }

  settle(/** @type {string | undefined} */ cell) {
    if (!cell) return;
    this.at = cell;
    reachByTab(this.cells.get(cell));
    this.context.remember({ at: cell });
    this.show(cell, true);
  }

  explain(/** @type {string | undefined} */ cell) {
    const [name, row] = cell?.split(".") ?? [];
    if (cell && hasRowPerQuery(name)) this.settings.explain(Number(row));
  }
}

const hasRowPerQuery = (/** @type {string} */ matrix) => matrix !== "keys" && matrix !== "values";

function cellOf(/** @type {EventTarget} */ target) {
  const cell = /** @type {Element} */ (target).closest?.("td[data-cell]");
  return /** @type {HTMLElement} */ (cell)?.dataset.cell;
}

/** Let Tab lead to this cell of its table, and to no other. @param {HTMLElement} cell */
function reachByTab(cell) {
  const before = cell.closest("table").querySelector("td[tabindex='0']");
  /** @type {HTMLElement} */ (before).tabIndex = -1;
  cell.tabIndex = 0;
}

/** @type {View} */
export const steps = async (frame, context) => {
  if (context.state.layer !== undefined) return new CellOfModel(frame, context).start();
  const view = new Steps(frame, context);
  await view.ask();
  context.picture(() => view.picture());
};
