// The matrices as a picture: as they stand on the page.

/**
 * @import { Mark } from "../figure.js"
 */

/** @typedef {{x: number, y: number, width: number, height: number}} Box */

const MARGIN = 24;
const TOP = 60;

/**
 * @param {HTMLElement} frame  The matrices
 * @param {string} title
 */
export function pictureOf(frame, title) {
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
  frame.classList.toggle("whole");
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
  return [{ ...box, fill: backgroundColor }, ...signs(part, box), text];
}

/**
 * The sign of a negative number, and of a hidden one.
 * @param {Element} cell
 * @param {Box} box
 * @returns {Mark[]}
 */
function signs(cell, { x, y, width, height }) {
  const inner = { x: x + 3, y: y + 3, width: width - 6, height: height - 6, fill: "paper" };
  const stroke = { d: `M${x} ${y + height}l${width} ${-height}`, stroke: "rule" };
  return [
    ...(cell.matches(".negative") ? [inner] : []),
    ...(cell.matches(".hidden") ? [stroke] : []),
  ];
}
