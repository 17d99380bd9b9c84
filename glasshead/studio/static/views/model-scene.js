// The whole model as marks: tokens above, heads in columns of layers, the residual stream below.
import { faint, ramp, scale } from "../colors.js";
import { tokenName } from "../dom.js";
import { clamped, largestFirst, range, rowAt } from "../numbers.js";

/** @import { Mark } from "../marks.js" */
/** @import { Viewport } from "../parts/viewport.js" */

/**
 * A model over a text at one query. Numbers of heads are one after the other, layer by layer.
 * @typedef {object} Scene
 * @property {number[]} counts  Heads of each layer
 * @property {(layer: number, head: number) => string} named
 * @property {(layer: number) => string} layerOf  Its name
 * @property {number} column  Units from a layer to the next, by the size of the canvas
 * @property {string[]} words @property {number} query
 * @property {number} head  The head that is selected, counted over all layers
 * @property {number | null} key @property {Float32Array} norms
 * @property {Float32Array} shares  NaN where they are not known
 * @property {Float32Array} reads  Weights, a row of keys for each head
 * @property {boolean[]} mlps  Whether the block of a layer has an MLP
 * @property {HTMLCanvasElement[]} strips  The row of each head as a picture
 * @property {Map<number, HTMLCanvasElement | null>} maps  Whole maps of heads; null if under way
 */

// Lengths in units: a head is one wide and high.
const STEP = 1.22;
const LEFT = 1.2;
const TOP = 1.3;
const BELOW = 1.1;
// From a layer to the next, where there is room, and from the last one on.
const ROOMY = 3.1;
const NARROW = 480;
const THICKEST = 0.42;
// Letters of a token, in pixels: as large as there is room for between these.
const SMALLEST = 11;
const LARGEST = 16;
// Pixels of a head from which on it shows its row, its number, and its whole map.
const SHOWS_ROW = 16;
const NUMBERED = 22;
export const SHOWS_MAP = 84;
// A map in a head, in units: its side, and its left upper corner. Its name stands above it.
const SIDE = 0.74;
const INSET = { x: 0.13, y: 0.12 };
// Tokens stand above the columns of the map of the head that is selected, where these are so wide.
const MATCHED = 8;
// Weights that have a line: of the head that is selected, and of the others.
const LEAST = 0.01;
const TELLING = 0.35;
// Pixels above the heads, for the tokens, which stay where they are.
export const ROW = 84;
const NAMES = 72;
// The row of tokens ends, and lines to heads begin, below the largest dot.
const ROW_END = NAMES + 5;

// The units that a model takes, and those from a layer to the next: as many as fill a canvas.
/** @param {number[]} counts @param {number} width @param {number} height */
export function sizeOf(counts, width, height) {
  const queries = TOP + Math.max(...counts) * STEP + BELOW + 0.9;
  const least = width < NARROW ? 2.4 : ROOMY;
  const filling = (queries * width) / height - LEFT - 0.4;
  const column = clamped(filling / counts.length, least, 8);
  const last = Math.max(column, ROOMY);
  return { column, keys: LEFT + (counts.length - 1) * column + last + 0.4, queries };
}

// The left upper corner of a head, in units.
/** @param {number} column @param {number} layer @param {number} head */
export function cornerOf(column, layer, head) {
  return { x: LEFT + layer * column, y: TOP + head * STEP };
}

/** All heads, with their left upper corners. @param {Scene} scene */
export function placesOf({ counts, column }) {
  return counts.flatMap((count, layer) => {
    return range(count).map((head) => ({ layer, head, ...cornerOf(column, layer, head) }));
  });
}

// The head at a place in units, as its layer and its number; null where there is none.
/** @param {Scene} scene @param {number} x @param {number} y @returns {[number, number] | null} */
export function headAt({ counts, column }, x, y) {
  const layer = Math.floor((x - LEFT) / column);
  const head = Math.floor((y - TOP) / STEP);
  const { x: left, y: top } = cornerOf(column, layer, head);
  return head >= 0 && head < counts[layer] && x - left <= 1 && y - top <= 1 ? [layer, head] : null;
}

