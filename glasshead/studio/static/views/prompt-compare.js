// A prompt compared with another one: what the model predicts after both, how its logits change, and
// the heads that wrote the change. A is the prompt of the view, B the other.
import { button, element, fill } from "../dom.js";
import { html, render } from "../parts/html.js";
import { linkTo } from "../selection.js";
import { TypedText } from "../typed-text.js";

/** @import { Context } from "../app.js" */
/** @import { Parameters } from "../source.js" */
/** @import { Told } from "./prompt-change.js" */

export class PromptCompare {
  /**
   * @param {HTMLElement} frame @param {Context} context
   * @param {() => string} first  The text of A
   * @param {() => string} other  A text to begin B with
   * @param {() => void} changed  Another prompt is compared, or none
   * @param {(layer: number, head: number) => void} chosen
   */
  constructor(frame, context, first, other, changed, chosen) {
    const { t, state } = context;
    this.context = context;
    this.chosen = chosen;
    this.first = first;
    this.other = other;
    this.text = new TypedText(frame, context, 2, () => this.turn(this.text.text));
    fill(this.text.label, t("prompt.other"));
    this.text.field.value = state.minus ?? "";
    this.changed = changed;
    this.ask = button(t("prompt.compare"), () => this.begin());
    this.stop = button(t("heads.stop"), () => this.end());
    this.element = element("div.compare-with");
    this.panel = element("div.change");
    this.layOut();
  }

  /** Whether there is another prompt. */
  get isOn() {
    return this.context.state.minus !== undefined;
  }

  layOut() {
    fill(this.element, this.isOn ? [this.text.element, this.stop] : this.ask);
  }

  /** Begin with the same prompt less a word, in whose place another may be written. */
  begin() {
    this.text.field.value = this.other();
    this.turn(this.text.text);
    this.text.field.focus();
  }

  end() {
    this.turn(null);
    this.text.tell(null);
    this.ask.focus();
  }

  /** @param {string | null} minus */
  turn(minus) {
    const { isOn } = this;
    this.context.remember({ minus });
    if (isOn !== this.isOn) this.layOut();
    this.changed();
  }

  /** Compare, and show what changes. @param {Parameters} params  Those of the prompt */
  load(params) {
    const { context, text, panel } = this;
    return text.ask(async (signal) => {
      const asked = { ...params, minus: text.words };
      /** @type {Told} */
      const told = await context.source.json("prompt/compared", asked, { signal });
      text.tell(null);
      const { Change } = await import("./prompt-change.js");
      const { t } = context;
      const href = linkTo("heads", { said: this.first(), minussaid: text.text });
      const go = this.chosen;
      render(html`<${Change} ...${{ t, told, href, go, away: params.without }} />`, panel);
    });
  }
}
