// A prompt compared with another one: where the heads look in it, what the model predicts after both,
// and the heads that wrote the change. A is the prompt of the view, B the other.
import { Arcs } from "../arcs.js";
import { signed } from "../diverging.js";
import { button, capitalized, element, fill } from "../dom.js";
import { decimal, weight } from "../numbers.js";
import { html, render } from "../parts/html.js";
import { Waterfall } from "../parts/waterfall.js";
import { linkTo, Selection } from "../selection.js";
import { TypedText } from "../typed-text.js";

/** @import { ArcHead } from "../arcs.js" */
/** @import { Parts } from "../parts/waterfall.js" */
/** @import { Head } from "../selection.js" */
/** @import { Parameters, Tensor } from "../source.js" */
/** @import { PromptView } from "./prompt.js" */

/**
 * What the studio says of two prompts: of each number, that of A and that of B; and of the logit of
 * A's most likely candidate, less that of B's where it is another, the parts that heads wrote, or
 * why these are not known; and the tokens of B as running text.
 * @typedef {{candidates: {text: string, logit: [number, number], p: [number, number]}[],
 *   of: string, against: string | null, logit: [number, number],
 *   changed: Parts & {beyond: number} | null,
 *   refused: string | null, running: string[]}} Told
 */

export class PromptCompare {
  constructor(/** @type {PromptView} */ prompt) {
    const { t, state } = prompt;
    this.prompt = prompt;
    this.text = new TypedText(prompt.frame, prompt.context, 2, () => this.turn(this.text.text));
    fill(this.text.label, t("prompt.other"));
    this.text.field.value = state.minus ?? "";
    this.ask = button(t("prompt.compare"), () => this.begin());
    this.stop = button(t("heads.stop"), () => this.end());
    this.element = element("div.compare-with");
    this.panel = element("div.change");
    this.grid = element("div", { "data-name": "B" });
    this.maps = /** @type {Tensor} */ (null);
    // The tokens of B, and the weights of the heads whose arcs are shown.
    this.words = /** @type {string[]} */ ([]);
    this.heads = /** @type {ArcHead[]} */ (null);
    this.arcs = new Arcs(t, new Selection(() => {}));
    this.arcs.selection.on(() => this.tell());
    this.why = element("p.why");
    this.sentence = element("div.other");
    this.layOut();
  }

  get isOn() {
    return this.prompt.state.minus !== undefined;
  }

  layOut() {
    const { context, text } = this.prompt;
    this.maps = null;
    this.words = [];
    fill(text.label, context.t("prompt.text"), this.isOn && " (A)");
    fill(this.element, this.isOn ? [this.text.element, this.stop] : this.ask);
    fill(this.sentence, this.isOn && [this.arcs.element, this.why]);
  }

  /** Begin with the same prompt less a word, in whose place another may be written. */
  begin() {
    this.text.field.value = this.prompt.withoutAWord();
    this.turn(this.text.text);
    this.text.field.focus();
  }

  end() {
    this.turn(null);
    this.text.tell(null);
    this.ask.focus();
  }

  turn(/** @type {string | null} */ minus) {
    const { isOn, prompt } = this;
    prompt.context.remember({ minus });
    if (isOn !== this.isOn) this.layOut();
    prompt.ask();
  }

  /** Compare, and show what changes. @param {Parameters} params  Those of the prompt */
  load(params) {
    const { prompt, text, panel } = this;
    return text.ask(async (signal) => {
      const asked = { ...params, minus: text.words };
      const { source } = prompt.context;
      const told = await source.json("prompt/compared", asked, { signal });
      const other = { ...params, text: text.words };
      this.maps = await source.numbers("prompt/maps", other, { signal });
      await this.read(signal);
      this.words = told.running;
      text.tell(null);
      const href = linkTo("heads", { said: prompt.text.text, minussaid: text.text });
      render(changeOf(prompt, told, href), panel);
    });
  }

