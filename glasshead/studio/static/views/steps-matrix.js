// A matrix as a table of colored cells, which the arrow keys walk.
import { scale } from "../colors.js";
import { element, sightOf } from "../dom.js";
import { decimal, range } from "../numbers.js";
import { toneOf } from "../diverging.js";
import { walk } from "../parts/walk.js";
import { subscript } from "./steps-sums.js";

/** @import { Tone } from "../diverging.js" */
/** @import { StepsData } from "./steps-sums.js" */

// The class of a table by the decimals of its cells. Where there is no room for decimals, cells
// have their color alone.
/** @type {Record<number, string>} */
const SIZES = { 4: "wide", 3: "close", 2: "close", 1: "close", 0: "dense" };
// These have a row of numbers for each word; the others are of words and words.
const VECTORS = ["queries", "keys", "values", "context"];

/**
 * A cell, and what it shows: its classes, and its color where this has two ends.
 * @typedef {{element: HTMLTableCellElement, kind?: string, tone?: Tone | null, value?: number | null}} Cell
 */

// A color that a class gives.
const NONE = { fill: "", ink: "" };

export class Matrix {
  /**
   * @param {string} name @param {string} title @param {StepsData} data
   * @param {string | null} sign  What stands between this matrix and the next
   */
  constructor(name, title, { words, decimals, matrices }, sign) {
    this.name = name;
    this.decimals = decimals.cells;
    this.isMoving = false;
    this.formula = element("span");
    const numbers = range(matrices[name][0].length).map((at) => name[0] + subscript(at));
    const columns = VECTORS.includes(name) ? numbers : words;
    /** @type {Cell[][]} */
    this.cells = words.map((_, row) => columns.map((__, column) => this.cell(row, column)));
    // Keys are turned: a row for each number, and a column for each word.
    const isTurned = name === "keys";
    const [rowNames, columnNames] = isTurned ? [columns, words] : [words, columns];
    this.rows = rowNames.map((word, row) => {
      const cells = isTurned ? this.cells.map((line) => line[row]) : this.cells[row];
      const held = cells.map(({ element: each }) => each);
      return element("tr", heading(word, "row"), held);
    });
    const headings = columnNames.map((word) => heading(word, "col"));
    const table = element(
      `table.weights.${SIZES[decimals.cells]}`,
      { role: "grid", "data-matrix": name, onkeydown: walkOrClick },
      element("caption", element("b", title), " ", this.formula),
      element("thead", element("tr", element("td"), headings)),
      element("tbody", this.rows),
    );
    const unit = decimals.cells ? "div.unit" : "div.unit.large";
    const style = { "--columns": columnNames.length, "--rows": rowNames.length };
    this.frame = element(unit, { "data-then": sign, style }, table);
    this.sight = sightOf(this.frame);
  }

  /** @param {number} row @param {number} column @returns {Cell} */
  cell(row, column) {
    // One cell of the grid is reached by Tab, and the others from there.
    const tabindex = row + column ? -1 : 0;
    const attributes = { tabindex, "data-cell": `${this.name}.${row}.${column}` };
    return { element: element("td", attributes, element("span")) };
  }

  /**
   * @param {(number | null)[][]} values
   * @param {number} top  Number of the darkest color
   * @param {(number | null)[][]} seen  Null where the cell is hidden
   * @param {boolean} isMoving  Whether more will be drawn at once
   */
  draw(values, top, seen, isMoving) {
    this.isMoving = isMoving;
    if (isMoving && !this.sight.isIn) return;
    const level = scale({ top });
    values.forEach((line, row) => {
      line.forEach((value, column) => {
        const cell = this.cells[row][column];
        if (seen[row][column] === null) this.drawCell(cell, "hidden", value);
        else if (this.name === "weights") this.drawCell(cell, `w${level(value)}`, value);
        else this.drawCell(cell, value < 0 ? "negative" : "positive", value, value / (top || 1));
      });
    });
  }

  /**
   * Change what has changed: a slider that moves changes all matrices many times a second.
   * @param {Cell} cell @param {string} kind @param {number | null} value
   * @param {number} [share]  Of the number at the end of the scale, where colors have two ends
   */
  drawCell(cell, kind, value, share) {
    const { element: made } = cell;
    if (cell.kind !== kind) made.className = kind;
    cell.kind = kind;
    const tone = share === undefined ? NONE : toneOf(share);
    if (cell.tone !== tone) {
      cell.tone = tone;
      made.style.background = tone.fill;
      made.style.color = tone.ink;
    }
    // What is not seen waits until nothing moves.
    if (cell.value === value || (this.isMoving && !this.decimals)) return;
    cell.value = value;
    made.dataset.value = String(value ?? -Infinity);
    const text = this.textOf(value, kind === "hidden");
    if (this.decimals) made.firstElementChild.textContent = text;
    else made.ariaLabel = text;
  }

  /** @param {number | null} value @param {boolean} isHidden */
  textOf(value, isHidden) {
    if (value === null) return "−∞";
    return isHidden ? "0" : brief(value, this.decimals || 2);
  }
}

/** @param {string} word @param {"row" | "col"} scope */
const heading = (word, scope) => element("th", { scope, title: word }, element("span", word));

function walkOrClick(/** @type {any} */ event) {
  if (event.key !== "Enter" && event.key !== " ") {
    walk(event, false, "td");
    return;
  }
  event.preventDefault();
  event.target.click();
}

// A number with fewer decimals the larger it is, as all cells are equally wide.
/** @param {number} value @param {number} decimals */
function brief(value, decimals) {
  const whole = Math.max(0, Math.floor(Math.log10(Math.abs(value) || 1)));
  return decimal(value, Math.max(0, decimals - whole));
}
