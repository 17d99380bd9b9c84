// What the model predicts, as bars: with heads taken away, and behind each its bar with all heads.
import { element, fill, headingCell } from "../dom.js";
import { decimal, weight } from "../numbers.js";

/**
 * @import { Translate } from "../app.js"
 */

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
}

/** @param {Likely[]} likely */
function longestOf(likely) {
  return Math.max(...likely.map(({ p, before }) => Math.max(p, before)), 1e-9);
}

/** @param {number} value */
function signed(value) {
  return value > 0 ? `+${decimal(value)}` : decimal(value);
}
