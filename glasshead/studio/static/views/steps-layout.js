// Where things stand on the stage of the walk, and when.
import { ramp } from "../colors.js";
import { clamped, decimal, within } from "../numbers.js";
import { othersOf } from "./steps-row.js";

/** @import { Translate } from "../app.js" */
/** @import { Frame, Key, Row } from "./steps-row.js" */

// A line of the stage: a key, or all that are not shown, which have no vector of their own; with
// the frames of its score, and of its value where it has a part.
/** @typedef {ReturnType<typeof lanesOf>[number]} Lane */

/** @typedef {{x: number, width: number}} Column */
/** @typedef {ReturnType<typeof layoutOf>} Layout */

// Heights: the query before it slides, titles, the first line, a vector, and what is below the lines.
export const HOME = 5;
export const TITLES = 48;
const TOP = 60;
export const VECTOR = 24;
const FOOT = 48;
const BELOW = 18;
// The lowest line, and by how much one that has room is higher than usual.
const LEAST = 14;
const MOST = 1.8;
// One that has room for a number above its bar.
const TALL = 38;
// A stage of less has less room for all.
const NARROW = 560;
// A cell of this width has room for its number, a narrower one of at least this for one in small
// letters.
export const ROOMY = 33;
export const CLOSE = 24;
// Widths that cells of vectors have, where columns of bars stay so wide.
const SPREADS = [
  { least: ROOMY, bars: 140 },
  { least: 26, bars: 75 },
  { least: CLOSE, bars: 30 },
  { least: 0, bars: -Infinity },
];
// Pixels between titles, their letters, and the smallest of them.
const APART = 5;
const TITLE = 12;
const SMALLEST = 10;

/** @param {number} part  Of a movement, from 0 to 1 */
export function ease(part) {
  const at = clamped(part, 0, 1);
  return at * at * (3 - 2 * at);
}

/** @param {number} from @param {number} to @param {number} part */
export const between = (from, to, part) => from + (to - from) * part;

const usualLine = (/** @type {number} */ count) => {
  return [20, 27, 38, 42][[16, 8, 5].filter((most) => count <= most).length];
};

/** The height of a stage that is to fill nothing. @param {number} count  Of lines */
export const usualHeight = (count) => TOP + count * usualLine(count) + BELOW + FOOT;

/**
 * @param {number} width @param {Row} row
 * @param {number} count  Of lines
 * @param {number} longest  Pixels of the longest word
 * @param {number | null} high  What it is to fill, if anything
 */
export function layoutOf(width, { q, context }, count, longest, high) {
  const isNarrow = width < NARROW;
  const gap = isNarrow ? 7 : Math.min(44, width * 0.025);
  const words = Math.min(isNarrow ? 58 : 150, longest + 8);
  const room = width * (isNarrow ? 0.14 : 0.18);
  const spreads = SPREADS.map(({ least, bars }) => {
    const [keys, values] = [q, context].map(({ length }) => {
      return clamped(room / length, least, 44) * length;
    });
    return { keys, values, half: (width - words - keys - values - 4 * gap - 4) / 2, bars };
  });
  const { keys, values, half } = spreads.find((one) => one.half >= one.bars);
  const widths = { words, keys, scores: half, weights: half, values };
  let free = 0;
  const columns = /** @type {Record<keyof typeof widths, Column>} */ ({});
  for (const [name, own] of Object.entries(widths)) {
    columns[/** @type {keyof typeof widths} */ (name)] = { x: free, width: own };
    free += own + gap;
  }
  const usual = usualLine(count);
  const fitting = (high - TOP - BELOW - FOOT) / count;
  // The height of a line, and of a bar in it.
  const lane = high ? Math.max(LEAST, Math.min(MOST * usual, fitting)) : usual;
  // What a vector leaves free of a line, above and below it.
  const edge = Math.min(4, lane * 0.12);
  // A number stands above its bar, or after it, where it has a width of its own.
  const isAbove = isNarrow && lane >= TALL;
  const [number, numberY] = isAbove ? [0, lane * 0.27] : [half < 140 ? 37 : 48, lane / 2];
  const end = Math.min(7, lane * 0.22);
  const inset = isAbove ? lane * 0.46 : end;
  const bar = lane - inset - end;
  // The top and the height of the products of a score, which leave its number free.
  const stairs = isAbove ? [inset, bar] : [2, lane - 4];
  const bottom = TOP + count * lane + BELOW;
  const height = bottom + FOOT;
  const places = { number, numberY, isAbove, edge, inset, bar, stairs, top: TOP, bottom };
  return { width, height, isNarrow, lane, columns, ...places };
}

