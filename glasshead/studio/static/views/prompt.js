// The view "prompt": a text with the arcs of its heads, what the model predicts of it while it is
// typed, and what changes when heads are taken away. Without a model, the worked example.
import { Arcs, whereItLooks } from "../arcs.js";
import { MOST_COLORS, categories } from "../colors.js";
import { choice, menu, progress, slider } from "../controls.js";
import { button, element, fill } from "../dom.js";
import { newest } from "../source.js";
import { TypedText } from "../typed-text.js";
import { Bars } from "./prompt-bars.js";
import { Example } from "./prompt-example.js";
import { PromptHeads, headsOf, listed } from "./prompt-heads.js";

/**
 * @import { ArcHead } from "../arcs.js"
 * @import { Context } from "../app.js"
 * @import { Told } from "./prompt-bars.js"
 * @import { Head } from "./prompt-heads.js"
 */

const TEMPERATURES = [0, 0.2, 0.5, 0.7, 1, 1.5, 2, 3];
const TOPS = [5, 10, 20, 50];
const USUAL_TOP = 10;

class Prompt {
  /**
   * @param {HTMLElement} frame
   * @param {Context} context
   */
  constructor(frame, context) {
    const { t, state } = context;
    this.frame = frame;
    this.context = context;
    this.t = t;
    this.state = state;
    this.newWeights = newest(context.signal);
    /** @type {Told} */
    this.told = null;
    // What was taken away before, to go back to.
    /** @type {string[]} */
    this.past = [];
    this.takes = false;
    this.text = new TypedText(frame, context, 2, () => this.typed());
    this.why = element("p.why", { role: "status" });
    this.arcs = new Arcs(
      t("prompt.words"),
      (query, isPinned) => this.pointed(query, isPinned),
      t("shell.colon"),
    );
    this.heads = new PromptHeads(
      t,
      (layer, head) => this.chosen(layer, head),
      (layer) => this.takeLayer(layer),
    );
    this.bars = new Bars(t, (text) => this.follow(text));
    this.undoing = element("div.undoing");
    this.waiting = progress(t("heads.opening"));
    /** @type {HTMLElement} */
    this.stage = null;
    this.legend = element("p.legend");
  }

  async start() {
    this.layOut();
    await this.text.open();
    await this.ask();
  }

  layOut() {
    const { t, state } = this;
    const tops = TOPS.map((each) => /** @type {[number, number]} */ ([each, each]));
    const at = TEMPERATURES.indexOf(Number(state.temperature ?? 1));
    /** @param {Record<string, any>} changes */
    const change = (changes) => {
      this.context.remember(changes);
      this.ask();
    };
    const controls = element(
      "div.controls",
      menu(t("prompt.top"), tops, Number(state.top ?? USUAL_TOP), (top) => {
        change({ top: Number(top) === USUAL_TOP ? null : top });
      }),
      slider(
        t("prompt.temperature"),
        TEMPERATURES.length,
        at < 0 ? TEMPERATURES.indexOf(1) : at,
        (place) => TEMPERATURES[place],
        (place) => change({ temperature: TEMPERATURES[place] === 1 ? null : TEMPERATURES[place] }),
      ),
    );
    const mode = choice(
      t("prompt.click"),
      [
        ["show", t("prompt.shows")],
        ["take", t("prompt.takes")],
      ],
      "show",
      (value) => {
        this.takes = value === "take";
      },
    );
    this.stage = element(
      "div.stage",
      element("div.sentence", this.arcs.element, this.why),
      element("aside", this.bars.element, controls),
      element("section.all", mode, this.heads.element, this.legend, this.undoing),
    );
    const what = element("p.quiet.what", t("prompt.what"));
    fill(this.frame, what, this.text.element, this.waiting);
  }

  typed() {
    this.context.remember({ text: this.text.text, query: null });
    this.ask();
  }

  /** Append a token to the text, or put it in the place of a blank. @param {string} token */
  follow(token) {
    const { field } = this.text;
    const { predicts, blank } = this.told;
    const written = token.replaceAll("␣", " ").replaceAll("\\n", "\n");
    if (predicts === "blanks") field.value = field.value.replace(blank, () => written.trim());
    else field.value += written;
    field.focus();
    this.typed();
  }

  get without() {
    return headsOf(this.state.without);
  }

  /** Ask what the model predicts. */
  async ask() {
    const { source } = this.context;
    await this.text.ask(async (signal) => {
      const { without = null, top = null, temperature = null } = this.state;
      const params = { text: this.text.words, without };
      const told = await source.json("prompt", { ...params, top, temperature }, { signal });
      // Controls come with what they change.
      if (!this.stage.isConnected) this.frame.append(this.stage);
      this.told = told;
      // The head stays the same while one types, and other views open it.
      this.context.remember({ heads: listed(this.shown) });
      this.text.tell(null);
      this.bars.show(told, !this.without.length);
      this.drawUndoing();
      const [maps, heads] = await Promise.all([
        source.numbers("prompt/maps", params, { signal }),
        this.shownHeads(signal),
      ]);
      this.heads.show(told.heads, maps);
      this.draw(heads);
    });
    if ("drawn" in this.frame.dataset) this.waiting.remove();
  }

