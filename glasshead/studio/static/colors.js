// Colors of weights: the library's own map, on light and on dark paper, linear or logarithmic.
import { within } from "./numbers.js";

// The colors of a map, from 0 to the largest weight, as "#rrggbb".
/** @typedef {{light: string[], dark: string[]}} Palettes */

// The place of a weight in the map, counted from 0.
/** @typedef {(value: number) => number} ColorScale */

let palettes = /** @type {Palettes} */ ({ light: [], dark: [] });
const darkPaper = matchMedia("(prefers-color-scheme: dark)");

/** Use a map of colors: `ramp` is its class in CSS, and `w0`, `w1`, … those of its colors. */
export function usePalettes(/** @type {Palettes} */ given) {
  palettes = given;
  const { light, dark } = given;
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`${rulesOf(light)}@media (prefers-color-scheme: dark){${rulesOf(dark)}}`);
  // Others may have been added since.
  document.adoptedStyleSheets = [sheet, ...document.adoptedStyleSheets.slice(1)];
}

function rulesOf(/** @type {string[]} */ colors) {
  const levels = colors.map((color, at) => {
    return `.glasshead .w${at}{background:${color};color:${lettersOn(color)}}`;
  });
  return `.glasshead .ramp{background:linear-gradient(to right,${colors})}${levels.join("")}`;
}

export function onPaper(/** @type {() => void} */ changed) {
  darkPaper.addEventListener("change", changed);
}

// Colors that everyone can tell apart, with any color vision, those of Okabe and Ito: dark enough for
// lines on light paper, and light enough on dark.
const CATEGORIES = {
  light: ["#0072b2", "#d55e00", "#009e73", "#b0528a", "#8a6500", "#3a3f46"],
  dark: ["#56b4e9", "#e69f00", "#1fc998", "#e08fbf", "#f0e442", "#d7dbe0"],
};
// A paler color has black letters on it.
const PALE = 0.18;
export const MOST_COLORS = CATEGORIES.light.length;

/** Colors of things that stand side by side, such as heads. */
export const categories = () => (darkPaper.matches ? CATEGORIES.dark : CATEGORIES.light);

export const ramp = () => (darkPaper.matches ? palettes.dark : palettes.light);

// What the page has said of each name, on its paper and in its language.
const known = /** @type {Map<string, string>} */ (new Map());
let language = "";
darkPaper.addEventListener("change", () => known.clear());

/** A color by its name in CSS: paper, sunk, ink, quiet, rule, accent, alarm; "" of another name. */
export function paperColor(/** @type {string} */ name) {
  const { lang } = document.documentElement;
  if (lang !== language) known.clear();
  language = lang;
  // To ask the page while it changes has all of it styled, in places laid out, for each color.
  const asked = known.get(name);
  if (asked !== undefined) return asked;
  known.set(name, getComputedStyle(document.body).getPropertyValue(`--${name}`).trim());
  return known.get(name);
}

/** A color by its name in CSS, or else the name, for what does not know CSS. @param {string} name */
export const inkOf = (name) => paperColor(name) || name;

// A color of paper that another one covers in part, as "#rrggbb": without transparency, what is
// drawn twice is not darker.
/** @param {string} name @param {number} part */
export const faint = (name, part) => mixed(paperColor("paper"), paperColor(name), part);

// A color between two, as "#rrggbb".
/** @param {string} from  As "#rrggbb" or "#rgb" @param {string} to @param {number} share */
export function mixed(from, to, share) {
  const [one, other] = [from, to].map(channels);
  const parts = one.map((each, at) => Math.round(each + (other[at] - each) * share));
  return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

function channels(/** @type {string} */ color) {
  const digits = color.length === 4 ? color.replace(/[^#]/g, "$&$&") : color;
  return [1, 3, 5].map((at) => parseInt(digits.slice(at, at + 2), 16));
}

/** The color of letters on a color: black on a pale one, by its luminance. @param {string} color */
export function lettersOn(color) {
  const [red, green, blue] = channels(color).map((byte) => {
    const share = byte / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > PALE ? "#000000" : "#ffffff";
}

// A scale from a weight to its place in the map. The weight `top` has the last color; in a
// logarithmic scale, its share `floor` has the first one.
/** @param {{top?: number, logarithmic?: boolean, floor?: number}} [ends] @returns {ColorScale} */
export function scale({ top = 1, logarithmic = false, floor = 1e-4 } = {}) {
  const last = ramp().length - 1;
  const low = Math.log(floor * top);
  const span = Math.log(top) - low;
  /** @param {number} value */
  const share = (value) => (logarithmic ? (Math.log(value) - low) / span : value / top);
  return (value) => {
    return top > 0 && value > 0 ? within(Math.floor(share(value) * last + 0.5), last + 1) : 0;
  };
}

// Color each pixel of a canvas by its place in the colors; null leaves it clear.
/** @param {HTMLCanvasElement} canvas @param {(pixel: number) => number | null} placeOf */
export function paint(canvas, placeOf, colors = ramp()) {
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  // Each color as the number as which its four bytes in a picture are read.
  const bytes = colors.flatMap((color) => [...channels(color), 255]);
  const packed = new Uint32Array(new Uint8Array(bytes).buffer);
  for (let at = 0; at < pixels.length; at += 1) {
    const place = placeOf(at);
    if (place !== null) pixels[at] = packed[place];
  }
  pen.putImageData(image, 0, 0);
  return pen;
}