/** @param {Row} row @param {Frame[]} frames @param {Translate} t */
export function lanesOf({ keys, rest, shift }, frames, t) {
  /** @param {number} [key]  Of frames of the others it is none */
  const timesOf = (key) => {
    const [scoreAt, mixAt] = ["score", "mix"].map((phase) => {
      const at = frames.findIndex((frame) => frame.phase === phase && frame.key === key);
      return at < 0 ? undefined : at;
    });
    return { scoreAt, mixAt };
  };
  const own = keys.map((key, place) => {
    const { word, v, weight, masked } = key;
    const power = masked === null ? 0 : Math.exp(masked - shift);
    return { word, key, v, weight, power, ...timesOf(place) };
  });
  if (!rest) return own;
  const { mean, weight, power } = rest;
  const word = t("walk.others", { count: othersOf(rest) });
  const others = { word, key: /** @type {null} */ (null), v: mean, weight, power };
  return [...own, { ...others, ...timesOf() }];
}

/** The sums of the products of a score, one after the other. @param {Row} row @param {Key} key */
export function stairsOf({ q }, { k }) {
  let sum = 0;
  return q.map((each, at) => (sum += each * k[at]));
}

/** The sizes of the products of a score. @param {Row} row @param {Key} key */
export const sizesOf = ({ q }, { k }) => q.map((each, at) => Math.abs(each * k[at]));

export function largestOf(/** @type {number[][]} */ vectors) {
  // All at once can be more numbers than a call may have arguments.
  return Math.max(...vectors.map((each) => Math.max(...each.map(Math.abs)))) || 1;
}

export function weightColor(/** @type {number} */ weight) {
  const colors = ramp();
  return colors[within(Math.round(weight * (colors.length - 1)), colors.length)];
}

export function short(/** @type {number} */ value) {
  const size = Math.abs(value);
  return decimal(value, Number(size < 10) + Number(size < 100));
}

/** @param {number} weight @param {number} digits */
export function shortWeight(weight, digits) {
  const least = 10 ** -digits;
  return weight > 0 && weight < least / 2 ? `<${least}` : decimal(weight, digits);
}

/** The pixels of the widest word. @param {CanvasRenderingContext2D} pen @param {string} font */
export function widest(pen, font, /** @type {string[]} */ words) {
  pen.font = font;
  return Math.max(...words.map((word) => pen.measureText(word).width));
}

/** @param {CanvasRenderingContext2D} pen @param {string} text @param {number} room */
export function shortened(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  const letters = [...text];
  while (letters.length > 1 && pen.measureText(`${letters.join("")}…`).width > room) letters.pop();
  return `${letters.join("")}…`;
}

// Where the titles of columns stand, and how large, with letters of 12 pixels: one that is wider
// than its column begins where the one before leaves room.
/** @param {CanvasRenderingContext2D} pen @param {[Column, string][]} titles @param {number} end */
export function placeTitles(pen, titles, end) {
  let free = 0;
  return titles.map(([column, title], at) => {
    const next = titles[at + 1]?.[0].x ?? end + APART;
    const wide = pen.measureText(title).width;
    const x = clamped(column.x, free, next - APART - wide);
    const room = next - APART - x;
    const size = clamped((TITLE * room) / wide, SMALLEST, TITLE);
    free = x + (wide * size) / TITLE + APART;
    return { title, x, size, room };
  });
}

/**
 * Hatch a box, as of what is hidden.
 * @param {CanvasRenderingContext2D} pen
 * @param {{x: number, y: number, width: number, height: number}} box @param {string} color
 * @param {number} alpha
 */
export function hatch(pen, { x, y, width, height }, color, alpha) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  pen.globalAlpha = alpha;
  pen.strokeStyle = color;
  pen.lineWidth = 1;
  pen.beginPath();
  for (let at = x - height; at < x + width; at += 6) {
    pen.moveTo(at, y + height);
    pen.lineTo(at + height, y);
  }
  pen.stroke();
  pen.restore();
}

// Planes are larger than their arrows, and show so much of the longest one on the other side of 0.
const ROOM = 1.15;
const FREE = 0.4;

// The square around 0 and the tips of arrows, and half of its side.
/** @param {number[][]} tips @param {number} longest @returns {{middle: number[], size: number}} */
export function squareAround(tips, longest) {
  const free = FREE * longest;
  const spans = [0, 1].map((axis) => {
    const along = tips.map((tip) => tip[axis]);
    return [Math.min(-free, ...along), Math.max(free, ...along)];
  });
  const size = (ROOM / 2) * Math.max(...spans.map(([low, high]) => high - low));
  return { middle: spans.map(([low, high]) => (low + high) / 2), size };
}