  /** Read the weights in B of the heads whose arcs are shown. @param {AbortSignal} signal */
  async read(signal) {
    if (this.isOn) this.heads = await this.prompt.shownHeads(signal, this.text.text);
  }

  /** Show the arcs of the same token, or else of that as far from the end. */
  follow() {
    const { heads, words } = this;
    const { arcs } = this.prompt;
    const { query, words: others } = arcs;
    if (this.isOn && heads) {
      const isSame = words[query] === others[query];
      const place = isSame ? query : Math.max(0, query + words.length - others.length);
      this.arcs.show(words, heads, place);
      this.tell();
    }
    const [before, after] = sharedEnds(words, others);
    for (const { tokens } of [arcs, this.arcs]) {
      tokens.forEach((token, at) => {
        const differs = words.length && at >= before && at < tokens.length - after;
        token.classList.toggle("differs", Boolean(differs));
      });
    }
  }

  tell() {
    this.arcs.turn();
    fill(this.why, this.prompt.whereItLooks("B", this.arcs, this.text.text));
  }
}

// How many words two texts share from the start on, and of the rest from the end on.
/** @param {string[]} one @param {string[]} other */
function sharedEnds(one, other) {
  const most = Math.min(one.length, other.length);
  let before = 0;
  while (before < most && one[before] === other[before]) before += 1;
  let after = 0;
  while (before + after < most && one.at(-1 - after) === other.at(-1 - after)) after += 1;
  return [before, after];
}

/**
 * @param {PromptView} prompt @param {Told} told
 * @param {string} href  Both prompts in the view "heads"
 */
function changeOf(prompt, told, href) {
  const { t, state } = prompt;
  const { candidates, of, against, changed, refused } = told;
  const longest = Math.max(...candidates.flatMap((each) => each.p), 1e-9);
  const [first, second] = told.logit.map((each) => decimal(each, 3));
  const places = { text: of, against, first, second };
  return html`<section class="likely" data-panel="" aria-label=${t("prompt.change")}>
      <h2>${t("prompt.change")}</h2>
      <table class="bars pair">
        <thead>
          <tr>
            <td />
            <td />
            ${["A", "B", "A − B"].map((name) => html`<th scope="col">${name}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${candidates.map((each) => rowOf(each, longest))}
        </tbody>
      </table>
    </section>
    <section class="changed" data-panel="" aria-label=${t("prompt.changed")}>
      <h2>${t("prompt.changed")}</h2>
      ${refused && html`<p class="note">${capitalized(refused)}</p>`}
      ${
        changed &&
        html`<p class="quiet">
            ${t(`prompt.changed.${against === null ? "one" : "pair"}`, places)}
            ${" "}${state.without && t("prompt.changed.away")}
          </p>
          <${Waterfall}
            t=${t}
            caption=${t("prompt.changed")}
            of=${changed}
            more=${[[t("prompt.changed.beyond"), changed.beyond]]}
            sum=${told.logit[0] - told.logit[1]}
            total="A − B"
            go=${(/** @type {Head} */ head) => prompt.open([head])}
          />`
      }
      <p><a class="more" href=${href}>${t("prompt.both")}</a></p>
    </section>`;
}

/** @param {Told["candidates"][number]} each @param {number} longest */
function rowOf({ text, p }, longest) {
  const change = p[0] - p[1];
  return html`<tr>
    <th scope="row"><span class="token">${text}</span></th>
    <td>
      ${p.map(
        (share, at) =>
          html`<span
            class=${at ? "bar plain less" : "bar plain"}
            aria-hidden="true"
            style=${`--now: ${share / longest}`}
          />`,
      )}
    </td>
    ${p.map((share) => html`<td class="number" data-value=${share}>${weight(share)}</td>`)}
    <td class="number difference" data-value=${change}>${signed(change, 4)}</td>
  </tr>`;
}
