// The view "steps": every matrix of a small attention, and the sum behind each of its numbers.
import { element, fill } from "../dom.js";
import { decimal } from "../numbers.js";
import { Refused } from "../source.js";
import { Choices } from "./steps-choices.js";
import { Matrix } from "./steps-matrix.js";
import { picture } from "./steps-picture.js";
import { sumOf } from "./steps-sums.js";
import { Words, sumFrame } from "./steps-words.js";

// The way of the numbers in two lines, and what stands between a matrix and the next.
const LINES = [
  { queries: "·", keys: "=", scores: "→", scaled: "→", masked: "→" },
  { weights: "·", values: "=", context: null },
];

const KEYS = { w40: "positive", "w40.negative": "negative", hidden: "hidden", made: "made" };

class View {
  constructor(frame, context) {
    const { t, state } = context;
    Object.assign(this, { frame, context, t, state });
    this.choices = new Choices(context, (changes) => this.ask(changes));
    this.refused = element("div", { role: "alert" });
    this.pipeline = element("div.pipeline", {
      role: "group", "aria-label": t("steps.matrices"),
      onpointerover: ({ target, pointerType }) => {
        if (pointerType !== "touch") this.show(cellOf(target) ?? this.at, true);
      },
      onpointerleave: () => this.show(this.at, true),
      onfocusin: ({ target }) => this.settle(cellOf(target)),
      onclick: ({ target }) => this.explain(cellOf(target)),
    });
    this.legend = element("p.legend", { "aria-label": t("steps.legend"), role: "note" });
    this.sum = sumFrame(t);
    this.words = new Words(t("steps.words"));
    this.columns = element("div.columns",
      element("div.made", this.pipeline, this.sum, this.legend, element("p.quiet", t("steps.hint"))), this.words.frame);
  }

  async ask(changes = {}) {
    const { signal } = this.context;
    this.context.remember(changes);
    delete this.frame.dataset.drawn;
    this.waits = true;
    if (this.asks) return;
    this.asks = true;
    while (this.waits && !signal.aborted) {
      this.waits = false;
      await this.answer({ ...this.state }, signal).catch((error) => signal.aborted || this.recover(error));
    }
    this.asks = false;
    if (!signal.aborted && this.data) this.frame.dataset.drawn = "";
  }

  async answer(state, signal) {
    const { source, language } = this.context;
    const { at, query, ...chosen } = state;
    const data = await source.json("steps", chosen, { signal });
    if (signal.aborted) return;
    this.draw(data, Number(query) in data.words ? Number(query) : data.query);
    // While a slider moves, the numbers follow it; the words wait.
    if (this.waits) return new Promise(requestAnimationFrame);
    const told = await source.json("steps/words", { ...chosen, query, lang: language }, { signal });
    if (!signal.aborted && !this.waits) this.tell(told, state);
  }

  recover(error) {
    const names = Object.keys(this.state);
    if (!(error instanceof Refused) || this.problem || !names.length) return this.context.failed(error);
    this.context.remember({ ...Object.fromEntries(names.map((name) => [name, null])), ...this.drawn });
    Object.assign(this, { problem: error.message, waits: true });
  }

  draw(data, query) {
    Object.assign(this, { data, query });
    const shape = JSON.stringify([data.words, data.matrices.queries[0].length]);
    if (shape !== this.shape) this.build(shape);
    // What is being moved or typed is left alone.
    if (!this.waits && !this.problem) this.choices.draw(data, query);
    this.numbers();
    this.at ??= this.first();
    reach(this.cells.get(this.at));
    this.show(this.shown ?? this.at);
  }

  tell(told, state) {
    Object.assign(this, { told, drawn: state });
    this.words.draw(told);
    fill(this.refused, this.problem ? element("p.refused", this.problem) : null);
    this.problem = null;
  }

  build(shape) {
    const { data, t, state } = this;
    if (!this.shape) fill(this.frame, this.choices.frame, this.refused, this.columns);
    const matrix = ([name, then]) => [name, new Matrix(name, t(`steps.${name}`), data, then)];
    const lines = LINES.map((line) => Object.entries(line).map(matrix));
    this.matrices = Object.fromEntries(lines.flat());
    const cells = Object.values(this.matrices).flatMap((each) => each.cells.flat());
    this.cells = new Map(cells.map((cell) => [cell.dataset.cell, cell]));
    fill(this.pipeline, lines.map((line) => element("div.way", line.map(([, { frame }]) => frame))));
    Object.assign(this, { shape, at: this.cells.has(state.at) ? state.at : null, shown: null });
  }

  numbers() {
    const { t, query, data: { matrices, sums, scales } } = this;
    const key = ([kind, name]) => element("span.key", element(`span.swatch.${kind}`), t(`steps.${name}`));
    const bars = scales.map(({ names, top }) => {
      for (const name of names) {
        const matrix = this.matrices[name];
        matrix.draw(matrices[name], top, matrices[name === "weights" ? "masked" : name]);
        if (ofQueries(name)) matrix.rows.forEach((row, at) => row.classList.toggle("here", at === query));
        matrix.formula.textContent = t(sums[name].formula);
      }
      const said = names.map((name) => t(`steps.${name}`)).join(t("shell.comma"));
      return element("span.key", `${said}: 0`, element("span.ramp"), decimal(top, 2));
    });
    fill(this.legend, Object.entries(KEYS).map(key), bars);
  }

  first() {
    const row = this.data.matrices.weights[this.query];
    return `weights.${this.query}.${row.indexOf(Math.max(...row))}`;
  }

  show(at, follow = false) {
    this.shown = at;
    const sum = sumOf(at, this.data, this.t);
    for (const each of this.pipeline.querySelectorAll(".at, .made")) each.classList.remove("at", "made");
    for (const each of sum.cells) this.cells.get(each).classList.add("made");
    this.cells.get(at).classList.add("at");
    this.sum.draw(sum);
    this.words.mark(at.split(".")[0], follow);
  }

  settle(at) {
    if (!at) return;
    this.at = at;
    reach(this.cells.get(at));
    this.context.remember({ at });
    this.show(at, true);
  }

  explain(at) {
    const [name, row] = at?.split(".") ?? [];
    if (at && ofQueries(name)) this.choices.explain(Number(row));
  }
}

function ofQueries(name) { return name !== "keys" && name !== "values"; }

function cellOf(target) { return target.closest?.("td[data-cell]")?.dataset.cell; }

function reach(cell) {
  cell.closest("table").querySelector("td[tabindex='0']").tabIndex = -1;
  cell.tabIndex = 0;
}

export const steps = {
  async open(frame, context) {
    const view = new View(frame, context);
    await view.ask();
    context.picture(() => picture(view.pipeline, view.told.title));
  },
};
