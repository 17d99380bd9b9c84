// Why a head gives a key its weight: the parts of their score. Each leads to the head that wrote it.
import { choice } from "../controls.js";
import { button, capitalized, element, fill } from "../dom.js";
import { decimal, grouped } from "../numbers.js";
import { html, render } from "../parts/html.js";
import { Waterfall } from "../parts/waterfall.js";
import { Refused, newest } from "../source.js";

/** @import { Parts } from "../parts/waterfall.js" */
/** @import { Head } from "../selection.js" */
/** @import { HeadsView } from "./heads.js" */

/**
 * What the studio says of a score.
 * @typedef {{score: number, contrast: number, others: number, key: Parts, query: Parts}} Reasons
 */

export class Why {
  constructor(/** @type {HeadsView} */ heads) {
    const { t, signal } = heads.context;
    this.heads = heads;
    this.context = heads.context;
    this.newAsking = newest(signal);
    // Whoever asks, by a button or a link, is led to the answer.
    this.leads = this.isOpen;
    this.ask = button(t("why.ask"), () => this.turn());
    this.ask.className = "ask";
    this.answer = element("div.answer", { "aria-live": "polite" });
    this.element = element("section.why", element("p", this.ask), this.answer);
  }

  get isOpen() {
    return Boolean(this.context.state.why);
  }

  /** The side whose parts are shown. @returns {"key" | "query"} */
  get side() {
    return this.context.state.why === "query" ? "query" : "key";
  }

  async turn() {
    this.context.remember({ why: this.isOpen ? null : "key" });
    this.leads = this.isOpen;
    await this.show();
  }

  /** Answer for the cell that is selected, if the answer is shown. */
  async show() {
    const { ask, answer, context, heads, isOpen } = this;
    const { opened, summary } = heads;
    const signal = this.newAsking();
    ask.ariaExpanded = String(isOpen);
    // A presentation begins at what is asked.
    this.element.closest("[data-panel]")?.toggleAttribute("data-asked", isOpen);
    if (!isOpen || !opened) {
      fill(answer);
      return;
    }
    const [layer, head] = opened;
    const { query, key } = heads.selection;
    if (!answer.childElementCount) fill(answer, element("p.quiet", context.t("why.wait")));
    answer.ariaBusy = "true";
    try {
      const asked = { ...heads.compare.params(), layer, head, query, key };
      const found = await context.source.json("heads/why", asked, { signal });
      const refused = found.refused && element("p.quiet", capitalized(found.refused));
      fill(answer, refused || this.told(found, { query, key }, summary.tokens));
    } catch (error) {
      if (error instanceof Refused) fill(answer, element("p.quiet", error.message));
      else context.failed(error);
    } finally {
      if (!signal.aborted) {
        answer.ariaBusy = "false";
        // It may begin below the window.
        if (this.leads) this.element.scrollIntoView({ block: "nearest" });
        this.leads = false;
      }
    }
  }

  /** @param {Reasons} found @param {{query: number, key: number}} asked @param {string[]} tokens */
  told(found, asked, tokens) {
    const { context, heads } = this;
    const { t } = context;
    const words = { query: tokens[asked.query], key: tokens[asked.key] };
    const title = element("h3", t("why.title", words));
    if (!found.others) return [title, element("p.quiet", t("why.alone"))];
    const { score, contrast, others } = found;
    const [own, mean, less] = [score, score - contrast, contrast].map((each) => decimal(each, 3));
    const numbers = { score: own, mean, contrast: less, count: grouped(others) };
    const frame = element("div");
    const draw = () => {
      const { side } = this;
      const caption = `${t("why.side")} ${t(`why.${side}`)}`;
      const go = (/** @type {Head} */ head) => heads.follow(head, asked[side]);
      const total = t("why.contrast");
      const parts = { t, caption, of: found[side], sum: contrast, go, total };
      render(html`<${Waterfall} ...${parts} />`, frame);
    };
    draw();
    const sides = choice(
      t("why.side"),
      [
        ["key", t("why.key") + t("shell.colon") + words.key],
        ["query", t("why.query") + t("shell.colon") + words.query],
      ],
      this.side,
      (side) => {
        context.remember({ why: side });
        draw();
      },
    );
    return [title, element("p.quiet.about", t("why.told", numbers)), sides, frame];
  }
}
