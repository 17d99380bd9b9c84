// What boxes and letters of the page look like, in words of SVG.
import { element } from "./dom.js";
import { svgNode } from "./marks.js";

/** @typedef {{x: number, y: number, width: number, height: number}} Box */
/** @typedef {{color: string, opacity: number | null}} Color */

// Letters of this size are measured.
const MEASURED = 100;

const metrics = /** @type {Map<string, {ascent: number, descent: number}>} */ (new Map());

// How far letters reach above and below their line, of their size.
/** @param {CSSStyleDeclaration} style */
export function metricsOf({ fontFamily, fontWeight, fontStyle }) {
  const font = `${fontStyle} ${fontWeight} ${MEASURED}px ${fontFamily}`;
  if (!metrics.has(font)) {
    const pen = element("canvas").getContext("2d");
    pen.font = font;
    const { fontBoundingBoxAscent: ascent, fontBoundingBoxDescent: descent } = pen.measureText("");
    metrics.set(font, { ascent: ascent / MEASURED, descent: descent / MEASURED });
  }
  return metrics.get(font);
}

const colors = /** @type {Map<string, Color | null>} */ (new Map());

/** A color of CSS as every program reads it; null of one that is not seen. */
export function colorOf(/** @type {string} */ written) {
  if (!colors.has(written)) {
    const pen = element("canvas", { width: 1, height: 1 }).getContext("2d");
    pen.fillStyle = written;
    pen.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = pen.getImageData(0, 0, 1, 1).data;
    const hex = [red, green, blue].map((each) => each.toString(16).padStart(2, "0")).join("");
    const opacity = alpha === 255 ? null : Number((alpha / 255).toFixed(3));
    colors.set(written, alpha ? { color: `#${hex}`, opacity } : null);
  }
  return colors.get(written);
}

// The ground, the shadows and the edges of a box.
/** @param {Box} box @param {CSSStyleDeclaration} style */
export function boxNodes(box, style) {
  const { width, height } = box;
  const rx = Math.min(parseFloat(style.borderTopLeftRadius) || 0, width / 2, height / 2) || null;
  const ground = colorOf(style.backgroundColor);
  const gradient = style.backgroundSize === "auto" && gradientOf(style.backgroundImage, box);
  return [
    ...(ground ? [rectangle({ ...box, rx }, ground)] : []),
    ...(gradient ? [gradient, svgNode("rect", { ...box, rx, fill: `url(#${gradient.id})` })] : []),
    ...shadowNodes(style.boxShadow, box),
    ...borderNodes(box, style, rx),
    ...outlineNodes(box, style, rx),
  ];
}

/** @param {Record<string, number | null>} place @param {Color} color */
function rectangle(place, { color, opacity }) {
  return svgNode("rect", { ...place, fill: color, "fill-opacity": opacity });
}

/** @param {Box} box @param {CSSStyleDeclaration} style @param {number | null} rx */
function borderNodes(box, style, rx) {
  const { x, y, width, height } = box;
  const sides = ["top", "right", "bottom", "left"].map((side) => {
    const isThere = !/none|hidden/.test(style.getPropertyValue(`border-${side}-style`));
    const color = colorOf(style.getPropertyValue(`border-${side}-color`));
    const wide = isThere && color ? parseFloat(style.getPropertyValue(`border-${side}-width`)) : 0;
    return { wide, color };
  });
  const [{ wide, color }] = sides;
  const isFrame = sides.every((side) => side.wide === wide && side.color === color);
  if (isFrame) return wide ? frameNodes(box, -wide / 2, wide, color, rx) : [];
  const [top, right, bottom, left] = sides.map((side) => side.wide);
  const lines = [
    { x, y, width, height: top },
    { x: x + width - right, y, width: right, height },
    { x, y: y + height - bottom, width, height: bottom },
    { x, y, width: left, height },
  ];
  return lines.flatMap((line, at) => (sides[at].wide ? [rectangle(line, sides[at].color)] : []));
}

/** @param {Box} box @param {CSSStyleDeclaration} style @param {number | null} rx */
function outlineNodes(box, style, rx) {
  const wide = style.outlineStyle === "solid" ? parseFloat(style.outlineWidth) : 0;
  const color = colorOf(style.outlineColor);
  if (!wide || !color) return [];
  return frameNodes(box, parseFloat(style.outlineOffset) + wide / 2, wide, color, rx);
}

