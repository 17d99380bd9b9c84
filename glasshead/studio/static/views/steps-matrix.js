// A matrix as a table of coloured cells, which the arrow keys walk.
import { scale } from "../colors.js";
import { element, moveOf } from "../dom.js";
import { decimal, within } from "../numbers.js";
import { index } from "./steps-sums.js";

// Where there is no room for decimals, cells have their colour alone.
const SIZES = { 3: "wide", 2: "close", 0: "dense" };
// These have a row of numbers for each word; the others are of words and words.
const VECTORS = ["queries", "keys", "values", "context"];

export class Matrix {
  constructor(name, title, { words, decimals, matrices }, then) {
    const numbers = VECTORS.includes(name) ? matrices[name][0].map((_, place) => name[0] + index(place)) : words;
    this.cells = words.map((_, row) => numbers.map((__, column) => element("td",
      { tabindex: row + column ? -1 : 0, "data-cell": `${name}.${row}.${column}` }, element("span"))));
    // Keys are turned: a row for each number, and a column for each word.
    const [rows, columns, lines] = name === "keys"
      ? [numbers, words, numbers.map((_, column) => this.cells.map((line) => line[column]))]
      : [words, numbers, this.cells];
    const named = (word, scope) => element("th", { scope, title: word }, element("span", word));
    Object.assign(this, { decimals, formula: element("span") });
    this.rows = rows.map((word, row) => element("tr", named(word, "row"), lines[row]));
    const marked = { role: "grid", "data-matrix": name, onkeydown: walk };
    this.frame = element("div.unit", { "data-then": then }, element(`table.weights.${SIZES[decimals]}`, marked,
      element("caption", element("b", title), " ", this.formula),
      element("thead", element("tr", element("td"), columns.map((word) => named(word, "col")))),
      element("tbody", this.rows)));
    this.frame.style.setProperty("--columns", columns.length);
    this.frame.style.setProperty("--rows", rows.length);
  }

  draw(values, top, seen) {
    const color = scale({ top });
    values.forEach((line, row) => line.forEach((value, column) => {
      const cell = this.cells[row][column];
      const hidden = seen[row][column] === null;
      const kind = hidden ? "hidden" : `w${color(Math.abs(value))}${value < 0 ? " negative" : ""}`;
      if (cell.kind !== kind) cell.className = cell.kind = kind;
      if (cell.value === value) return;
      cell.value = value;
      cell.dataset.value = value ?? -Infinity;
      const text = value === null ? "−∞" : hidden ? "0" : brief(value, this.decimals || 2);
      if (this.decimals) cell.firstChild.textContent = text; else cell.ariaLabel = text;
    }));
  }
}

function walk(event) {
  const { key, target } = event;
  const move = moveOf(event);
  if (!move && key !== "Enter" && key !== " ") return;
  event.preventDefault();
  if (!move) return target.click();
  const row = target.parentNode;
  const { rows } = row.parentNode;
  const { cells } = rows[within(row.sectionRowIndex + move[0], rows.length)];
  cells[1 + within(target.cellIndex - 1 + move[1], cells.length - 1)].focus();
}

function brief(value, decimals) {
  const whole = Math.max(0, Math.floor(Math.log10(Math.abs(value) || 1)));
  return decimal(value, Math.max(0, decimals - whole));
}
