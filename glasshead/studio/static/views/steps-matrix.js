// A matrix as a table of colored cells, which the arrow keys walk; and all of them as a picture.
import { scale } from "../colors.js";
import { element, moveOf } from "../dom.js";
import { colorBar } from "../figure.js";
import { decimal, range, within } from "../numbers.js";
import { toneOf } from "../diverging.js";
import { subscript } from "./steps-sums.js";

/**
 * @import { Mark } from "../figure.js"
 * @import { Tone } from "../diverging.js"
 * @import { StepsData } from "./steps-sums.js"
 */

/**
 * The class of a table by the decimals of its cells. Where there is no room for decimals, cells
 * have their color alone.
 * @type {Record<number, string>}
 */
const SIZES = { 3: "wide", 2: "close", 1: "close", 0: "dense" };
// These have a row of numbers for each word; the others are of words and words.
const VECTORS = ["queries", "keys", "values", "context"];

/** @typedef {{x: number, y: number, width: number, height: number}} Box */
/**
 * A scale of colors: its label, the numbers at its ends, and its colors where it has a middle.
 * @typedef {{label: string, begin: string, end: string, tones?: string[]}} Scale
 */

/**
 * A cell, and what it shows.
 * @typedef {object} Cell
 * @property {HTMLTableCellElement} element
 * @property {string} [kind]  Its classes
 * @property {Tone | null} [tone]  Its color, where this has two ends
 * @property {number | null} [value]
 */

// Of the picture.
const MARGIN = 24;
const TOP = 60;

export class Matrix {
  /**
   * @param {string} name
   * @param {string} title
   * @param {StepsData} data
   * @param {string | null} sign  What stands between this matrix and the next
   */
  constructor(name, title, { words, decimals, matrices }, sign) {
    this.name = name;
    this.decimals = decimals.cells;
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
      return element(
        "tr",
        heading(word, "row"),
        cells.map(({ element: each }) => each),
      );
    });
    const table = element(
      `table.weights.${SIZES[decimals.cells]}`,
      { role: "grid", "data-matrix": name, onkeydown: walk },
      element("caption", element("b", title), " ", this.formula),
      element(
        "thead",
        element(
          "tr",
          element("td"),
          columnNames.map((word) => heading(word, "col")),
        ),
      ),
      element("tbody", this.rows),
    );
    this.frame = element("div.unit", { "data-then": sign }, table);
    this.frame.style.setProperty("--columns", String(columnNames.length));
    this.frame.style.setProperty("--rows", String(rowNames.length));
  }

  /**
   * @param {number} row
   * @param {number} column
   * @returns {Cell}
   */
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
   */
  draw(values, top, seen) {
    const color = scale({ top });
    values.forEach((line, row) => {
      line.forEach((value, column) => {
        const cell = this.cells[row][column];
        if (seen[row][column] === null) this.drawCell(cell, "hidden", value);
        else if (this.name === "weights") this.drawCell(cell, `w${color(value)}`, value);
        else this.drawCell(cell, value < 0 ? "negative" : "positive", value, value / (top || 1));
      });
    });
  }

  /**
   * Change what has changed: a slider that moves changes all matrices many times a second.
   * @param {Cell} cell
   * @param {string} kind
   * @param {number | null} value
   * @param {number} [share]  Of the number at the end of the scale, where colors have two ends
   */
  drawCell(cell, kind, value, share) {
    if (cell.kind !== kind) {
      cell.kind = kind;
      cell.element.className = kind;
    }
    const tone = share === undefined ? null : toneOf(share);
    if (cell.tone !== tone) {
      cell.tone = tone;
      cell.element.style.background = tone?.fill ?? "";
      cell.element.style.color = tone?.ink ?? "";
    }
    if (cell.value === value) return;
    cell.value = value;
    cell.element.dataset.value = String(value ?? -Infinity);
    const text = this.textOf(value, kind === "hidden");
    if (this.decimals) cell.element.firstElementChild.textContent = text;
    else cell.element.ariaLabel = text;
  }

  /**
   * @param {number | null} value
   * @param {boolean} isHidden
   */
  textOf(value, isHidden) {
    if (value === null) return "−∞";
    return isHidden ? "0" : brief(value, this.decimals || 2);
  }
}