class Drawing {
  /** @param {Scene} scene @param {Viewport} view */
  constructor(scene, view) {
    this.scene = scene;
    this.view = view;
    this.marks = /** @type {Mark[]} */ ([]);
    this.unit = view.zoom;
    this.level = scale({ top: Math.max(...scene.norms) });
    this.stream = this.top(view.info.queries - BELOW);
    this.heads = placesOf(scene);
    const left = view.left(this.heads[scene.head].x + INSET.x);
    const side = SIDE * this.unit;
    const isMatched = side >= MATCHED * scene.words.length;
    // The columns of the map that the tokens stand above, where it is seen.
    this.columns = isMatched && left >= 0 && left + side <= view.width ? { left, side } : null;
    this.letters = clamped((this.tokenX(1) - this.tokenX(0)) / 2, SMALLEST, LARGEST);
  }

  top(/** @type {number} */ y) {
    return this.view.top(y) + ROW;
  }

  tokenX(/** @type {number} */ at) {
    const { view, columns } = this;
    const { length } = this.scene.words;
    if (columns) return columns.left + ((at + 0.5) / length) * columns.side;
    return 18 + ((at + 0.3) / length) * (view.width - 44);
  }

  /**
   * A rectangle with an edge around it.
   * @param {number} x @param {number} y @param {number} width @param {number} height
   * @param {number} edge @param {string} color  Of the edge
   * @param {string} fill
   */
  box(x, y, width, height, edge, color, fill) {
    const around = { width: width + 2 * edge, height: height + 2 * edge, fill: color };
    this.marks.push({ x: x - edge, y: y - edge, ...around }, { x, y, width, height, fill });
  }

  drawStream() {
    const { marks, view, stream, unit, scene } = this;
    const from = view.left(0.3);
    const to = view.left(view.info.keys - 0.35);
    const arrow = 0.32 * unit;
    marks.push({ d: `M${from} ${stream}H${to}`, stroke: "rule", width: 0.3 * unit });
    const tip = `M${to} ${stream - arrow}L${to + arrow} ${stream}L${to} ${stream + arrow}Z`;
    marks.push({ d: tip, stroke: "rule", fill: "rule" });
    scene.counts.forEach((_, layer) => {
      const { x } = cornerOf(scene.column, layer, 0);
      const size = clamped(0.5 * unit, 8, 18);
      const y = stream + Math.min(0.45 * unit, 40) + size;
      marks.push({
        x: view.left(x + 0.5),
        y,
        text: scene.layerOf(layer),
        size,
        anchor: "middle",
        fill: "quiet",
      });
      if (!scene.mlps[layer]) return;
      const [left, width, height] = [view.left(x + 1.95), 1.15 * unit, 0.84 * unit];
      this.box(left + 1, stream - height / 2 + 1, width - 2, height - 2, 1, "rule", "sunk");
      if (unit < NUMBERED) return;
      const middle = { x: left + width / 2, y: stream + 0.16 * unit, anchor: "middle" };
      marks.push({ ...middle, text: "MLP", size: 0.46 * unit, fill: "quiet" });
    });
  }

