// A text that is typed, and what is asked of it: what was asked before is given up.
import { tellOrigin } from "./controls.js";
import { element, fill, unique } from "./dom.js";
import { Refused, newest } from "./source.js";

/** @import { Context } from "./app.js" */

// Characters of a sample, which is to be seen at a glance.
const GLANCE = 110;
// And of a text that is typed.
const LONGEST = 2000;
const BAD_REQUEST = 400;

export class TypedText {
  /**
   * @param {HTMLElement} frame  Of the view, drawn once nothing is asked any more
   * @param {Context} context @param {number} rows @param {() => void} typed
   */
  constructor(frame, context, rows, typed) {
    this.frame = frame;
    this.context = context;
    this.newAsking = newest(context.signal);
    const id = unique("prompt");
    const oninput = () => {
      fill(this.origin);
      typed();
    };
    const plain = { spellcheck: "false", dir: "auto", rows, maxlength: LONGEST };
    this.field = element("textarea", { id, oninput, ...plain });
    this.label = element("label", { for: id }, context.t("prompt.text"));
    this.origin = element("p.quiet.origin");
    this.refusal = element("div", { role: "alert" });
    const held = [this.label, this.field, this.origin, this.refusal];
    this.element = element("div.prompt-text", held);
  }

  /** Begin with the text of the address, or else with a sample. */
  async open() {
    const { context, origin } = this;
    if (context.state.text !== undefined) {
      this.field.value = context.state.text;
      return;
    }
    const { text, ...from } = await context.sample();
    tellOrigin(origin, context.t, from.origin, from.why);
    this.field.value = atAGlance(text);
  }

  get text() {
    return this.field.value;
  }

  /** The text, which is refused where it has no word. */
  get words() {
    if (this.text.trim()) return this.text;
    throw new Refused(this.context.t("prompt.empty"), BAD_REQUEST);
  }

  /** Do what is asked of the text, or tell why it is refused. */
  async ask(/** @type {(signal: AbortSignal) => Promise<void>} */ work) {
    const signal = this.newAsking();
    delete this.frame.dataset.drawn;
    try {
      await work(signal);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Refused)) {
        this.context.failed(error);
        return;
      }
      this.tell(error.message);
      this.context.picture(null);
      this.frame.dataset.drawn = "";
    }
  }

  /** Tell why the text is refused; null where it is not. @param {string | null} sentence */
  tell(sentence) {
    fill(this.refusal, sentence === null ? null : element("p.refused", sentence));
  }
}

/** The first sentences of a sample that are seen at a glance. @param {string} text */
function atAGlance(text) {
  if (text.length <= GLANCE) return text;
  const ends = [...text.matchAll(/[.!?。！？](?=\s|$)/gu)].map(({ index }) => index + 1);
  const end = ends.findLast((each) => each <= GLANCE) ?? text.lastIndexOf(" ", GLANCE);
  return end > 0 ? text.slice(0, end) : text.slice(0, GLANCE);
}
