// The picture of a view, as SVG and as PNG.
import { paperColor, ramp } from "./colors.js";
import { element, setAttributes } from "./dom.js";

/**
 * A part of a picture. One with `marks` is a figure within it, at `x` and `y`; with a `text`, a text;
 * with a `d`, a path; with an `href`, a data: URL, an image; any other is a rectangle. A color may have its name on the page (paperColor).
 * @typedef {object} Mark
 * @property {number} [x]
 * @property {number} [y]
 * @property {string | number} [text]
 * @property {number} [size]  Of letters, in pixels
 * @property {string} [anchor]  Of a text: "start", "middle" or "end"
 * @property {number} [rotate]  Of a text, in degrees about its place
 * @property {number | string} [weight]  Of letters
 * @property {string} [d]
 * @property {string} [stroke]
 * @property {string} [dash]  Of a line
 * @property {number | string} [width]  Of a line, or of a rectangle or an image
 * @property {number} [height]
 * @property {string} [href]
 * @property {boolean} [smooth]  Of an image whose pixels are no cells
 * @property {string} [fill]
 * @property {number | string} [opacity]
 * @property {string} [transform]
 * @property {Mark[]} [marks]
 * @property {number} [scale]  Of the figure within
 * @property {boolean} [clips]  Whether what is beyond the figure within is cut off
 */

/**
 * A picture; `card` is what of it a card shows, and `sentence` what the card says of it.
 * @typedef {{width: number, height: number, marks: Mark[], title?: string, card?: Figure,
 *   sentence?: string}} Figure
 */

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";
// A browser's canvas is no wider or higher, and has no more pixels.
const LONGEST_SIDE = 16384;
const MOST_PIXELS = 2 ** 26;
// Milliseconds after which a browser has begun to save what it was given.
const SAVED_AFTER = 1000;

/**
 * A figure as an SVG element: whole pixels, its own paper, and nothing from elsewhere.
 * @param {Figure} figure
 */
export function svgElement(figure) {
  const { width, height } = wholePixels(figure);
  const viewBox = `0 0 ${width} ${height}`;
  const look = { role: "img", "font-family": paperColor("plain") };
  const root = svgNode("svg", { width, height, viewBox, ...look });
  if (figure.title) root.append(textNode("title", {}, figure.title));
  root.append(...[{ width, height, fill: "paper" }, ...figure.marks].map(markNode));
  return root;
}

/** @param {Figure} figure */
export async function asSvg(figure) {
  const root = svgElement(figure);
  const fonts = await ownFonts();
  if (fonts) root.append(textNode("style", {}, fonts));
  const written = new XMLSerializer().serializeToString(root);
  return new Blob([written], { type: "image/svg+xml" });
}

/** The typefaces of the page as rules of CSS that hold them; "" where the page has none. */
async function ownFonts() {
  const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]);
  const faces = rules.filter((rule) => rule instanceof CSSFontFaceRule);
  const held = faces.map(async ({ cssText, parentStyleSheet }) => {
    const [, path] = /url\("([^"]+)"\)/.exec(cssText);
    const content = await (await fetch(new URL(path, parentStyleSheet.href))).bytes();
    return cssText.replace(path, `data:font/woff2;base64,${btoa(String.fromCharCode(...content))}`);
  });
  // A studio that has ended gives no letters.
  return (await Promise.all(held).catch(() => [""])).join("");
}

/**
 * A figure as a PNG; a very large one is as fine as a canvas can be.
 * @param {Figure} figure
 * @param {number} [wanted]  Pixels of the PNG by one of the figure
 */
export async function asPng(figure, wanted = 2) {
  const { width, height } = wholePixels(figure);
  const finest = Math.min(LONGEST_SIDE / width, LONGEST_SIDE / height);
  const fine = Math.min(wanted, finest, Math.sqrt(MOST_PIXELS / (width * height)));
  const url = URL.createObjectURL(await asSvg(figure));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const size = { width: Math.floor(width * fine), height: Math.floor(height * fine) };
    const canvas = element("canvas", size);
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await pngOf(canvas);
  } finally {
    URL.revokeObjectURL(url);
  }
}

/**
 * @param {HTMLCanvasElement} canvas
 * @returns {Promise<Blob>}
 */
function pngOf(canvas) {
  return new Promise((resolve, reject) => {
    canvas.toBlob((content) => {
      if (content) resolve(content);
      else reject(new Error("no PNG"));
    }, "image/png");
  });
}

/**
 * Let the browser save a file.
 * @param {Blob} content
 * @param {string} download  Its name
 */
export function save(content, download) {
  const href = URL.createObjectURL(content);
  element("a", { href, download }).click();
  setTimeout(() => URL.revokeObjectURL(href), SAVED_AFTER);
}

/**
 * A bar of colors with a label before it, its colon included, and the numbers of its ends: 0, and the last color's.
 * @param {number} x
 * @param {number} y  Of the letters
 * @param {string} label
 * @param {string} end
 * @param {string} [begin]
 * @param {string[]} [colors]
 * @returns {{marks: Mark[], width: number}}
 */
