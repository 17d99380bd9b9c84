// Elements made of data: a text is always a text, never markup; and where keys and pointers lead.
import { within } from "./numbers.js";

/**
 * The class of an element, from a name such as "canvas" or "div.controls".
 * @template {string} Name
 * @typedef {Name extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[Name]
 *   : Name extends `${infer Tag extends keyof HTMLElementTagNameMap}.${string}`
 *   ? HTMLElementTagNameMap[Tag] : HTMLElement} ElementOf
 */

/** @typedef {Partial<GlobalEventHandlers> & {[name: string]: any}} Attributes */

// What an element holds. What is null, undefined or false is left out, so that a part may depend
// on a condition.
/** @typedef {Node | string | number | boolean | null | undefined | Children[]} Children */

/**
 * Create an element.
 * @template {string} Name
 * @param {Name} name  Its tag, and its classes: "div.controls"
 * @param {...(Attributes | Children)} held  Attributes and listeners ("onclick") may come first,
 *   then what it holds
 * @returns {ElementOf<Name>}
 */
export function element(name, ...held) {
  const [tag, ...classes] = name.split(".");
  const made = document.createElement(tag);
  if (classes.length) made.className = classes.join(" ");
  const attributes = /** @type {Attributes} */ (isPlain(held[0]) ? held.shift() : {});
  for (const [key, value] of given(attributes)) {
    if (value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "value") /** @type {HTMLInputElement} */ (made).value = value;
    else if (key === "style") setStyle(made, value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  fill(made, /** @type {Children} */ (held));
  return /** @type {ElementOf<Name>} */ (made);
}

/** @param {HTMLElement | SVGElement} node @param {Record<string, string | number>} values */
export function setStyle({ style }, values) {
  for (const [name, value] of Object.entries(values)) style.setProperty(name, String(value));
}

/** Whether a value is an object in braces, which no child of an element is. @param {any} value */
const isPlain = (value) => value?.constructor === Object;

/** Whether an element is in the window. @param {Element} node */
export function sightOf(node) {
  const sight = { isIn: true };
  new IntersectionObserver((seen) => {
    sight.isIn = seen.at(-1).isIntersecting;
  }).observe(node);
  return sight;
}

/** Ask a presentation to show the panel of an element; false without one. @param {Element} node */
export function turnTo(node) {
  return !node.dispatchEvent(new CustomEvent("turnto", { bubbles: true, cancelable: true }));
}

/** Show what a click has changed: its panel of a presentation, or what a small screen has out of sight. */
export function showNearby(/** @type {Element} */ node) {
  if (turnTo(node) || !matchMedia("(max-width: 60rem)").matches) return;
  node.scrollIntoView({ block: "nearest" });
}

// Replace all that an element holds; the same texts stay, as new ones would be laid out again.
/** @param {Element} frame @param {...Children} children */
export function fill(frame, ...children) {
  const all = /** @type {any[]} */ (children).flat(Infinity);
  const left = all.filter((child) => ![null, undefined, false].includes(child));
  const { childNodes: before } = frame;
  const isSame = left.every((child, at) => {
    return !(child instanceof Node) && before[at] instanceof Text && before[at].data === `${child}`;
  });
  if (!isSame || left.length !== before.length) frame.replaceChildren(...left);
}

// A text that stands alone, with a capital letter; one that begins with no word, as with the name of
// a file or of a setting, keeps its letters.
export function capitalized(/** @type {string} */ text) {
  const { lang } = document.documentElement;
  return text.replace(/^[a-zçğıöşü](?=\p{L}*[\s,])/u, (letter) =>
    letter.toLocaleUpperCase(lang || "en"),
  );
}

/** @template {Element} Node @param {Node} node @param {Attributes} values @returns {Node} */
export function setAttributes(node, values) {
  for (const [name, value] of given(values)) node.setAttribute(name, value);
  return node;
}

// The names and values of an object that are not null or undefined.
/** @param {Attributes} values @returns {[string, any][]} */
export function given(values) {
  return Object.entries(values ?? {}).filter(([, value]) => value !== null && value !== undefined);
}

/**
 * @param {Children} text @param {(event: MouseEvent) => void} onclick
 * @param {string} [name]  Of one whose text is a sign
 */
export function button(text, onclick, name) {
  const named = { "aria-label": name, title: name };
  return element(name ? "button.sign" : "button", { type: "button", onclick, ...named }, text);
}

/** A heading of a row or a column. @param {"row" | "col"} scope @param {...Children} held */
export const headingCell = (scope, ...held) => element("th", { scope }, held);

/** A frame that scrolls, by the keyboard too. @param {string} label @param {...Children} held */
export function scrolling(label, ...held) {
  return element("div.scroll", { tabindex: 0, role: "region", "aria-label": label }, held);
}

// A sentence whose commands, between backticks, are code.
/** @param {string} sentence @returns {Children} */
export function withCode(sentence) {
  return sentence.split("`").map((part, at) => (at % 2 ? element("code", part) : part));
}

/**
 * A table in a frame that scrolls, and has a label. Its headings are cells, or texts of theirs.
 * @param {string} name  The element's name: "table", or with classes
 * @param {string} caption @param {Children[]} headings @param {Children[]} rows  Cells of each row
 */
export function table(name, caption, headings, rows, label = caption) {
  const body = rows.map((cells) => element("tr", cells));
  const all = /** @type {any[]} */ (headings).flat(Infinity);
  const head = all.map((each) => (each instanceof Node ? each : headingCell("col", each)));
  return scrolling(
    label,
    element(
      name,
      element("caption", element("span", caption)),
      element("thead", element("tr", head)),
      element("tbody", body),
    ),
  );
}

// The rows and columns that a key moves by, of which a page has so many rows; null where it moves
// nothing, or is for the browser.
/** @param {KeyboardEvent} event @returns {[number, number] | null} */
export function moveOf({ key, altKey, ctrlKey, metaKey }, page = Infinity) {
  if (altKey || ctrlKey || metaKey) return null;
  /** @type {Record<string, [number, number]>} */
  const moves = {
    ArrowUp: [-1, 0],
    ArrowDown: [1, 0],
    ArrowLeft: [0, -1],
    ArrowRight: [0, 1],
    PageUp: [-page, 0],
    PageDown: [page, 0],
    Home: [0, -Infinity],
    End: [0, Infinity],
  };
  return moves[key] ?? null;
}

// A token as sentences name it: without the spaces around it, and each of them by a sign if
// there is nothing else; an empty token by the same sign.
export function tokenName(/** @type {string} */ token) {
  return token.trim() || token.replaceAll("\n", "\\n").replace(/\s/g, "␣") || "␣";
}

// How much larger letters are than at first, which present.css says: what is drawn in pixels grows,
// too.
export function letterScale() {
  return Number(getComputedStyle(document.documentElement).getPropertyValue("--large")) || 1;
}

// Where an event is in an element, in pixels for letters of the usual size.
/** @param {Element} one @param {MouseEvent} event */
export function placeIn(one, { clientX, clientY }) {
  const { left, top } = one.getBoundingClientRect();
  const large = letterScale();
  return { x: (clientX - left) / large, y: (clientY - top) / large };
}

/** Whether an element is laid out, and not inside a closed fold. @param {Element} one */
export function hasBox(one) {
  return one.getClientRects().length > 0 && !one.closest("details:not([open]) > :not(summary)");
}

/** @typedef {[row: number, column: number]} Cell */

/**
 * Listeners of a matrix of cells, to which a pointer and arrow keys lead.
 * @param {object} given
 * @param {() => Cell} given.size  Rows and columns
 * @param {() => Cell} given.at  The cell that keys move from
 * @param {(row: number, column: number, isKept: boolean) => void} given.go  To a cell that is there; a
 *   click or a key keeps it
 * @param {number} [given.page]  Rows that PageUp and PageDown go by
 */
export function leadsToCells({ size, at, go, page }) {
  /** @param {number} row @param {number} column @param {boolean} isKept */
  const lead = (row, column, isKept) => {
    const [rows, columns] = size();
    go(within(row, rows), within(column, columns), isKept);
  };
  const pointed = (/** @type {MouseEvent} */ { currentTarget, clientX, clientY, type }) => {
    const frame = /** @type {Element} */ (currentTarget).getBoundingClientRect();
    const [rows, columns] = size();
    const row = Math.floor(((clientY - frame.top) / frame.height) * rows);
    lead(row, Math.floor(((clientX - frame.left) / frame.width) * columns), type === "click");
  };
  const onkeydown = (/** @type {KeyboardEvent} */ event) => {
    const move = moveOf(event, page);
    if (!move) return;
    event.preventDefault();
    const [row, column] = at();
    lead(row + move[0], column + move[1], true);
  };
  return { onclick: pointed, onpointermove: pointed, onkeydown };
}

let lastNumber = 0;

/** An id that no other element of the page has. @param {string} prefix */
export function unique(prefix) {
  lastNumber += 1;
  return `${prefix}-${lastNumber}`;
}
