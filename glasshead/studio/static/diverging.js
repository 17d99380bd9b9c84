// Numbers on both sides of 0, such as scores and differences of weights: what is above and what is
// below have two colors, told apart whatever one's color vision, and 0 has that of the paper.
import { categories, paperColor } from "./colors.js";
import { decimal, range, term, within } from "./numbers.js";

// Colors on each side of 0.
const STEPS = 48;
// A paler color has black letters on it.
const PALE = 0.18;

/** @typedef {{fill: string, ink: string}} Tone  A color, and that of letters on it */

/** @type {Record<string, Tone[]>} */
const known = {};

/** All colors, from the lowest on; the middle one is that of 0. */
export function tones() {
  const [more, less] = categories();
  const none = paperColor("paper");
  known[none] ??= range(2 * STEPS + 1).map((at) => {
    const share = at / STEPS - 1;
    const fill = mixed(none, share < 0 ? less : more, Math.abs(share));
    return { fill, ink: luminance(channels(fill)) > PALE ? "#000000" : "#ffffff" };
  });
  return known[none];
}

/**
 * The color of a number.
 * @param {number} share  Of the largest, from −1 to 1
 */
export function toneOf(share) {
  return tones()[within(Math.round((share + 1) * STEPS), 2 * STEPS + 1)];
}

/** The colors without those of letters. */
export function divergingColors() {
  return tones().map(({ fill }) => fill);
}

/** All colors side by side, as CSS draws them. */
export function divergingGradient() {
  return `linear-gradient(to right, ${divergingColors().join(", ")})`;
}

/**
 * @param {string} from  As "#rrggbb" or "#rgb"
 * @param {string} to
 * @param {number} share
 */
function mixed(from, to, share) {
  const [one, other] = [from, to].map(channels);
  const parts = one.map((each, at) => Math.round(each + (other[at] - each) * share));
  return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

/** @param {string} color */
function channels(color) {
  const digits = color.length === 4 ? color.replace(/[^#]/g, "$&$&") : color;
  return [1, 3, 5].map((at) => parseInt(digits.slice(at, at + 2), 16));
}

/** @param {number[]} bytes */
function luminance(bytes) {
  const [red, green, blue] = bytes.map((byte) => {
    const share = byte / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/**
 * Draw count × count differences; what is hidden in both (−0) is clear.
 * @param {HTMLCanvasElement} canvas
 * @param {Float32Array} values
 * @param {number} count
 * @param {number} [most]  Pixels along a side; of more cells, a pixel shows the largest of several
 * @returns {number}  The largest size of a difference
 */
export function drawDifference(canvas, values, count, most = Infinity) {
  const size = Math.min(count, most);
  const largest = new Float32Array(size * size).fill(-0);
  let top = 0;
  for (let at = 0; at < values.length; at += 1) {
    const row = Math.floor((Math.floor(at / count) * size) / count);
    const pixel = row * size + Math.floor(((at % count) * size) / count);
    const isLarger = Math.abs(values[at]) > Math.abs(largest[pixel]);
    if (isLarger || Object.is(largest[pixel], -0)) largest[pixel] = values[at];
    top = Math.max(top, Math.abs(values[at]));
  }
  canvas.width = size;
  canvas.height = size;
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(size, size);
  const colors = divergingColors().map(channels);
  largest.forEach((value, at) => {
    if (Object.is(value, -0)) return;
    const place = top ? Math.round((value / top) * STEPS) : 0;
    image.data.set([...colors[within(place + STEPS, colors.length)], 255], 4 * at);
  });
  pen.putImageData(image, 0, 0);
  return top;
}

/**
 * A difference with its sign; "–" where there is none.
 * @param {number | null | undefined} value
 * @param {number} [digits]  Decimals; not given: as in a sum
 */
export function signed(value, digits) {
  if (value === null || value === undefined) return "–";
  const written = digits === undefined ? term(value) : decimal(value, digits);
  // Neither does a zero have a sign, nor what is rounded to one.
  return value > 0 && /[1-9∞]/.test(written) ? `+${written}` : written;
}
