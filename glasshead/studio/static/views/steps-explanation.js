// What explain says of one word, beside the matrices, and the sum of one cell below them.
import { scale } from "../colors.js";
import { element, fill, table } from "../dom.js";
import { decimal } from "../numbers.js";
import { partElements } from "./steps-sums.js";

/** @import { Translate } from "../app.js" */
/** @import { Children } from "../dom.js" */
/** @import { StepsData, Sum } from "./steps-sums.js" */

// Words whose weights have room for their numbers.
const ROOM = 10;

// A text of a formula, and the elements that it stands in: "sup sub" for an index of an exponent.
/** @typedef {[string, string]} Run */

/**
 * @typedef {{name: string, title: string, text: string[], formula: Run[][], numbers: Run[][],
 *   why: Run[], printed: {columns?: string[], rows?: string[][], text?: string}[]}} Step
 */

/** @typedef {{title: string, notes: string[], steps: Step[]}} Explained */

/** The explanation of a word, a section for each step. */
export class Explanation {
  constructor(/** @type {string} */ label) {
    this.title = element("h2");
    this.sections = element("div");
    const attributes = { "aria-label": label, tabindex: "0" };
    this.frame = element("aside.words", attributes, this.title, this.sections);
    this.marked = /** @type {string} */ (null);
    // The section that it has scrolled to last, if none was marked after it.
    this.followed = /** @type {string} */ (null);
  }

  draw(/** @type {Explained} */ { title, notes, steps }) {
    this.title.textContent = title;
    const sections = steps.map((step, place) => sectionOf(step, place, place ? [] : notes));
    this.sections.replaceChildren(...sections);
    this.mark(this.marked, false);
  }

  // Mark the section of a matrix.
  /** @param {string} matrix @param {boolean} follow  Whether to scroll to it */
  mark(matrix, follow) {
    const step = ["queries", "keys", "values"].includes(matrix) ? "inputs" : matrix;
    for (const each of /** @type {Iterable<HTMLElement>} */ (this.sections.children)) {
      each.classList.toggle("here", each.dataset.step === step);
    }
    const here = /** @type {HTMLElement} */ (this.sections.querySelector(".here"));
    if (follow && here && matrix !== this.followed) this.frame.scrollTop = here.offsetTop - 12;
    if (follow || matrix !== this.marked) this.followed = follow ? matrix : null;
    this.marked = matrix;
  }
}

// The first section, which has no number, opens the explanation.
/** @param {Step} step @param {number} place @param {string[]} notes */
function sectionOf({ name, title, text, formula, numbers, why, printed }, place, notes) {
  const lines = formula.length + numbers.length > 0;
  return element(
    "section",
    { "data-step": name, "data-panel": "" },
    place ? element("h3", `${place}. ${title}`) : null,
    text.map((each) => element("p", each)),
    lines ? element("div.lines", [formula, numbers].map(formulaElement)) : null,
    printed.length ? element("div.table.printed", printed.map(printedElement(title))) : null,
    why.length ? element("p.note", why.map(runElement)) : null,
    notes.map((note) => element("p.note", note)),
  );
}

// What a text prints, beside the exact numbers: a table, or a sentence.
/** @param {string} label @returns {(printed: Step["printed"][0]) => HTMLElement} */
function printedElement(label) {
  return ({ columns, rows, text }) => {
    if (!columns) return element("p", text);
    const headings = columns.map((each) => element(each ? "th" : "td", each));
    const cells = rows.map(([head, ...rest]) => {
      return [element(head ? "th" : "td", head), rest.map((each) => element("td", each))];
    });
    const name = `${label} · ${columns.concat(rows[0]).find(Boolean)}`;
    return table("table", "", headings, cells, name);
  };
}

function formulaElement(/** @type {Run[][]} */ lines) {
  const written = lines.map((line) => element("span", line.map(runElement), "\n"));
  return lines.length ? element("pre.formula", written) : null;
}

function runElement(/** @type {Run} */ [text, places]) {
  let held = /** @type {Children} */ (text.replace(/\B-(?=\d)/g, "−"));
  for (const name of places.match(/\w+/g)?.reverse() ?? []) held = element(name, held);
  return held;
}

/** The sum behind the cell that is pointed at. */
export class SumFrame {
  constructor(/** @type {Translate} */ t) {
    this.t = t;
    const label = t("steps.sum");
    this.told = element("div", { role: "status" });
    // The weights of the word that is explained stay in sight, and are read from their table.
    this.weights = element("div.strip", { "aria-hidden": "true" });
    this.words = "";
    const attributes = { role: "group", tabindex: "0", "aria-label": label };
    this.element = element("div.sum", attributes, this.weights, this.told);
  }

  /** @param {StepsData} data @param {number} query */
  drawWeights({ words, matrices, decimals }, query) {
    const level = scale();
    const row = matrices.weights[query];
    const isRoomy = words.length <= ROOM;
    // While a slider moves, the words are the same.
    if (this.words !== words.join("\n")) {
      this.words = words.join("\n");
      this.cells = words.map((word) => {
        return element("span", isRoomy && element("small", word), element("b"));
      });
      fill(this.weights, element("em"), this.cells);
    }
    fill(this.weights.firstElementChild, words[query]);
    this.cells.forEach((cell, at) => {
      const bar = cell.lastElementChild;
      cell.title = `${words[at]} ${decimal(row[at], decimals.sums)}`;
      bar.className = `w${level(row[at])}`;
      if (isRoomy) fill(bar, decimal(row[at], 2));
    });
  }

  draw(/** @type {Sum} */ { title, value, lines, decimals, note }) {
    const attributes = { value, "data-value": value };
    const full = element("data.full", attributes, String(value).replace("-", "−"));
    const named = this.t("steps.full") + this.t("shell.colon");
    const inFull = value !== null && element("span.in-full", named, full, note && " · ");
    fill(
      this.told,
      element("h2", title),
      lines.map((line) => element("p.line", partElements(line, decimals))),
      element("p.quiet", inFull, note),
    );
  }
}
