// Parts of the page as one picture: each box, letter, line and canvas where it stands, as SVG.
import { paperColor } from "./colors.js";
import { hasBox, setAttributes } from "./dom.js";
import { boxNodes, colorOf, metricsOf } from "./figure-looks.js";
import { finer, markNode, svgNode, textNode } from "./marks.js";

/** @import { Box } from "./figure-looks.js" */
/** @typedef {{node: SVGElement, width: number, height: number}} Figure */

// Between two parts, and around all of them.
const GAP = 18;
const MARGIN = 20;
// What only a page has.
const CONTROLS = [
  "a, select, input, textarea, label, fieldset, summary, .controls, .player, .on-page",
  "button:not(.token, .layer, :has(canvas))",
].join();
// What a drawing has by the page's rules, which a picture does not hold.
const OF_PAGES = ["class", "style", "aria-hidden"];
// What lines and letters of SVG look like, where not as they do at first.
/** @type {Record<string, string>} */
const LOOKS = {
  fill: "rgb(0, 0, 0)",
  "fill-opacity": "1",
  stroke: "none",
  "stroke-width": "1px",
  "stroke-opacity": "1",
  "stroke-dasharray": "none",
  opacity: "1",
  "font-size": "",
  "font-weight": "400",
  "text-anchor": "start",
  "shape-rendering": "auto",
};

// Parts of the page below one another, or next to one another.
/** @param {Element[]} parts @returns {Figure} */
export function figureOf(parts, beside = false) {
  const figures = parts.map(photograph).filter(({ width }) => width > 0);
  const node = svgNode("g", {});
  let [x, y, width, height] = [0, 0, 0, 0];
  for (const figure of figures) {
    figure.node.setAttribute("transform", `translate(${x - figure.x} ${y - figure.y})`);
    node.append(figure.node);
    width = Math.max(width, x + figure.width);
    height = Math.max(height, y + figure.height);
    if (beside) x = width + GAP;
    else y = height + GAP;
  }
  return { node, width, height };
}

function photograph(/** @type {Element} */ part) {
  const restore = laidOut(part);
  const photo = new Photo();
  const node = svgNode("g", {}, ...photo.part(part));
  restore();
  const [left, top, right, bottom] = photo.edges;
  return { node, x: left, y: top, width: right - left, height: bottom - top };
}

// Lay a part out without controls, and with all that is scrolled out of sight; gives what undoes it.
function laidOut(/** @type {Element} */ part) {
  const all = /** @type {HTMLElement[]} */ ([part, ...part.querySelectorAll("*")]);
  const scrolled = all.filter((each) => /auto|scroll/.test(getComputedStyle(each).overflow));
  const controls = all.filter((each) => each.matches(CONTROLS));
  const before = [...controls, ...scrolled].map((each) => {
    const { style, scrollLeft, scrollTop } = each;
    return { each, css: style.cssText, scrollLeft, scrollTop };
  });
  for (const { style } of scrolled) style.cssText += ";overflow:visible;max-height:none";
  for (const { style } of controls) style.cssText += ";display:none";
  part.classList.add("pictured");
  return () => {
    part.classList.remove("pictured");
    for (const { each, css, ...places } of before) {
      each.style.cssText = css;
      Object.assign(each, places);
    }
  };
}

/** What is seen of a part of the page, in its pixels. */
class Photo {
  constructor() {
    // What has been drawn reaches from here to there: left, top, right, bottom.
    this.edges = [Infinity, Infinity, -Infinity, -Infinity];
  }

  reach(/** @type {Box} */ { x, y, width, height }) {
    const [left, top, right, bottom] = this.edges;
    this.edges = [
      Math.min(left, x),
      Math.min(top, y),
      Math.max(right, x + width),
      Math.max(bottom, y + height),
    ];
  }

  /** @param {Element} part @returns {SVGElement[]} */
  part(part) {
    const style = getComputedStyle(part);
    if (!hasBox(part) || style.clipPath !== "none" || style.opacity === "0") return [];
    if (isTurned(style)) return [this.turned(/** @type {HTMLElement} */ (part), style)];
    const { x, y, width, height } = part.getBoundingClientRect();
    const box = { x, y, width, height };
    const made = [
      ...this.box(box, style),
      ...this.pseudo(part, box, "::before"),
      ...this.held(part, box, style),
      ...this.pseudo(part, box, "::after"),
    ];
    return style.opacity === "1" || !made.length
      ? made
      : [svgNode("g", { opacity: style.opacity }, ...made)];
  }

