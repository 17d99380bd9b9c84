// Without a model: a sentence with its arcs, the weights of the word that is pointed at as bars, those
// of all words as a table, and how to have a model.
import { Arcs } from "../arcs.js";
import { categories, scale } from "../colors.js";
import { element, fill, headingCell, scrolling, table } from "../dom.js";
import { decimal, wholeNumber, within } from "../numbers.js";
import { html, render } from "../parts/html.js";
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
    this.text = new TypedText(frame, context, 2, () => {
      context.remember({ text: this.text.text, query: null });
      this.ask();
    });
    this.selection = new Selection(context.remember);
    this.arcs = new Arcs(t, this.selection);
    this.selection.on(() => {
      this.arcs.turn();
      this.tell();
    });
    this.why = element("p.why", { role: "status" });
    this.likely = element("section.likely");
    this.whole = element("div", pointing(this.selection));
    this.words = /** @type {string[]} */ ([]);
    this.matrices = /** @type {Matrices} */ (null);
  }

  async start() {
    const { arcs, context, frame, likely, text, whole, why } = this;
    const { t, state } = context;
    fill(text.label, t("steps.text"));
    text.field.value = state.text ?? "";
    const how = t("shell.how");
    const commands = scrolling(how, element("pre.formula", COMMANDS));
    const panel = { "data-panel": "" };
    const sentence = element("div.sentence.large", panel, arcs.element, why);
    const aside = element("aside", panel, likely, element("p.quiet", how), commands);
    const all = element("section.all", panel, element("h2", t("prompt.every")), whole);
    this.parts = [sentence, likely, all];
    fill(frame, element("div.texts", text.element), element("div.stage", sentence, aside, all));
    await this.ask();
  }

  /** Have the sentence worked, as the view "steps" does. */
  ask() {
    const { arcs, context, frame, likely, parts, text: typed, why } = this;
    return typed.ask(async (signal) => {
      const { text = null, query } = context.state;
      const data = await context.source.json("steps", { text }, { signal });
      if (text === null) typed.field.value = data.text;
      const { words, matrices } = data;
      this.words = words;
      this.matrices = matrices;
      const values = Float32Array.from(matrices.weights.flat());
      const head = { name: context.t("steps.weights"), color: categories()[0], values };
      this.drawTable();
      frame.classList.toggle("few", words.length <= FEW);
      const running = words.map((/** @type {string} */ word) => ` ${word}`);
      arcs.show(running, [head], within(wholeNumber(query, data.query), words.length));
      typed.tell(null);
      this.tell();
      const sentence = why.firstChild.textContent;
      context.picture(() => ({ parts, card: [arcs.element, likely], sentence }));
      frame.dataset.drawn = "";
    });
  }

  drawTable() {
    const { words, matrices, context } = this;
    const level = scale();
    const rows = words.map((word, query) => [
      headingCell("row", word),
      matrices.weights[query].map((weight, key) => {
        const place = { "data-at": query, "data-query": query, "data-key": key };
        return element("td", { class: `w${level(weight)}`, ...place }, decimal(weight, 2));
      }),
    ]);
    const headings = [element("td"), words];
    fill(this.whole, table("table.every", context.t("prompt.every"), headings, rows));
  }

  /** Report the word that is pointed at. */
  tell() {
    const { arcs, words, matrices, context, likely, whole, why } = this;
    const { t, state } = context;
    const { query } = arcs;
    const { key, weight } = arcs.strongest();
    const told = { query: words[query], key: words[key] };
    const numbers = { weight: decimal(weight), score: decimal(matrices.scores[query][key]) };
    const href = linkTo("steps", { text: state.text || null, query });
    const link = element("a.more", { href }, t("prompt.numbers"));
    fill(why, t("prompt.why.example", { ...told, ...numbers }), " ", link);
    const title = t("cell.weights", { word: words[query] });
    const row = matrices.weights[query];
    const longest = Math.max(...row);
    const bars = row.map((own, at) => {
      const style = `--now: ${own / longest}`;
      return html`<tr>
        <th scope="row">${words[at]}</th>
        <td><span class="bar plain" aria-hidden="true" style=${style} /></td>
        <td class="number" data-value=${own}>${decimal(own)}</td>
      </tr>`;
    });
    render(
      html`<h2>${title}</h2>
        <table class="bars words" aria-label=${title}>
          <tbody>
            ${bars}
          </tbody>
        </table>`,
      likely,
    );
    whole.querySelectorAll("tbody tr").forEach((each, at) => {
      each.classList.toggle("here", at === query);
    });
  }
}