/**
 * @param {string} word
 * @param {"row" | "col"} scope
 */
function heading(word, scope) {
  return element("th", { scope, title: word }, element("span", word));
}

/** @param {KeyboardEvent} event */
function walk(event) {
  const cell = /** @type {HTMLTableCellElement} */ (event.target);
  const move = moveOf(event);
  if (!move && event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  if (!move) {
    cell.click();
    return;
  }
  const row = /** @type {HTMLTableRowElement} */ (cell.parentNode);
  const { rows } = /** @type {HTMLTableSectionElement} */ (row.parentNode);
  const { cells } = rows[within(row.sectionRowIndex + move[0], rows.length)];
  // The first cell of a row is its heading.
  cells[1 + within(cell.cellIndex - 1 + move[1], cells.length - 1)].focus();
}

/**
 * A number with fewer decimals the larger it is, as all cells are equally wide.
 * @param {number} value
 * @param {number} decimals
 */
function brief(value, decimals) {
  const whole = Math.max(0, Math.floor(Math.log10(Math.abs(value) || 1)));
  return decimal(value, Math.max(0, decimals - whole));
}

/**
 * The matrices as a picture: as they stand on the page, with the signs between them and a legend.
 * @param {HTMLElement} frame
 * @param {string} title
 * @param {Scale[]} scales
 * @param {string[]} notes  How the cells are read
 */
export function pictureOf(frame, title, scales, notes) {
  /** @type {Mark[]} */
  const marks = [{ x: MARGIN, y: 34, text: title, size: 18, weight: 600 }];
  const figure = { width: 0, height: 0, marks };
  // What is out of sight is laid out, too.
  frame.classList.toggle("whole");
  const from = frame.getBoundingClientRect();
  for (const part of frame.querySelectorAll("td[data-cell], th, caption > *")) {
    const { left, top, width, height } = part.getBoundingClientRect();
    const box = { x: left - from.left + MARGIN, y: top - from.top + TOP, width, height };
    marks.push(...marksOf(part, box));
    figure.width = Math.max(figure.width, box.x + width + MARGIN);
    figure.height = Math.max(figure.height, box.y + height + MARGIN);
  }
  for (const unit of frame.querySelectorAll("[data-then]")) {
    const { right, top, height } = unit.getBoundingClientRect();
    const { then } = /** @type {HTMLElement} */ (unit).dataset;
    const x = right - from.left + MARGIN - 13;
    const y = top - from.top + TOP + height / 2 + 16;
    marks.push({ x, y, text: then, size: 17, fill: "quiet", anchor: "middle" });
  }
  frame.classList.toggle("whole");
  for (const { label, begin, end, tones } of scales) {
    const bar = colorBar(MARGIN, figure.height, label, end, begin, tones);
    marks.push(...bar.marks);
    figure.width = Math.max(figure.width, bar.width + 2 * MARGIN);
    figure.height += 20;
  }
  marks.push({ x: MARGIN, y: figure.height, text: notes.join(" · "), size: 12, fill: "quiet" });
  figure.height += 16;
  return figure;
}

/**
 * @param {Element} part
 * @param {Box} box
 * @returns {Mark[]}
 */
function marksOf(part, box) {
  const { backgroundColor, color, fontSize, fontWeight } = getComputedStyle(part);
  const { x, y, width, height } = box;
  const middle = { x: x + width / 2, y: y + height / 2 + 4, anchor: "middle" };
  const text = { ...middle, text: part.textContent, fill: color, size: parseFloat(fontSize) };
  if (part.matches("caption *")) {
    // The page's titles have serifs, which are narrower than the picture's letters of that size.
    return [{ ...text, x, anchor: "start", weight: fontWeight, size: 12 }];
  }
  if (part.matches(".dense thead th")) {
    return [{ ...text, x: text.x - 4, y, rotate: 90, anchor: "start" }];
  }
  if (part.matches("tbody th")) return [{ ...text, x: x + width - 6, anchor: "end" }];
  if (part.matches("th")) return [text];
  const stroke = { d: `M${x} ${y + height}l${width} ${-height}`, stroke: "rule" };
  const hatch = part.matches(".hidden") ? [stroke] : [];
  return [{ ...box, fill: backgroundColor }, ...hatch, text];
}
