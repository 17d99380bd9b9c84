// The view "prompt": a text with the arcs of its heads, what the model predicts of it while it is
// typed, and what changes when heads are taken away. Without a model, the worked example.
import { Arcs, keysOf, whereItLooks } from "../arcs.js";
import { MOST_COLORS, categories } from "../colors.js";
import { choice, menu, progress, slider } from "../controls.js";
import { signed } from "../diverging.js";
import { button, element, fill, showNearby } from "../dom.js";
import { decimal, range, rowAt, weight, wholeNumber } from "../numbers.js";
import { HeadGrid } from "../parts/head-grid.js";
import { html, render } from "../parts/html.js";
import { headsOf, linkTo, listed, placeOf, Selection, toggled } from "../selection.js";
import { newest } from "../source.js";
import { TypedText } from "../typed-text.js";
import { PromptCompare } from "./prompt-compare.js";
import { Example } from "./prompt-example.js";

/** @import { ArcHead } from "../arcs.js" */
/** @import { Context, View } from "../app.js" */
/** @import { Head } from "../selection.js" */
/** @import { Tensor } from "../source.js" */

/** @typedef {{text: string, p: number, before: number}} Likely */

/**
 * What the studio says of a prompt: the head to show first, what the model predicts, and the mask
 * token that stands for a word to be predicted.
 * @typedef {{tokens: string[], running: string[], heads: number[], first: Head,
 *   predicts: "tokens" | "blanks" | "labels" | "token_labels" | "translations" | "nothing",
 *   blank: string | null, likely: Likely[], loss: number | null, loss_before: number | null}} Told
 */

const TEMPERATURES = [0, 0.2, 0.5, 0.7, 1, 1.5, 2, 3];
const TOPS = [5, 10, 20, 50];
const USUAL_TOP = 10;

/** @typedef {Prompt} PromptView  What its parts share */

class Prompt {
  /** @param {HTMLElement} frame @param {Context} context */
  constructor(frame, context) {
    const { t, state } = context;
    this.frame = frame;
    this.context = context;
    this.t = t;
    this.state = state;
    this.newWeights = newest(context.signal);
    this.told = /** @type {Told} */ (null);
    // What was taken away before, to go back to.
    this.past = /** @type {string[]} */ ([]);
    this.takes = false;
    this.text = new TypedText(frame, context, 2, () => this.typed());
    this.why = element("p.why", { role: "status" });
    const selection = new Selection(context.remember);
    this.arcs = new Arcs(t, selection);
    selection.on(() => {
      this.arcs.turn();
      this.tell();
    });
    this.maps = /** @type {Tensor} */ (null);
    this.heads = element("div", { "data-name": "A" });
    this.bars = element("div");
    this.compare = new PromptCompare(this);
    this.predicted = element("div");
    this.away = element("p.away", { role: "status" });
    this.undoing = element("div.undoing");
    this.waiting = progress(t("heads.opening"));
    this.stage = /** @type {HTMLElement} */ (null);
    this.legend = element("p.legend");
  }

