// Without a model: a sentence with its arcs, the weights of the word that is pointed at as bars, those
// of all words as a table, and how to have a model.
import { Arcs } from "../arcs.js";
import { categories, scale } from "../colors.js";
import { element, fill, headingCell, scrolling, table } from "../dom.js";
import { decimal, wholeNumber, within } from "../numbers.js";
import { linkTo, pointing, Selection } from "../selection.js";
import { TypedText } from "../typed-text.js";

/** @import { Context } from "../app.js" */

/** @typedef {{weights: number[][], scores: number[][]}} Matrices */

// Words that are written large.
const FEW = 6;
const COMMANDS = "glasshead demo\nglasshead studio demo/translator";

export class Example {
  /** @param {HTMLElement} frame @param {Context} context */
  constructor(frame, context) {
    const { t } = context;
    this.frame = frame;
    this.context = context;
    this.t = t;
    this.text = new TypedText(frame, context, 2, () => this.typed());
    this.selection = new Selection(context.remember);
    this.arcs = new Arcs(t, this.selection);
    this.selection.on(() => {
      this.arcs.turn();
      this.tell();
    });
    this.why = element("p.why", { role: "status" });
    this.title = element("h2");
    this.body = element("tbody");
    this.bars = element("table.bars.words", this.body);
    this.whole = element("div", pointing(this.selection));
    this.likely = element("section.likely", this.title, this.bars);
    this.parts = [
      element("div.sentence.large", { "data-panel": "" }, this.arcs.element, this.why),
      this.likely,
      element("section.all", { "data-panel": "" }, element("h2", t("prompt.every")), this.whole),
    ];
    /** @type {string[]} */
    this.words = [];
    /** @type {Matrices} */
    this.matrices = null;
  }

  async start() {
    const { t, context } = this;
    fill(this.text.label, t("steps.text"));
    this.text.field.value = context.state.text ?? "";
    const how = t("shell.how");
    const [sentence, likely, all] = this.parts;
    fill(
      this.frame,
      this.text.element,
      element(
        "div.stage",
        sentence,
        element(
          "aside",
          { "data-panel": "" },
          likely,
          element("p.quiet", how),
          scrolling(how, element("pre.formula", COMMANDS)),
        ),
        all,
      ),
    );
    await this.ask();
  }

  typed() {
    this.context.remember({ text: this.text.text, query: null });
    this.ask();
  }

  /** Have the sentence worked, as the view "steps" does. */
  ask() {
    const { context, t } = this;
    return this.text.ask(async (signal) => {
      const { text = null, query } = context.state;
      const data = await context.source.json("steps", { text }, { signal });
      if (text === null) this.text.field.value = data.text;
      this.words = data.words;
      this.matrices = data.matrices;
      const values = Float32Array.from(this.matrices.weights.flat());
      const head = { name: t("steps.weights"), color: categories()[0], values };
      const asked = wholeNumber(query, data.query);
      this.drawTable();
      this.frame.classList.toggle("few", this.words.length <= FEW);
      const running = this.words.map((word) => ` ${word}`);
      this.arcs.show(running, [head], within(asked, this.words.length));
      this.text.tell(null);
      this.tell();
      const { parts, arcs, why } = this;
      const sentence = why.firstChild.textContent;
      context.picture(() => ({ parts, card: [arcs.element, this.likely], sentence }));
      this.frame.dataset.drawn = "";
    });
  }

  drawTable() {
    const { words, matrices, t } = this;
    const level = scale();
    const rows = words.map((word, query) => [
      headingCell("row", word),
      matrices.weights[query].map((weight, key) => {
        const place = { "data-at": query, "data-query": query, "data-key": key };
        return element("td", { class: `w${level(weight)}`, ...place }, decimal(weight, 2));
      }),
    ]);
    const headings = [element("td"), words];
    fill(this.whole, table("table.every", t("prompt.every"), headings, rows));
  }

  /** Report the word that is pointed at. */
  tell() {
    const { arcs, words, matrices, t } = this;
    const { query } = arcs;
    const { key, weight } = arcs.strongest();
    const scores = matrices.scores[query];
    const told = { query: words[query], key: words[key] };
    const numbers = { weight: decimal(weight), score: decimal(scores[key]) };
    const { text } = this.context.state;
    const href = linkTo("steps", { text: text || null, query });
    const link = element("a.more", { href }, t("prompt.numbers"));
    fill(this.why, t("prompt.why.example", { ...told, ...numbers }), " ", link);
    fill(this.title, t("cell.weights", { word: words[query] }));
    this.bars.ariaLabel = this.title.textContent;
    const row = matrices.weights[query];
    const longest = Math.max(...row);
    fill(
      this.body,
      row.map((own, at) => {
        const bar = element("span.bar.plain", { "aria-hidden": "true" });
        bar.style.setProperty("--now", String(own / longest));
        const number = element("td.number", { "data-value": own }, decimal(own));
        return element("tr", headingCell("row", words[at]), element("td", bar), number);
      }),
    );
    for (const cell of this.whole.querySelectorAll("tbody tr")) cell.className = "";
    this.whole.querySelectorAll("tbody tr")[query].className = "here";
  }
}
