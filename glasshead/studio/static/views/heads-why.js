// Why a head gives a key its weight: the parts of their score. Each leads to the head that wrote it.
import { choice } from "../controls.js";
import { button, element, fill } from "../dom.js";
import { decimal, grouped } from "../numbers.js";
import { html, render } from "../parts/html.js";
import { Refused, newest } from "../source.js";

/** @import { Context } from "../app.js" */
/** @import { Parts } from "../parts/waterfall.js" */
/** @import { Parameters } from "../source.js" */

/**
 * What the studio says of a score.
 * @typedef {{score: number, contrast: number, others: number, key: Parts, query: Parts}} Reasons
 */

export class Why {
  /**
   * @param {Context} context @param {string[]} tokens
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

  async turn() {
    this.context.remember({ why: this.isOpen ? null : "key" });
    this.tellOpen();
    try {
      await this.show(this.asked);
      // It may begin below the window.
      if (this.isOpen) this.element.scrollIntoView({ block: "nearest" });
    } catch (error) {
      this.context.failed(error);
    }
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
      if (found.refused) {
        fill(answer, element("p.quiet", found.refused));
        return;
      }
      const { Waterfall } = await import("../parts/waterfall.js");
      signal.throwIfAborted();
      this.fill(/** @type {Reasons} */ (found), Waterfall);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      fill(answer, element("p.quiet", error.message));
    } finally {
      if (!signal.aborted) answer.ariaBusy = "false";
    }
  }

  /** @param {Reasons} found @param {typeof import("../parts/waterfall.js").Waterfall} Waterfall */
  fill(found, Waterfall) {
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
    const draw = () => {
      const { side } = this;
      render(
        html`<${Waterfall}
          t=${t}
          caption=${`${t("why.side")} ${t(`why.${side}`)}`}
          of=${found[side]}
          sum=${found.contrast}
          go=${(/** @type {number} */ layer, /** @type {number} */ head) => {
            this.go(layer, head, Number(asked[side]));
          }}
        />`,
        frame,
      );
    };
    const sides = choice(t("why.side"), options, this.side, (side) => {
      context.remember({ why: side });
      draw();
    });
    draw();
    fill(answer, title, element("p.quiet", t("why.told", numbers)), sides, frame);
  }
}