export function colorBar(x, y, label, end, begin = "0", colors = ramp()) {
  const step = 1.5;
  const text = `${label}${begin}`;
  const from = x + textWidth(text) + 8;
  const to = from + colors.length * step;
  const bar = { y: y - 9, width: step + 0.2, height: 10 };
  const cells = colors.map((fill, at) => ({ ...bar, x: from + at * step, fill }));
  const note = { y, size: 12, fill: "quiet" };
  const marks = [{ ...note, x, text }, ...cells, { ...note, x: to + 8, text: end }];
  return { marks, width: to + 8 + textWidth(end) - x };
}

/**
 * The width of letters of a picture, about.
 * @param {string} text
 * @param {number} [size]  In pixels
 */
export function textWidth(text, size = 12) {
  const pen = element("canvas").getContext("2d");
  pen.font = `${size}px ${paperColor("plain")}`;
  return pen.measureText(text).width;
}

/**
 * Figures below one another, from the left.
 * @param {Figure[]} figures
 * @param {number} gap
 * @returns {Figure}
 */
export function stacked(figures, gap = 16) {
  const shown = figures.filter(({ marks }) => marks.length);
  let y = 0;
  const marks = shown.map((figure) => {
    const mark = { x: 0, y, marks: figure.marks };
    y += figure.height + gap;
    return mark;
  });
  const width = Math.max(0, ...shown.map((figure) => figure.width));
  return { width, height: Math.max(0, y - gap), marks };
}

/**
 * Figures beside one another, from the top.
 * @param {Figure[]} figures
 * @returns {Figure}
 */
export function sideBySide(figures) {
  let x = 0;
  const marks = figures.map((figure) => {
    const mark = { x, y: 0, marks: figure.marks };
    x += figure.width;
    return mark;
  });
  return { width: x, height: Math.max(0, ...figures.map(({ height }) => height)), marks };
}

/**
 * What colors stand for, one below the other.
 * @param {{name: string, color: string}[]} keys
 * @returns {Figure}
 */
export function swatches(keys) {
  const marks = keys.flatMap(({ name, color }, at) => [
    { x: 20, y: at * 18 + 4, width: 12, height: 10, fill: color },
    { x: 40, y: at * 18 + 13, text: name, size: 12 },
  ]);
  const widths = keys.map(({ name }) => 60 + textWidth(name));
  return { width: Math.max(0, ...widths), height: keys.length * 18, marks };
}

/** @param {Figure} figure */
function wholePixels({ width, height }) {
  return { width: Math.ceil(width), height: Math.ceil(height) };
}

/** @param {string} name */
function colorOf(name) {
  return paperColor(name) || name;
}

/**
 * A mark as a node of an SVG element.
 * @param {Mark} mark
 */
export function markNode(mark) {
  if (mark.marks) {
    const { x, y, width, height, scale = 1 } = mark;
    const group = mark.clips
      ? svgNode("svg", { x, y, width, height })
      : svgNode("g", { transform: `translate(${x} ${y}) scale(${scale})` });
    group.append(...mark.marks.map(markNode));
    return group;
  }
  if (mark.text !== undefined) return textMark(mark);
  if (mark.d !== undefined) return pathMark(mark);
  if (!mark.href) return svgNode("rect", { ...mark, fill: colorOf(mark.fill) });
  return svgNode("image", {
    ...mark,
    "image-rendering": mark.smooth ? null : "pixelated",
    smooth: null,
    preserveAspectRatio: "none",
  });
}

/** @param {Mark} mark */
function textMark({ text, size = 13, fill = "ink", anchor = "start", rotate, weight, ...rest }) {
  const look = {
    "font-size": size,
    "text-anchor": anchor,
    "font-weight": weight,
    fill: colorOf(fill),
    transform: rotate && `rotate(${rotate} ${rest.x} ${rest.y})`,
    "xml:space": "preserve",
  };
  return textNode("text", { ...rest, ...look }, text);
}

/** @param {Mark} mark */
function pathMark({ fill = "none", stroke = "accent", width = 1, dash, ...rest }) {
  const look = { fill: colorOf(fill), stroke: colorOf(stroke), "stroke-width": width };
  const dashes = { "stroke-dasharray": dash };
  return svgNode("path", { ...rest, ...look, ...dashes });
}

/**
 * A node that holds a text; what XML cannot hold, such as NUL, is shown as what cannot be shown.
 * @param {string} name
 * @param {Record<string, any>} attributes
 * @param {string | number} text
 */
function textNode(name, attributes, text) {
  const made = svgNode(name, attributes);
  const whole = String(text).toWellFormed();
  made.textContent = whole.replace(/[^\t\n\r\u0020-\ufffd\u{10000}-\u{10ffff}]/gu, "\ufffd");
  return made;
}

/**
 * @param {string} name
 * @param {Record<string, any>} attributes
 */
export function svgNode(name, attributes) {
  const made = /** @type {SVGElement} */ (document.createElementNS(SVG_NAMESPACE, name));
  return setAttributes(made, attributes);
}