/**
 * @param {Box} box
 * @param {number} out  Pixels outside of the box
 * @param {number} line @param {Color} color @param {number | null} rx
 */
function frameNodes({ x, y, width, height }, out, line, { color, opacity }, rx) {
  const size = { width: width + 2 * out, height: height + 2 * out };
  if (size.width <= 0 || size.height <= 0) return [];
  const stroke = { stroke: color, "stroke-opacity": opacity, "stroke-width": line };
  return [svgNode("rect", { x: x - out, y: y - out, ...size, rx, fill: "none", ...stroke })];
}

// The shadows of a box that have no blur: a line next to it, or within.
/** @param {string} written @param {Box} box */
function shadowNodes(written, { x, y, width, height }) {
  const shadow = /(\w+\([^)]*\)) (-?[\d.]+)px (-?[\d.]+)px 0px 0px( inset)?/g;
  return [...written.matchAll(shadow)].map(([, color, across, down, inset]) => {
    /** @param {number} from @param {number} size @param {number} by */
    const along = (from, size, by) => {
      if (!by) return [from, size];
      // Inside, it is seen at the side that it moves away from.
      const isAtEnd = inset ? by < 0 : by > 0;
      const edge = isAtEnd ? from + size : from;
      return [isAtEnd === Boolean(inset) ? edge - Math.abs(by) : edge, Math.abs(by)];
    };
    const [left, wide] = along(x, width, Number(across));
    const [top, high] = along(y, height, Number(down));
    return rectangle({ x: left, y: top, width: wide, height: high }, colorOf(color));
  });
}

let lastGradient = 0;

// A gradient along a line; null of another ground.
/** @param {string} written  As the browser computes it @param {Box} box */
function gradientOf(written, { x, y, width, height }) {
  const [, repeating, inner] = /^(repeating-)?linear-gradient\((.*)\)$/.exec(written) ?? [];
  if (!inner || inner.includes("gradient(")) return null;
  const [first, ...others] = inner.split(/,(?![^(]*\))/).map((part) => part.trim());
  const angle = angleOf(first, width, height);
  const stops = angle === null ? [first, ...others] : others;
  const [across, down] = [Math.sin(angle ?? Math.PI), -Math.cos(angle ?? Math.PI)];
  const length = Math.abs(width * across) + Math.abs(height * down);
  const places = stops.map((stop, at) => {
    const [, color, place, unit] = /^(.*?)(?: (-?[\d.]+)(px|%))?$/.exec(stop);
    const even = (at / Math.max(1, stops.length - 1)) * length;
    return { color, place: place ? Number(place) * (unit === "%" ? length / 100 : 1) : even };
  });
  const whole = repeating ? places.at(-1).place : length;
  const [fromX, fromY] = [x + (width - length * across) / 2, y + (height - length * down) / 2];
  lastGradient += 1;
  return svgNode(
    "linearGradient",
    {
      id: `gradient-${lastGradient}`,
      gradientUnits: "userSpaceOnUse",
      spreadMethod: repeating ? "repeat" : null,
      x1: fromX,
      y1: fromY,
      x2: fromX + whole * across,
      y2: fromY + whole * down,
    },
    ...places.map(({ color, place }) => {
      const seen = colorOf(color);
      const stop = { "stop-color": seen?.color ?? "#000", "stop-opacity": seen ? seen.opacity : 0 };
      return svgNode("stop", { offset: place / whole, ...stop });
    }),
  );
}

// The direction of a gradient, clockwise from the top; null of a color.
/** @param {string} written @param {number} width @param {number} height */
function angleOf(written, width, height) {
  if (written.endsWith("deg")) return (parseFloat(written) * Math.PI) / 180;
  if (!written.startsWith("to ")) return null;
  /** @param {string} low @param {string} high */
  const sign = (low, high) => Number(written.includes(high)) - Number(written.includes(low));
  const [across, down] = [sign("left", "right"), sign("top", "bottom")];
  // To a corner, its middle goes through the two others.
  return down && across ? Math.atan2(across * height, -down * width) : Math.atan2(across, -down);
}
