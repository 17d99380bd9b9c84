// Marks of charts and maps, as nodes of SVG.
import { inkOf, paperColor } from "./colors.js";
import { element, setAttributes } from "./dom.js";

/**
 * A part of a drawing. One with a `text` is a text; with a `d`, a path; with an `image`, a canvas;
 * any other is a rectangle. A color may have its name on the page (paperColor).
 * @typedef {object} Mark
 * @property {number} [x] @property {number} [y] @property {string | number} [text]
 * @property {number} [size]  Of letters, in pixels
 * @property {string} [anchor]  Of a text: "start", "middle" or "end"
 * @property {number} [rotate]  Of a text, in degrees about its place
 * @property {number | string} [weight]  Of letters
 * @property {string} [d] @property {string} [stroke] @property {string} [dash]  Of a line
 * @property {number | string} [width]  Of a line, or of a rectangle or an image
 * @property {number} [height] @property {HTMLCanvasElement} [image]
 * @property {boolean} [smooth]  Of an image whose pixels are no cells
 * @property {string} [fill] @property {number | string} [opacity]
 */

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

// How a canvas is drawn in a picture that is saved, if not as it is on the screen.
export const finer = /** @type {WeakMap<Element, () => Mark[]>} */ (new WeakMap());
// Pixels of a canvas by one of the page, in a picture that is saved.
export const FINE = 3;

// Have a canvas painted finer in a picture that is saved, by its pixels for one of the page.
/** @param {HTMLCanvasElement} canvas @param {(fine: number) => void} paint */
export function paintsFiner(canvas, paint) {
  finer.set(canvas, () => {
    paint(FINE);
    const image = element("canvas", { width: canvas.width, height: canvas.height });
    image.getContext("2d").drawImage(canvas, 0, 0);
    paint(devicePixelRatio);
    const { clientWidth: width, clientHeight: height } = canvas;
    return [{ x: 0, y: 0, width, height, image, smooth: true }];
  });
}

/** The width of letters, about. @param {string} text @param {number} [size]  In pixels */
export function textWidth(text, size = 12) {
  const pen = element("canvas").getContext("2d");
  pen.font = `${size}px ${paperColor("plain")}`;
  return pen.measureText(text).width;
}

export function markNode(/** @type {Mark} */ mark) {
  if (mark.text !== undefined) return textMark(mark);
  if (mark.d !== undefined) return pathMark(mark);
  if (!mark.image) return svgNode("rect", { ...mark, fill: inkOf(mark.fill) });
  const { image, smooth, ...place } = mark;
  const rendering = smooth ? null : "pixelated";
  const look = { "image-rendering": rendering, preserveAspectRatio: "none" };
  return svgNode("image", { ...place, ...look, href: image.toDataURL() });
}

/** @param {Mark} mark */
function textMark({ text, size = 13, fill = "ink", anchor = "start", rotate, weight, ...rest }) {
  const look = {
    "font-size": size,
    "text-anchor": anchor,
    "font-weight": weight,
    fill: inkOf(fill),
    transform: rotate && `rotate(${rotate} ${rest.x} ${rest.y})`,
  };
  return textNode("text", { ...rest, ...look }, text);
}

/** @param {Mark} mark */
function pathMark({ fill = "none", stroke = "accent", width = 1, dash, ...rest }) {
  const look = { fill: inkOf(fill), stroke: inkOf(stroke), "stroke-width": width };
  return svgNode("path", { ...rest, ...look, "stroke-dasharray": dash });
}

/** @param {string} name @param {Record<string, any>} attributes @param {...Node} held */
export function svgNode(name, attributes, ...held) {
  const made = /** @type {SVGElement} */ (document.createElementNS(SVG_NAMESPACE, name));
  made.append(...held);
  return setAttributes(made, attributes);
}

// A node that holds a text, whose spaces are kept.
/** @param {string} name @param {Record<string, any>} attributes @param {string | number} text */
export function textNode(name, attributes, text) {
  const spaces = { "xml:space": name === "text" ? "preserve" : null };
  return svgNode(name, { ...attributes, ...spaces }, document.createTextNode(String(text)));
}