  /**
   * @param {Element} part @param {Box} box @param {CSSStyleDeclaration} style
   * @returns {SVGElement[]}
   */
  held(part, box, style) {
    if (part instanceof HTMLCanvasElement) return [this.canvas(part, box, style)];
    if (part instanceof SVGSVGElement) return [this.drawing(part, box)];
    const isClipped = ["hidden", "clip"].includes(style.overflowX) && isTooLarge(part);
    const { edges } = this;
    const made = [...part.childNodes].flatMap((each) => {
      if (each instanceof Text) return this.letters(each, style);
      return each instanceof Element ? this.part(each) : [];
    });
    if (!isClipped || !made.length) return made;
    // What is cut off is not reached.
    this.edges = edges;
    this.reach(box);
    const { x, y, width, height } = box;
    const viewBox = `${x} ${y} ${width} ${height}`;
    return [svgNode("svg", { x, y, width, height, viewBox }, ...made)];
  }

  // A part that is turned, as if it were not, in a group that is.
  /** @param {HTMLElement} part @param {CSSStyleDeclaration} style */
  turned(part, style) {
    const [left, top] = style.transformOrigin.split(" ").map(parseFloat);
    const turn = new DOMMatrix(style.transform).rotate(parseFloat(style.rotate) || 0);
    const before = part.style.cssText;
    const seen = part.getBoundingClientRect();
    part.style.cssText += ";transform:none;rotate:none;transition:none";
    const inner = new Photo();
    const made = inner.part(part);
    const { x, y } = part.getBoundingClientRect();
    part.style.cssText = before;
    if (made.length) this.reach(seen);
    const [across, down] = [x + left, y + top];
    const { a, b, c, d, e, f } = turn;
    const transform = `translate(${across} ${down}) matrix(${a} ${b} ${c} ${d} ${e} ${f}) translate(${-across} ${-down})`;
    return svgNode("g", { transform }, ...made);
  }

  /** @param {Box} box @param {CSSStyleDeclaration} style */
  box(box, style) {
    const made = style.visibility === "hidden" ? [] : boxNodes(box, style);
    if (made.length) this.reach(box);
    return made;
  }

  // What a style sheet puts into a box, at a place of its own.
  /** @param {Element} part @param {Box} box @param {string} which */
  pseudo(part, box, which) {
    const style = getComputedStyle(part, which);
    if (/^(none|normal)$/.test(style.content) || style.position !== "absolute") return [];
    const [left, top] = [part.clientLeft, part.clientTop];
    const place = {
      x: box.x + left + parseFloat(style.left),
      y: box.y + top + parseFloat(style.top),
      width: parseFloat(style.width),
      height: parseFloat(style.height),
    };
    const made = this.box(place, style);
    const text = style.content.replace(/^"|"$/g, "");
    if (text) made.push(this.line(text, middleOf(place, style), style, true));
    const { opacity } = style;
    return opacity === "1" ? made : [svgNode("g", { opacity }, ...made)];
  }

  /** @param {HTMLCanvasElement} canvas @param {Box} box @param {CSSStyleDeclaration} style */
  canvas(canvas, box, style) {
    this.reach(box);
    const own = finer.get(canvas);
    const { x, y, width, height } = box;
    const frame = { x, y, width, height, viewBox: `0 0 ${width} ${height}` };
    if (own) return svgNode("svg", frame, ...own().map(markNode));
    const smooth = style.imageRendering !== "pixelated";
    return markNode({ x, y, width, height, image: canvas, smooth });
  }

  // A drawing of the page, whose looks are written into it.
  /** @param {SVGSVGElement} svg @param {Box} box */
  drawing(svg, { x, y, width, height }) {
    const copy = /** @type {SVGSVGElement} */ (svg.cloneNode(true));
    const copies = copy.querySelectorAll("*");
    svg.querySelectorAll("*").forEach((each, at) => {
      const style = getComputedStyle(each);
      for (const name of OF_PAGES) copies[at].removeAttribute(name);
      if (style.visibility === "hidden") copies[at].remove();
      else if (each instanceof SVGGeometryElement || each instanceof SVGTextElement) {
        writeLooks(copies[at], style);
      }
    });
    const { x: left, y: top, width: wide, height: high } = svg.getBBox();
    if (wide || high) this.reach({ x: x + left, y: y + top, width: wide, height: high });
    for (const name of OF_PAGES) copy.removeAttribute(name);
    return setAttributes(copy, { x, y, width, height, overflow: "visible" });
  }

