// The view "alignment": a sentence, what a translator made of it, and what each word looked at.
import { asking, choice, menu, slider } from "../controls.js";
import { element, fill } from "../dom.js";
import { upTo } from "../numbers.js";
import { newest } from "../source.js";
import { bands } from "./alignment-bands.js";
import { candidates, weightTable } from "./alignment-told.js";

const MEAN = "mean";
const WIDTHS = 10;
const USUAL = 5;
// The status of a refusal that another sentence or beam may mend.
const MENDED = [400, 413, 422];

export const alignment = {
  async open(frame, context) {
    const stored = context.source.offline ? await context.source.json("alignment/stored", {}) : null;
    await new View(frame, context, stored).translate();
  },
};

class View {
  constructor(frame, context, stored) {
    const { state, t, about, remember, signal } = context;
    Object.assign(this, { frame, context, state, asking: newest(signal) });
    const missing = stored && !stored.sentences.includes(state.sentence);
    this.sentence = missing ? stored.sentences[0] : state.sentence ?? about.samples.alignment;
    this.beam = stored?.beam ?? Math.max(1, Math.min(WIDTHS, Math.round(state.beam) || USUAL));
    const changed = (change) => {
      Object.assign(this, change);
      remember({ ...change, candidate: null, word: null });
      this.translate();
    };
    const sent = (sentence) => changed({ sentence });
    const label = t("alignment.sentence");
    const controls = stored ? menu(label, stored.sentences.map((each) => [each, each]), this.sentence, sent) : [
      asking(label, this.sentence, t("alignment.translate"), sent, about.limits.sentence),
      slider(t("alignment.beam"), WIDTHS, this.beam - 1, (at) => at + 1, (at) => changed({ beam: at + 1 }))];
    [this.result, this.shown] = [element("div.result"), element("div.shown")];
    fill(frame, element("div.controls", controls), this.result);
  }

  async translate() {
    const { source, t, remember } = this.context;
    await this.showing(async (signal) => {
      this.told = await source.json("alignment", { sentence: this.sentence, beam: this.beam }, { signal });
      signal.throwIfAborted();
      const { layers, heads, candidates: found } = this.told;
      const place = Math.max(0, Object.keys(found).indexOf(this.state.candidate));
      const rows = candidates(this.told, place, t, (candidate) => {
        remember({ candidate, word: null });
        this.showing((other) => this.choose(found[candidate], other));
      });
      const choices = element("div.controls.choices",
        this.offered("layer", layers, String(layers - 1)), this.offered("head", heads, heads > 1 ? MEAN : "0"));
      fill(this.result, rows, choices, this.shown);
      await this.choose(found[place], signal);
    });
  }

  async showing(work) {
    delete this.frame.dataset.drawn;
    const signal = this.asking();
    this.drawing = null;
    try {
      await work(signal);
    } catch (error) {
      if (!MENDED.includes(error.status)) return this.context.failed(error);
      fill(this.result, element("div.refused", { role: "alert" }, element("p", error.message)));
    }
    const { drawing } = this;
    this.context.picture(drawing && (() => drawing.figure(this.what())));
    this.frame.dataset.drawn = "";
  }

  offered(name, count, usual) {
    const { t, remember } = this.context;
    const options = upTo(count).map((at) => [String(at), String(at)]);
    if (count > 1) options.unshift([MEAN, t("alignment.mean")]);
    this[name] = options.some(([each]) => each === this.state[name]) ? this.state[name] : usual;
    return choice(t(`alignment.${name}`), options, this[name], (each) => {
      this[name] = each;
      remember({ [name]: each });
      this.redraw();
    });
  }

  async choose({ target, tokens }, signal) {
    const { source, t, remember } = this.context;
    const asked = { sentence: this.sentence, tokens: tokens.join(",") };
    this.weights = await source.numbers("alignment/weights", asked, { signal });
    signal.throwIfAborted();
    this.target = target;
    if (!target.length) return fill(this.shown, element("p.note", t("alignment.nothing")));
    const marked = (word) => this.cells.mark(word);
    this.drawing = bands(this.told.source, target, { t, marked, kept: (word) => remember({ word }) });
    this.heat = element("figure.heat");
    fill(this.shown, this.drawing, this.heat);
    this.redraw();
    this.drawing.keep(this.state.word);
  }

  redraw() {
    if (!this.drawing) return;
    const matrix = mean(this.weights, this.layer, this.head);
    this.cells = weightTable(this.told.source, this.target, matrix, this.what(), this.context.t, this.drawing.show);
    fill(this.heat, this.cells);
    this.drawing.redraw(matrix);
  }

  what() {
    const said = (name) => `alignment.${this[name] === MEAN ? "mean_of" : "one"}.${name}`;
    const { t } = this.context;
    return ["layer", "head"].map((name) => t(said(name), { [name]: this[name] })).join(t("shell.comma"));
  }
}

function mean({ values, shape: [layers, heads, rows, columns] }, layer, head) {
  const among = (count, chosen) => (chosen === MEAN ? upTo(count) : [Number(chosen)]);
  const maps = among(layers, layer).flatMap((one) => among(heads, head).map((other) => one * heads + other));
  const cell = (at) => maps.reduce((sum, map) => sum + values[map * rows * columns + at], 0) / maps.length;
  return upTo(rows).map((row) => upTo(columns).map((column) => cell(row * columns + column)));
}
