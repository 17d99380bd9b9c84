// Why a head gives a key its weight: the parts of their score as a waterfall. Each part leads to the
// head that wrote it.
import { choice } from "../controls.js";
import { signed } from "../diverging.js";
import { button, element, fill, headingCell } from "../dom.js";
import { decimal, grouped } from "../numbers.js";
import { Refused, newest } from "../source.js";

/**
 * @import { Context } from "../app.js"
 * @import { Parameters } from "../source.js"
 */

/**
 * A part that a component wrote; `layer` and `head` are null where it is no head.
 * @typedef {{name: string, layer: number | null, head: number | null, part: number}} Part
 */

/**
 * The parts of a side of a score; `count` others add up to the `rest`.
 * @typedef {{parts: Part[], rest: number, count: number}} Parts
 */

/**
 * What the studio says of a score.
 * @typedef {{score: number, contrast: number, others: number, key: Parts, query: Parts}} Reasons
 */

/** @typedef {{query: number, key: number}} Cell */

export class Why {
  /**
   * @param {Context} context
   * @param {string[]} tokens
   * @param {(layer: number, head: number, query: number) => void} go  Open a head at a query
   */
  constructor(context, tokens, go) {
    this.context = context;
    this.tokens = tokens;
    this.go = go;
    /** @type {Parameters} */
    this.asked = null;
    this.newAsking = newest(context.signal);
    this.ask = button(context.t("why.ask"), () => this.turn());
    this.ask.className = "ask";
    this.answer = element("div.answer", { "aria-live": "polite" });
    this.element = element("section.why", element("p", this.ask), this.answer);
    this.tellOpen();
  }

  /** Whether the answer is shown. */
  get isOpen() {
    return Boolean(this.context.state.why);
  }

  /** The side whose parts are shown. @returns {"key" | "query"} */
  get side() {
    return this.context.state.why === "query" ? "query" : "key";
  }

  turn() {
    this.context.remember({ why: this.isOpen ? null : "key" });
    this.tellOpen();
    this.show(this.asked).catch((error) => this.context.failed(error));
  }

  tellOpen() {
    this.ask.ariaExpanded = String(this.isOpen);
  }

  /**
   * Answer for a cell, if the answer is shown.
   * @param {Parameters} asked  The text, the head and the cell
   */
  async show(asked) {
    const { context, answer } = this;
    this.asked = asked;
    const signal = this.newAsking();
    if (!this.isOpen) {
      fill(answer);
      return;
    }
    if (!answer.childElementCount) fill(answer, element("p.quiet", context.t("why.wait")));
    answer.ariaBusy = "true";
    try {
      const found = await context.source.json("heads/why", asked, { signal });
      if (found.refused) fill(answer, element("p.quiet", found.refused));
      else this.fill(/** @type {Reasons} */ (found));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      fill(answer, element("p.quiet", error.message));
    } finally {
      if (!signal.aborted) answer.ariaBusy = "false";
    }
  }

  /** @param {Reasons} found */
  fill(found) {
    const { context, answer, asked, tokens } = this;
    const { t } = context;
    const words = { query: tokens[Number(asked.query)], key: tokens[Number(asked.key)] };
    const title = element("h3", t("why.title", words));
    if (!found.others) {
      fill(answer, title, element("p.quiet", t("why.alone")));
      return;
    }
    const numbers = { contrast: decimal(found.contrast, 3), count: grouped(found.others) };
    /** @type {[string, string][]} */
    const options = [
      ["key", `${t("why.key")}: ${words.key}`],
      ["query", `${t("why.query")}: ${words.query}`],
    ];
    const frame = element("div");
    const draw = () => fill(frame, this.waterfall(found[this.side], found.contrast));
    const sides = choice(t("why.side"), options, this.side, (side) => {
      context.remember({ why: side });
      draw();
    });
    draw();
    fill(answer, title, element("p.quiet", t("why.told", numbers)), sides, frame);
  }

  /**
   * @param {Parts} side
   * @param {number} sum
   */
  waterfall({ parts, rest, count }, sum) {
    const { t } = this.context;
    /** @type {[string | HTMLElement, number][]} */
    const steps = parts.map((one) => [this.label(one), one.part]);
    if (count) steps.push([t("why.rest", { count: grouped(count) }), rest]);
    let at = 0;
    const ends = steps.map(([, part]) => [at, (at += part)]);
    const low = Math.min(0, sum, ...ends.flat());
    const high = Math.max(0, sum, ...ends.flat());
    /** @param {number} value */
    const share = (value) => (value - low) / (high - low || 1);
    const rows = steps.map(([label, part], place) => row(label, part, ends[place].map(share)));
    const last = row(t("why.sum"), sum, [share(0), share(sum)]);
    last.className = "sum";
    const headings = [
      headingCell("col", t("why.component")),
      element("td"),
      headingCell("col", t("why.part")),
    ];
    const made = element(
      "table.waterfall",
      element("caption", element("span", `${t("why.side")} ${t(`why.${this.side}`)}`)),
      element("thead", element("tr", headings)),
      element("tbody", rows, last),
    );
    made.style.setProperty("--zero", String(share(0)));
    return made;
  }

  /** @param {Part} one */
  label({ name, layer, head }) {
    // A line may break after each module.
    if (layer === null) return element("code", name.replaceAll(".", ".\u200b"));
    const token = Number(this.asked[this.side]);
    return button(this.context.t("heads.named", { layer, head }), () =>
      this.go(layer, head, token),
    );
  }
}

/**
 * A part from where the part before it ends.
 * @param {string | HTMLElement} label
 * @param {number} part
 * @param {number[]} ends  From 0 to 1
 */
function row(label, part, ends) {
  const bar = element(part < 0 ? "span.bar.less" : "span.bar", { "aria-hidden": "true" });
  bar.style.setProperty("--from", String(Math.min(...ends)));
  bar.style.setProperty("--width", String(Math.abs(ends[1] - ends[0])));
  return element(
    "tr",
    headingCell("row", label),
    element("td.track", bar),
    element("td.part", { "data-value": part }, signed(part, 3)),
  );
}
