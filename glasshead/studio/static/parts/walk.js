// Arrow keys among buttons that stand in lines, of which Tab leads to one.
import { moveOf } from "../dom.js";
import { within } from "../numbers.js";

/**
 * Focus the button that a key leads to: to the left or right in its line, or to a line above or below.
 * @param {KeyboardEvent & {currentTarget: Element}} event  Of the frame of all buttons
 */
export function walk(event) {
  const from = /** @type {Element} */ (event.target).closest("button");
  const move = moveOf(event);
  const all = [...event.currentTarget.querySelectorAll("button[tabindex]")];
  if (!move || !all.includes(from)) return;
  event.preventDefault();
  const lines = Object.values(Object.groupBy(all, (each) => each.getBoundingClientRect().top));
  const own = lines.findIndex((line) => line.includes(from));
  const line = lines[within(own + move[0], lines.length)];
  const to = line[within(lines[own].indexOf(from) + move[1], line.length)];
  /** @type {HTMLElement} */ (to).focus();
}
