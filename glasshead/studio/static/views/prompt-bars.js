// What the model predicts, as bars: with heads taken away, and behind each its bar with all heads.
import { element, fill, headingCell } from "../dom.js";
import { textWidth } from "../figure.js";
import { decimal, weight } from "../numbers.js";

/**
 * @import { Translate } from "../app.js"
 * @import { Figure } from "../figure.js"
 */

// Pixels of the longest bar in a picture.
const BAR = 200;

/** @typedef {{text: string, p: number, before: number}} Likely */

/**
 * What the studio says of a prompt.
 * @typedef {object} Told
 * @property {string[]} tokens
 * @property {string[]} running
 * @property {number} of
 * @property {string[]} layers
 * @property {number[]} heads
 * @property {[number, number]} first  The head to show first
 * @property {"tokens" | "blanks" | "labels" | "token_labels" | "translations" | "nothing"} predicts
 * @property {string | null} blank  The mask token that stands for a word to be predicted
 * @property {Likely[]} likely
 * @property {number | null} loss
 * @property {number | null} loss_before
 */

export class Bars {
  /**
   * @param {Translate} t
   * @param {(text: string) => void} taken  Called with a token that is to follow, or to fill a blank
   */
  constructor(t, taken) {
    this.t = t;
    this.taken = taken;
    /** @type {{likely: Likely[], isWhole: boolean, isLong: boolean}} */
    this.told = null;
    // What a click on a token does.
    this.hint = "";
    this.title = element("h2");
    this.body = element("tbody");
    this.loss = element("p.loss", { role: "status" });
    this.table = element("table.bars", this.body);
    this.element = element("section.likely", this.title, this.table, this.loss);
  }

  /**
   * @param {Told} told
   * @param {boolean} isWhole  Whether no head is taken away
   */
  show({ predicts, likely, blank, loss, loss_before: before }, isWhole) {
    const { t } = this;
    const isBlank = predicts === "blanks";
    const isToken = isBlank || predicts === "tokens";
    const title = t(`prompt.predicts.${predicts}`, { blank });
    this.told = { likely, isWhole, isLong: !isToken };
    fill(this.title, title);
    this.table.ariaLabel = title;
    this.table.hidden = !likely.length;
    this.table.classList.toggle("long", !isToken);
    this.hint = t(isBlank ? "prompt.fill" : "prompt.follow");
    const longest = longestOf(likely);
    fill(
      this.body,
      likely.map((each) => this.row(each, isToken, isWhole, longest)),
    );
    const places = { loss: decimal(loss), before: decimal(before) };
    const name = isWhole ? "prompt.loss" : "prompt.losses";
    const isEmpty = isBlank && !likely.length;
    fill(this.loss, isEmpty ? t("prompt.blank", { blank }) : loss !== null && t(name, places));
    this.loss.dataset.value = String(loss ?? "");
    this.loss.dataset.before = String(before ?? "");
  }

  /**
   * @param {Likely} likely
   * @param {boolean} isToken
   * @param {boolean} isWhole
   * @param {number} longest
   */
  row({ text, p, before }, isToken, isWhole, longest) {
    const onclick = () => this.taken(text);
    const look = { type: "button", onclick, title: this.hint };
    const name = isToken ? element("button.token", look, text) : text;
    const bar = element("span.bar", { "aria-hidden": "true" });
    bar.style.setProperty("--now", String(p / longest));
    bar.style.setProperty("--before", String(before / longest));
    const change = isWhole ? null : element("small", signed(p - before));
    return element(
      "tr",
      headingCell("row", name),
      element("td", bar),
      element("td.number", { "data-value": p, "data-before": before }, weight(p), change),
    );
  }

  /**
   * The bars as a part of a picture.
   * @returns {Figure}
   */
  figure() {
    const { likely, isWhole, isLong } = this.told;
    const longest = longestOf(likely);
    const [names, line] = isLong
      ? [0, 40]
      : [Math.max(...likely.map(({ text }) => textWidth(text))) + 12, 22];
    const marks = likely.flatMap(({ text, p, before }, at) => {
      const y = 40 + at * line;
      const bar = { x: names, y: y + line - 18, height: 14 };
      const number = isWhole ? weight(p) : `${weight(p)} ${signed(p - before)}`;
      const after = names + BAR + 8;
      return [
        { x: 0, y: y + 15, text, size: 12 },
        { ...bar, width: (BAR * p) / longest, fill: "accent", opacity: 0.8 },
        { ...bar, x: names + (BAR * before) / longest - 1, width: 2, fill: "ink" },
        { x: after, y: bar.y + 11, text: number, size: 12, fill: isWhole ? "ink" : "quiet" },
      ];
    });
    const height = 40 + likely.length * line;
    const title = { x: 0, y: 24, text: this.title.textContent, size: 15, weight: 600 };
    const loss = { x: 0, y: height + 18, text: this.loss.textContent, size: 12 };
    const numbers = likely.map(({ text }) => (isLong ? textWidth(text) : 0));
    const width = Math.max(names + BAR + 130, textWidth(loss.text), ...numbers) + 20;
    return { width, height: height + 24, marks: [title, ...marks, loss] };
  }
}

/** @param {Likely[]} likely */
function longestOf(likely) {
  return Math.max(...likely.map(({ p, before }) => Math.max(p, before)), 1e-9);
}

/** @param {number} value */
function signed(value) {
  return value > 0 ? `+${decimal(value)}` : decimal(value);
}
