// Colours of numbers on both sides of 0: one end for what is above, one for what is below, told apart
// whatever one's colour vision.
import { ramp } from "../colors.js";
import { range, within } from "../numbers.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
// Below 0; above it are the colours of weights.
const ENDS = {
  light: ["#a4460a", "#f8ece2"],
  dark: ["#ffb169", "#2c2722"],
};
// Colours on each side of 0.
const STEPS = 24;

/** @typedef {{fill: string, ink: string}} Tone  A colour, and that of letters on it */

/** @type {Record<string, Tone[]>} */
const known = {};

/**
 * The colour of a number.
 * @param {number} share  Of the largest, from −1 to 1
 */
export function toneOf(share) {
  return tones()[within(Math.round((share + 1) * STEPS), 2 * STEPS + 1)];
}

/** All of them, from the lowest on. */
export function tones() {
  const paper = dark.matches ? "dark" : "light";
  known[paper] ??= tonesOf(ENDS[paper]);
  return known[paper];
}

/** @param {string[]} ends */
function tonesOf([lowest, zero]) {
  const [from, to] = [zero, lowest].map(bytesOf);
  const above = ramp();
  return range(2 * STEPS + 1).map((at) => {
    const share = at / STEPS - 1;
    const mixed = from.map((byte, place) => Math.round(byte - (to[place] - byte) * share));
    const below = `#${mixed.map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
    const fill = share < 0 ? below : above[Math.round(share * (above.length - 1))];
    return { fill, ink: luminance(bytesOf(fill)) > 0.18 ? "#000000" : "#ffffff" };
  });
}

/** @param {string} color */
function bytesOf(color) {
  return [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
}

/** @param {number[]} bytes */
function luminance(bytes) {
  const [red, green, blue] = bytes.map((byte) => {
    const share = byte / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