  /** What each head writes: a line to the others of its layer, and down with them to the stream. */
  drawWrites() {
    const { marks, view, scene, unit, stream } = this;
    const { counts, norms, shares } = scene;
    let first = 0;
    counts.forEach((count, layer) => {
      const x = view.left(cornerOf(scene.column, layer, 0).x + 1.55);
      const parts = range(count).map((head) => {
        return Number.isNaN(shares[first]) ? norms[first + head] : shares[first + head];
      });
      const all = parts.reduce((sum, each) => sum + Math.abs(each), 0) || 1;
      let sum = 0;
      parts.forEach((part, head) => {
        const { x: left, y: top } = this.heads[first + head];
        const y = this.top(top + 0.5);
        const share = Math.abs(part) / all;
        sum += share;
        const color = part < 0 ? "alarm" : "accent";
        const stroke = first + head === scene.head ? color : faint(color, 0.5);
        const width = Math.max(0.6, THICKEST * unit * share);
        marks.push({ d: `M${view.left(left + 1)} ${y}H${x}`, stroke, width });
        const end = head + 1 < count ? this.top(top + 0.5 + STEP) : stream;
        const down = Math.max(0.6, THICKEST * unit * sum);
        marks.push({ d: `M${x} ${y}V${end}`, stroke: faint("accent", 0.5), width: down });
      });
      const dot = Math.max(2, 0.16 * unit);
      marks.push({ d: circle(x, stream, dot), stroke: "accent", fill: "paper", width: 1.5 });
      first += count;
    });
  }

  /** From which tokens heads read: all that the selected one reads, and what others read most. */
  drawReads() {
    const { scene, marks } = this;
    const { words, reads, head: selected, norms, key } = scene;
    const most = Math.max(...norms) || 1;
    this.heads.forEach((place, at) => {
      if (at === selected) return;
      const row = rowAt(reads, at, words.length);
      const largest = Math.max(...row);
      const opacity = (0.4 * norms[at]) / most;
      if (largest < TELLING || opacity < 0.02) return;
      const d = this.line(row.indexOf(largest), place);
      marks.push({ d, stroke: "quiet", width: 1, opacity });
    });
    const row = rowAt(reads, selected, words.length);
    row.forEach((value, at) => {
      if (!(value >= LEAST)) return;
      const stroke = at === key ? "alarm" : "accent";
      const width = 0.8 + 6 * value;
      const d = this.line(at, this.heads[selected]);
      marks.push({ d, stroke, width, opacity: 0.35 + 0.6 * value });
    });
  }

  // A line from a token to a head at a corner.
  /** @param {number} token @param {{x: number, y: number}} corner */
  line(token, { x, y }) {
    const [left, top, right] = [this.tokenX(token), this.top(y + 0.5), this.view.left(x)];
    // In the gap before its column it goes down to its head.
    const gap = right - Math.min(0.8, this.scene.column - 1.9) * this.unit;
    const over = Math.max(ROW + 0.35 * this.unit, this.top(TOP));
    const bow = `M${left} ${ROW_END}C${left} ${over} ${gap} ${ROW_END} ${gap} ${over}`;
    return `${bow}V${Math.max(over, top - 0.4 * this.unit)}Q${gap} ${top} ${right} ${top}`;
  }

  drawHeads() {
    const { marks, view, scene, unit, level } = this;
    const colors = ramp();
    this.heads.forEach(({ layer, head, ...corner }, at) => {
      const [x, y] = [view.left(corner.x), this.top(corner.y)];
      if (x + unit < 0 || y + unit < ROW || x > view.width || y > view.height + ROW) return;
      const isSelected = at === scene.head;
      const edge = isSelected ? clamped(0.07 * unit, 2, 5) : 1;
      const place = level(scene.norms[at]);
      this.box(x, y, unit, unit, edge, isSelected ? "ink" : "rule", colors[place]);
      if (unit >= SHOWS_ROW) this.drawInside(at, x, y);
      if (unit < NUMBERED) return;
      const fill = place > colors.length / 2 ? "paper" : "ink";
      if (unit >= SHOWS_MAP) {
        const above = { x: x + INSET.x * unit, y: y + 0.09 * unit, fill };
        const size = Math.min(14, 0.08 * unit);
        marks.push({ ...above, text: scene.named(layer, head), size });
        return;
      }
      const middle = { x: x + unit / 2, y: y + 0.62 * unit, anchor: "middle" };
      marks.push({ ...middle, text: head, size: 0.46 * unit, fill });
    });
  }