  /** The heads whose arcs are shown, of those that there are. */
  get shown() {
    const { heads, first } = this.told;
    const asked = headsOf(this.state.heads).filter(([layer, head]) => head < heads[layer]);
    const known = asked.slice(0, MOST_COLORS);
    return known.length ? known : [first];
  }

  /** Show other heads. */
  async turn() {
    delete this.frame.dataset.drawn;
    const signal = this.newWeights();
    const heads = await this.shownHeads(signal);
    if (!signal.aborted) this.draw(heads);
  }

  /**
   * The heads whose arcs are shown, with their weights.
   * @param {AbortSignal} signal
   * @returns {Promise<ArcHead[]>}
   */
  async shownHeads(signal) {
    const { shown, t } = this;
    const params = { text: this.text.text, without: this.state.without, heads: listed(shown) };
    const { source } = this.context;
    const { values } = await source.numbers("prompt/weights", params, { signal });
    const size = values.length / shown.length;
    return shown.map(([layer, head], at) => ({
      name: t("heads.named", { layer, head }),
      color: categories()[at],
      values: values.subarray(at * size, (at + 1) * size),
    }));
  }

  /** Draw the arcs of heads. @param {ArcHead[]} heads */
  draw(heads) {
    this.heads.mark(this.shown, categories(), this.without);
    const { predicts, running, tokens, blank } = this.told;
    // The token that the bars are about.
    const about = predicts === "tokens" ? running.length - 1 : tokens.indexOf(blank);
    const query = about < 0 ? null : about;
    this.arcs.show(running, heads, numberOr(this.state.query, query));
    fill(
      this.legend,
      heads.map(({ name, color }) => {
        const swatch = element("span.swatch", { "aria-hidden": "true" });
        swatch.style.background = color;
        return element("span.key", swatch, name);
      }),
    );
    this.tell();
    const { arcs, bars, stage, why } = this;
    const card = [arcs.element, bars.element];
    const sentence = why.firstChild.textContent;
    this.context.picture(() => ({ parts: [stage], card, sentence }));
    this.frame.dataset.drawn = "";
  }

  /** @param {number} query @param {boolean} isPinned */
  pointed(query, isPinned) {
    if (isPinned) this.context.remember({ query });
    this.tell();
  }

  tell() {
    const [layer, head] = this.shown.at(-1);
    const { query } = this.arcs;
    const { key } = this.arcs.strongest();
    const place = new URLSearchParams({
      said: this.text.text,
      layer: String(layer),
      head: String(head),
      query: String(query),
      key: String(key),
    });
    const link = element("a.more", { href: `#heads?${place}` }, this.t("prompt.map"));
    fill(this.why, whereItLooks(this.t, [layer, head], this.arcs), " ", link);
  }

  /**
   * @param {number} layer
   * @param {number} head
   */
  chosen(layer, head) {
    if (this.takes) {
      this.take(toggled(this.without, [layer, head]));
      return;
    }
    const next = toggled(this.shown, [layer, head]).slice(-MOST_COLORS);
    this.context.remember({ heads: listed(next.length ? next : [[layer, head]]) });
    this.turn().catch(this.context.failed);
  }

  /** Take all heads of a layer away, or put them back where all are. @param {number} layer */
  takeLayer(layer) {
    const all = Array.from({ length: this.told.heads[layer] }, (_, head) => [layer, head]);
    const others = this.without.filter(([each]) => each !== layer);
    const areAway = this.without.length - others.length === all.length;
    this.take(/** @type {Head[]} */ (areAway ? others : [...others, ...all]));
  }

  /** @param {Head[]} heads */
  take(heads) {
    this.past.push(this.state.without ?? "");
    this.context.remember({ without: listed(heads) });
    this.ask();
  }

  undo() {
    this.context.remember({ without: this.past.pop() || null });
    this.ask();
  }

  drawUndoing() {
    const { t, without, past } = this;
    const names = without.map(([layer, head]) => t("heads.named", { layer, head }));
    const all = t("prompt.back");
    fill(
      this.undoing,
      without.length ? element("p", t("prompt.away", { heads: names.join("; ") })) : null,
      past.length ? button(t("prompt.undo"), () => this.undo()) : null,
      without.length ? button(all, () => this.take([])) : null,
    );
  }
}

/**
 * @template Other
 * @param {string | undefined} written
 * @param {Other} other  Where it is no whole number
 */
function numberOr(written, other) {
  return /^\d+$/.test(written ?? "") ? Number(written) : other;
}

/**
 * A list of heads without one that is in it, or with one that is not.
 * @param {Head[]} heads
 * @param {Head} one
 */
function toggled(heads, [layer, head]) {
  const others = heads.filter(([each, other]) => each !== layer || other !== head);
  return others.length < heads.length ? others : [...heads, /** @type {Head} */ ([layer, head])];
}

export const prompt = {
  /**
   * @param {HTMLElement} frame
   * @param {Context} context
   */
  async open(frame, context) {
    const hasModel = context.about.subject.kind !== null;
    await new (hasModel ? Prompt : Example)(frame, context).start();
  },
};