  async start() {
    const { t, state } = this;
    const at = TEMPERATURES.indexOf(Number(state.temperature ?? 1));
    const change = (/** @type {Record<string, any>} */ changes) => {
      this.context.remember(changes);
      this.ask();
    };
    const controls = element(
      "div.controls",
      menu(t("prompt.top"), TOPS, Number(state.top ?? USUAL_TOP), (top) => {
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
        if (this.maps) this.drawHeads();
      },
    );
    const panel = { "data-panel": "" };
    this.beside = element("aside", panel, this.predicted, controls);
    const arcsTold = element("span", t("heads.arcs_told"), " ");
    const told = element("p.quiet", arcsTold, t("heads.maps_told"), " ", t("prompt.hidden"));
    const clicks = element("div.clicks", mode, this.undoing);
    this.stage = element(
      "div.stage",
      element(
        "div.sentence",
        panel,
        this.arcs.element,
        this.why,
        this.compare.sentence,
        this.legend,
      ),
      this.beside,
      element("section.all", panel, clicks, this.heads, this.compare.grid, this.away, told),
    );
    const texts = element("div.texts", this.text.element, this.compare.element);
    fill(this.frame, texts, this.waiting);
    await this.text.open();
    await this.ask();
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

  /** The text without the word that is looked at most, or else the last one. */
  withoutAWord() {
    const { told, arcs, text } = this;
    const { text: whole } = text;
    const looked = arcs.words[arcs.strongest().key].trim();
    const words = whole.split(/(?<=\s)/);
    const at = words.findLastIndex((word) => looked && word.includes(looked));
    const other = words.toSpliced(at, 1).join("").trim();
    // What the model is asked for stays.
    return other && (!told.blank || other.includes(told.blank)) ? other : whole;
  }

  get without() {
    return headsOf(this.state.without);
  }

  async ask() {
    const { source } = this.context;
    await this.text.ask(async (signal) => {
      const { without = null, top = null, temperature = null } = this.state;
      const params = { text: this.text.words, without };
      const told = await source.json("prompt", { ...params, top, temperature }, { signal });
      // Controls come with what they change.
      if (!this.stage.isConnected) this.frame.append(this.stage);
      this.told = told;
      const { isOn } = this.compare;
      this.frame.classList.toggle("comparing", isOn);
      fill(this.predicted, isOn ? this.compare.panel : this.bars);
      // What changes has panels of its own.
      this.beside.toggleAttribute("data-panel", !isOn);
      // The head stays the same while one types, and other views open it.
      this.context.remember({ heads: listed(this.shown) });
      this.text.tell(null);
      render(barsOf(this), this.bars);
      this.drawUndoing();
      const [maps, heads] = await Promise.all([
        source.numbers("prompt/maps", params, { signal }),
        this.shownHeads(signal),
      ]);
      this.maps = maps;
      if (isOn) await this.compare.load({ ...params, top, temperature });
      signal.throwIfAborted();
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

  // The heads whose arcs are shown, with their weights.
  /** @param {AbortSignal} signal @returns {Promise<ArcHead[]>} */
  async shownHeads(signal, text = this.text.text) {
    const { shown, t } = this;
    const params = { text, without: this.state.without, heads: listed(shown) };
    const { source } = this.context;
    const { values } = await source.numbers("prompt/weights", params, { signal });
    const size = values.length / shown.length;
    return shown.map(([layer, head], at) => ({
      name: t("heads.named", { layer, head }),
      color: categories()[at],
      values: rowAt(values, at, size),
    }));
  }

  draw(/** @type {ArcHead[]} */ heads) {
    this.drawHeads();
    const { predicts, running, tokens, blank } = this.told;
    // The token that the bars are about.
    const about = predicts === "tokens" ? running.length - 1 : tokens.indexOf(blank);
    const query = about < 0 ? null : about;
    this.arcs.show(running, heads, wholeNumber(this.state.query, query));
    fill(this.legend, keysOf(heads));
    this.tell();
    const { arcs, predicted, stage, why } = this;
    const card = [arcs.element, predicted];
    const sentence = why.firstChild.textContent;
    this.context.picture(() => ({ parts: [stage], card, sentence }));
    this.frame.dataset.drawn = "";
  }

  drawHeads() {
    const { t, shown, without, compare } = this;
    const { heads: counts } = this.told;
    const cell = (/** @type {Head} */ one) => {
      const [layer, head] = one;
      const place = placeOf(shown, one);
      const isAway = placeOf(without, one) >= 0;
      const classes = ["small", place >= 0 && "shown", isAway && "away"];
      return {
        class: classes.filter(Boolean).join(" "),
        style: place >= 0 ? `--own: ${categories()[place]}` : "",
        "aria-label": t(isAway ? "prompt.gone" : "heads.named", { layer, head }),
        "aria-pressed": String(place >= 0),
        onClick: () => this.chosen(one),
      };
    };
    const rowHead = (/** @type {number} */ layer) => {
      const label = t("prompt.layer", { layer });
      const take = () => this.takeLayer(layer);
      if (!this.takes) return layer;
      return html`<button
        class="layer"
        type="button"
        title=${label}
        aria-label=${label}
        onClick=${take}
      >
        ${layer}
      </button>`;
    };
    /** @param {Tensor} maps @param {HTMLElement} place */
    const draw = (maps, place) => {
      const props = { t, counts, maps, look: {}, rowHead, cell };
      render(maps && html`<${HeadGrid} ...${props} />`, place);
    };
    draw(this.maps, this.heads);
    draw(compare.maps, compare.grid);
  }

  tell() {
    fill(this.why, this.whereItLooks("A", this.arcs, this.text.text));
    this.compare.follow();
  }

  // The sentence about a prompt, which is named where there are two, and a link to its map.
  /** @param {string} name @param {Arcs} arcs @param {string} said */
  whereItLooks(name, arcs, said) {
    const { t, compare, without } = this;
    const last = this.shown.at(-1);
    const [layer, head] = last;
    const { key } = arcs.strongest();
    const href = linkTo("heads", { said, layer, head, query: arcs.query, key });
    const told = whereItLooks(t, last, arcs, placeOf(without, last) >= 0);
    const named = compare.isOn ? `${name}${t("shell.colon")}${told}` : told;
    return [named, " ", element("a.more", { href }, t("prompt.map"))];
  }

  chosen(/** @type {Head} */ head) {
    if (this.takes) {
      this.take(toggled(this.without, head));
      return;
    }
    const next = toggled(this.shown, head).slice(-MOST_COLORS);
    this.open(next.length ? next : [head]);
    showNearby(this.arcs.element);
  }

  async open(/** @type {Head[]} */ heads) {
    const { context, frame } = this;
    context.remember({ heads: listed(heads) });
    delete frame.dataset.drawn;
    const signal = this.newWeights();
    try {
      const [shown] = await Promise.all([this.shownHeads(signal), this.compare.read(signal)]);
      if (!signal.aborted) this.draw(shown);
    } catch (error) {
      context.failed(error);
    }
  }

  /** Take all heads of a layer away, or put them back where all are. @param {number} layer */
  takeLayer(layer) {
    const all = range(this.told.heads[layer]).map((head) => /** @type {Head} */ ([layer, head]));
    const others = this.without.filter(([each]) => each !== layer);
    const areAway = this.without.length - others.length === all.length;
    this.take(areAway ? others : [...others, ...all]);
  }

  take(/** @type {Head[]} */ heads) {
    this.past.push(this.state.without ?? "");
    this.context.remember({ without: listed(heads) });
    this.ask();
  }

  drawUndoing() {
    const { context, t, without, past } = this;
    const names = without.map(([layer, head]) => t("heads.named", { layer, head }));
    const undo = () => {
      context.remember({ without: past.pop() || null });
      this.ask();
    };
    const away = t("prompt.away", { heads: names.join("; ") });
    const told = this.compare.isOn ? away : `${away} ${t("prompt.away.line")}`;
    fill(this.away, without.length > 0 && told);
    fill(
      this.undoing,
      past.length > 0 && button(t("prompt.undo"), undo),
      without.length > 0 && button(t("prompt.back"), () => this.take([])),
    );
  }
}

// What the model predicts, as bars: with heads taken away, and behind each its bar with all heads.
function barsOf(/** @type {Prompt} */ prompt) {
  const { t, told } = prompt;
  const isWhole = !prompt.without.length;
  const { predicts, likely, blank, loss, loss_before: before } = told;
  const isBlank = predicts === "blanks";
  const isToken = isBlank || predicts === "tokens";
  const title = t(`prompt.predicts.${predicts}`, { blank });
  const hint = t(isBlank ? "prompt.fill" : "prompt.follow");
  const longest = Math.max(...likely.map((each) => Math.max(each.p, each.before)), 1e-9);
  const places = { loss: decimal(loss), before: decimal(before) };
  const losses = loss !== null && t(isWhole ? "prompt.loss" : "prompt.losses", places);
  const row = (/** @type {Likely} */ { text, p, before: all }) =>
    html`<tr>
      <th scope="row">
        ${
          isToken
            ? html`<button
                class="token"
                type="button"
                title=${hint}
                onClick=${() => prompt.follow(text)}
              >
                ${text}
              </button>`
            : text
        }
      </th>
      <td>
        <span
          class="bar"
          aria-hidden="true"
          style=${`--now: ${p / longest}; --before: ${all / longest}`}
        />
      </td>
      <td class="number" data-value=${p} data-before=${all}>
        ${weight(p)}${!isWhole && html`<small>${signed(p - all, 4)}</small>`}
      </td>
    </tr>`;
  return html`<section class="likely">
    <h2>${title}</h2>
    <table class=${isToken ? "bars" : "bars long"} aria-label=${title} hidden=${!likely.length}>
      <tbody>
        ${likely.map(row)}
      </tbody>
    </table>
    <p class="loss" role="status" data-value=${loss ?? ""} data-before=${before ?? ""}>
      ${isBlank && !likely.length ? t("prompt.blank", { blank }) : losses}
    </p>
  </section>`;
}

/** @type {View} */
export const prompt = (frame, context) => {
  const Made = context.about.subject.kind === null ? Example : Prompt;
  return new Made(frame, context).start();
};