  // The row of a head, and its whole map where there is room for it.
  /** @param {number} at  The head @param {number} x @param {number} y */
  drawInside(at, x, y) {
    const { marks, scene, unit } = this;
    const left = { x: x + INSET.x * unit, width: SIDE * unit };
    const strip = { ...left, y: y + 0.88 * unit, height: 0.08 * unit };
    marks.push({ ...strip, fill: "sunk" }, { ...strip, image: scene.strips[at] });
    const map = unit >= SHOWS_MAP ? scene.maps.get(at) : null;
    if (!map) return;
    const square = { ...left, y: y + INSET.y * unit, height: SIDE * unit };
    marks.push({ ...square, fill: "sunk" }, { ...square, image: map });
  }

  /** The tokens, as many as there is room for: the query, those that are read most, and others. */
  drawTokens() {
    const { marks, scene, view, letters: size } = this;
    const { words, query, reads, head, key } = scene;
    marks.push({ x: 0, y: 0, width: view.width, height: ROW_END, fill: "paper" });
    const row = rowAt(reads, head, words.length);
    /** @param {number} at */
    const weight = (at) => (at === query ? 3 : at === key ? 2 : row[at] >= LEAST ? row[at] : 0);
    const order = largestFirst(range(words.length), weight);
    const taken = /** @type {number[]} */ ([]);
    for (const at of order) {
      const x = this.tokenX(at);
      const isRead = row[at] >= LEAST;
      const dot = isRead ? 2 + 3 * row[at] : 1.4;
      const isQuery = at === query;
      const fill = isQuery ? "accent" : "paper";
      marks.push({ d: circle(x, NAMES, dot), stroke: isRead ? "accent" : "quiet", fill });
      // What is read stands closer than what is not.
      const apart = (isRead || isQuery ? 0.85 : 1.1) * size;
      if (taken.some((other) => Math.abs(other - x) < apart)) continue;
      taken.push(x);
      const text = shortened(tokenName(words[at]), 140 / size);
      if (isQuery && text.length > 1) {
        // Along the name.
        const [far, up] = [0.64, 0.77].map((each) => each * size * (0.7 + 0.58 * text.length));
        const d = `M${x + 1} ${NAMES - 14}l${far} ${-up}`;
        marks.push({ d, stroke: "tint", width: 1.5 * size });
      }
      const look = { size, weight: isQuery ? 700 : 400, fill: isQuery ? "accent" : "ink" };
      marks.push({ ...look, x: x + 3, y: NAMES - 8, rotate: -50, text });
    }
  }
}

/** @param {number} x @param {number} y @param {number} radius */
function circle(x, y, radius) {
  const half = `a${radius} ${radius} 0 1 1`;
  return `M${x - radius} ${y}${half} ${2 * radius} 0${half} ${-2 * radius} 0`;
}

/** @param {string} word @param {number} most  Letters */
const shortened = (word, most) => (word.length > most ? `${word.slice(0, most - 1)}…` : word);

// The marks of a scene, those behind first.
/** @param {Scene} scene @param {Viewport} view @returns {Mark[]} */
export function marksOf(scene, view) {
  const drawing = new Drawing(scene, view);
  drawing.drawStream();
  drawing.drawReads();
  drawing.drawWrites();
  drawing.drawHeads();
  drawing.drawTokens();
  return drawing.marks;
}

/**
 * The token nearest to a place, where it is among their names.
 * @param {Scene} scene @param {Viewport} view @param {{left: number, top: number}} point
 * @returns {number | null}
 */
export function tokenAt(scene, view, { left, top }) {
  const drawing = new Drawing(scene, view);
  if (top > ROW) return null;
  const { length } = scene.words;
  // A name leans to the right.
  const x = left - Math.max(0, NAMES - top) * 0.84;
  const place = range(length).map((at) => Math.abs(drawing.tokenX(at) - x));
  return place.indexOf(Math.min(...place));
}