  /** The lines that a text is broken into. @param {Text} text @param {CSSStyleDeclaration} style */
  letters(text, style) {
    const isBlank = style.whiteSpaceCollapse === "collapse" && !text.data.trim();
    if (isBlank || style.visibility === "hidden" || style.fontSize === "0px") return [];
    const isUpright = style.writingMode === "horizontal-tb";
    const range = document.createRange();
    const lines = /** @type {{text: string, box: DOMRect}[]} */ ([]);
    let at = 0;
    for (const letter of text.data) {
      range.setStart(text, at);
      at += letter.length;
      range.setEnd(text, at);
      const box = range.getBoundingClientRect();
      // Spaces that are not shown have no width, as letters that stand on others.
      if (!/\S/.test(letter) && !box.width) continue;
      const line = lines.at(-1);
      const isOn = line && (!box.width || (isUpright ? box.y < line.box.bottom - 2 : true));
      const shown = letter.replace(/\s/, " ");
      if (!isOn) lines.push({ text: shown, box });
      else Object.assign(line, { text: line.text + shown, box: around(line.box, box) });
    }
    return lines.map((line) => this.line(line.text, line.box, style));
  }

  // Letters in a box, or in the middle of one.
  /** @param {string} text @param {Box} box @param {CSSStyleDeclaration} style */
  line(text, box, style, isMiddle = false) {
    this.reach(box);
    const { x, y, width, height } = box;
    const { ascent, descent } = metricsOf(style);
    const [rise, fall] = [ascent, descent].map((each) => each / (ascent + descent));
    const isUpright = style.writingMode === "horizontal-tb";
    const at = isUpright ? [x, y + height * rise] : [x + width * fall, y];
    const place = {
      x: at[0] + (isMiddle ? width / 2 : 0),
      y: at[1],
      "text-anchor": isMiddle ? "middle" : null,
      transform: isUpright ? null : `rotate(90 ${at.join(" ")})`,
    };
    return textNode("text", { ...place, ...lettersOf(style) }, text);
  }
}

function lettersOf(/** @type {CSSStyleDeclaration} */ style) {
  const seen = colorOf(style.color);
  const { fontFamily, fontSize, fontStyle, fontVariantNumeric, fontWeight } = style;
  /** @param {string} value @param {string} usual */
  const unless = (value, usual) => (value === usual ? null : value);
  return {
    fill: seen?.color ?? "none",
    "fill-opacity": seen?.opacity,
    "font-family": unless(fontFamily, paperColor("plain")),
    "font-size": parseFloat(fontSize),
    "font-weight": unless(fontWeight, "400"),
    "font-style": unless(fontStyle, "normal"),
    "letter-spacing": unless(style.letterSpacing, "normal"),
    "text-decoration": unless(style.textDecorationLine, "none"),
    class: fontVariantNumeric.includes("tabular") ? "tabular" : null,
  };
}

function isTurned(/** @type {CSSStyleDeclaration} */ { transform, rotate }) {
  return transform !== "none" || rotate !== "none";
}

/** @param {Element} part */
function isTooLarge({ scrollWidth, clientWidth, scrollHeight, clientHeight }) {
  return scrollWidth > clientWidth || scrollHeight > clientHeight;
}

/** @param {DOMRect} one @param {DOMRect} other */
function around(one, other) {
  const [x, y] = [Math.min(one.x, other.x), Math.min(one.y, other.y)];
  const right = Math.max(one.right, other.right);
  return new DOMRect(x, y, right - x, Math.max(one.bottom, other.bottom) - y);
}

/** @param {Box} place @param {CSSStyleDeclaration} style */
function middleOf({ x, y, width, height }, style) {
  const { ascent, descent } = metricsOf(style);
  const size = (ascent + descent) * parseFloat(style.fontSize);
  return { x, width, y: y + (height - size) / 2, height: size };
}

/** @param {Element} node @param {CSSStyleDeclaration} style */
function writeLooks(node, style) {
  for (const [name, usual] of Object.entries(LOOKS)) {
    const value = style.getPropertyValue(name);
    const isColor = name === "fill" || name === "stroke";
    const written = isColor && value !== "none" ? (colorOf(value)?.color ?? "none") : value;
    if (value === usual) node.removeAttribute(name);
    else node.setAttribute(name, written);
  }
}

/** A figure on paper of its own. @param {Figure} figure @param {number} [margin] */
export function onPaper({ node, width, height }, margin = MARGIN) {
  const size = { width: Math.ceil(width + 2 * margin), height: Math.ceil(height + 2 * margin) };
  const ground = svgNode("rect", { ...size, fill: paperColor("paper") });
  const viewBox = `0 0 ${size.width} ${size.height}`;
  const look = { role: "img", "font-family": paperColor("plain") };
  const whole = svgNode("g", { transform: `translate(${margin} ${margin})` }, node);
  const title = textNode("title", {}, document.title);
  return svgNode("svg", { ...size, viewBox, ...look }, title, ground, whole);
}
