// Numbers on both sides of 0, such as scores and differences of weights: what is above and what is
// below have two colors, told apart whatever one's color vision, and 0 has that of the paper.
import { categories, lettersOn, mixed, paperColor } from "./colors.js";
import { decimal, range, term, within } from "./numbers.js";

// Colors on each side of 0.
const STEPS = 48;

/** @typedef {{fill: string, ink: string}} Tone  A color, and that of letters on it */

const known = /** @type {Record<string, Tone[]>} */ ({});

/** All colors, from the lowest on; the middle one is that of 0. */
export function tones() {
  const [more, less] = categories();
  const none = paperColor("paper");
  known[none] ??= range(2 * STEPS + 1).map((at) => {
    const share = at / STEPS - 1;
    const fill = mixed(none, share < 0 ? less : more, Math.abs(share));
    return { fill, ink: lettersOn(fill) };
  });
  return known[none];
}

/** The place of a number among the colors. @param {number} share  Of the largest, from −1 to 1 */
export const tonePlace = (share) => within(Math.round((share + 1) * STEPS), 2 * STEPS + 1);

export const toneOf = (/** @type {number} */ share) => tones()[tonePlace(share)];

/** The colors without those of letters. */
export const divergingColors = () => tones().map(({ fill }) => fill);

/** All colors side by side, as CSS draws them. */
export const divergingGradient = () => `linear-gradient(to right, ${divergingColors().join(", ")})`;

// A difference with its sign and so many decimals, or those of a sum; "–" where there is none.
/** @param {number | null | undefined} value @param {number} [digits] */
export function signed(value, digits) {
  if (value === null || value === undefined) return "–";
  const written = digits === undefined ? term(value) : decimal(value, digits);
  // Neither does a zero have a sign, nor what is rounded to one.
  return value > 0 && /[1-9∞]/.test(written) ? `+${written}` : written;
}
