// Arrow keys among elements that stand in lines, of which Tab leads to one.
import { moveOf } from "../dom.js";
import { byKey, within } from "../numbers.js";

// Focus what a key leads to: to the left or right in its line, or to a line above or below. Where
// it flows, a line goes on in the next one.
/** @param {KeyboardEvent & {currentTarget: Element}} event  Of the frame of all elements */
export function walk(event, flows = false, name = "button") {
  const from = /** @type {Element} */ (event.target).closest(name);
  const move = moveOf(event);
  const all = [...event.currentTarget.querySelectorAll(`${name}[tabindex]`)];
  if (!move || !all.includes(from)) return;
  event.preventDefault();
  const lines = [...byKey(all, (each) => each.getBoundingClientRect().top).values()];
  const own = lines.findIndex((line) => line.includes(from));
  const [down, right] = move;
  const next = flows ? all : lines[within(own + down, lines.length)];
  const at = flows
    ? all.indexOf(from) + (down && down * lines[0].length)
    : lines[own].indexOf(from);
  /** @type {HTMLElement} */ (next[within(at + right, next.length)]).focus();
}
