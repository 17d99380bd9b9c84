// The stage of the walk: a query that slides over the keys, products that rise to scores, a softmax
// that pours them into one vessel, and values that mix. Each frame is drawn from its numbers alone.
import { inkOf } from "../colors.js";
import { element, letterScale } from "../dom.js";
import { paintsFiner } from "../marks.js";
import { sum, term, within } from "../numbers.js";
import { toneOf } from "../diverging.js";
import {
  CLOSE,
  HOME,
  ROOMY,
  TITLES,
  VECTOR,
  between,
  ease,
  hatch,
  largestOf,
  lanesOf,
  layoutOf,
  placeTitles,
  short,
  shortWeight,
  shortened,
  sizesOf,
  stairsOf,
  usualHeight,
  weightColor,
  widest,
} from "./steps-layout.js";
import { drawMotion } from "./steps-motion.js";
import { othersOf } from "./steps-row.js";

/** @import { Translate } from "../app.js" */
/** @import { Column, Lane } from "./steps-layout.js" */
/** @import { Frame, Key, Row } from "./steps-row.js" */

// Numbers of a vector whose products are drawn as stairs, one each.
const STAIRS = 8;
// What the smaller ones of scores and scaled scores leave free of the room of the larger ones.
const CALM = 1.5;
// A cell as high as this has room for its number; a lower one, of at least this, for one in small
// letters.
const HIGH = 13;
const SMALL = 10;
const LOW = 8;
// Numbers of what is paler have ink of their own.
const SEEN = 0.4;

// What stands below it in a presentation: the control bar. Letters there are at most as large as
// leaves this width, in letters of the usual size.
const UNDER = 70;
const WIDE = 700;

export class Stage {
  /** @param {Translate} t @param {(lane: number, column: string) => void} pointed */
  constructor(t, pointed) {
    this.t = t;
    this.longest = { all: "", pixels: 0 };
    this.element = element("canvas.stage", {
      "aria-hidden": "true",
      onclick: ({ offsetX: x, offsetY: y }) => this.point(x / this.zoom, y / this.zoom, pointed),
    });
    this.pen = this.element.getContext("2d");
    paintsFiner(this.element, (fine) => this.paint(this.time, fine));
    new ResizeObserver(() => this.measure()).observe(this.element);
  }

  /** @param {Row} row @param {Frame[]} frames @param {number} time */
  show(row, frames, time) {
    this.row = row;
    this.frames = frames;
    // The first frame of each phase that is there.
    this.begins = Object.fromEntries(frames.map(({ phase }, at) => [phase, at]).reverse());
    this.lanes = lanesOf(row, frames, this.t);
    const stairs = this.hasStairs ? row.keys.flatMap((key) => stairsOf(row, key)) : [];
    const raw = [...row.keys.map(({ score }) => score), ...stairs];
    const scaled = row.keys.flatMap((key) => [key.scaled, key.capped, key.masked ?? 0]);
    // Those that are far smaller are drawn larger, yet smaller than the others.
    this.ends = [raw, scaled].map((all, at) => {
      const room = Boolean(at) === Math.abs(row.beta) > 1 ? 1 : CALM;
      return [Math.min(0, ...all) * room, Math.max(0, ...all) * room];
    });
    this.most = Math.max(...this.lanes.map(({ weight }) => weight)) || 1;
    // Many keys together may have more than the largest.
    this.sum = sum(this.lanes.map(({ weight }) => weight));
    this.mostPower = Math.max(...this.lanes.map(({ power }) => power)) || 1;
    this.size = largestOf([row.q, ...row.keys.map((key) => key.k)]);
    this.valueSize = largestOf([row.context, ...this.lanes.map((lane) => lane.v)]);
    this.paint(time);
  }

  get hasStairs() {
    return this.row.isProduct && this.row.q.length <= STAIRS;
  }

  /** Ask for the room and the letters, for which the page is laid out: not while a slider moves. */
  measure() {
    this.ofPage = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
    this.letters = getComputedStyle(this.element).fontFamily;
    this.wide = this.element.clientWidth;
    const above = this.element.getBoundingClientRect().top + scrollY;
    // In a presentation the height that the screen leaves.
    this.free = letterScale() > 1 ? innerHeight - above - UNDER * this.ofPage : null;
    this.paint();
    // Letters that are drawn for the first time arrive later.
    document.fonts.ready.then(() => {
      this.longest = { all: "", pixels: 0 };
      this.paint();
    });
  }

  /** @param {number} time  In frames: 2.5 is on the way from frame 2 to frame 3 */
  paint(time = this.time, fine = devicePixelRatio) {
    this.time = time;
    if (!this.row || !this.wide) return;
    const { free, ofPage, wide } = this;
    const { length } = this.lanes;
    // Letters are as large as those of the page, in a presentation as large as they may be.
    this.zoom = Math.max(ofPage, Math.min(free / usualHeight(length), wide / WIDE));
    const width = wide / this.zoom;
    const layout = layoutOf(width, this.row, length, this.longestWord(), free / this.zoom);
    this.layout = layout;
    const scale = fine * this.zoom;
    this.element.width = Math.round(width * scale);
    this.element.height = Math.round(layout.height * scale);
    this.element.style.height = `${layout.height * this.zoom}px`;
    this.pen.setTransform(scale, 0, 0, scale, 0, 0);
    this.drawTitles();
    this.lanes.forEach((lane, at) => this.drawLane(lane, at));
    this.drawFoot();
    this.drawQuery();
    this.lanes.forEach((lane, at) => drawMotion(this, lane, this.yOf(at)));
  }

  /** The pixels of the longest word, which are measured again once the words are others. */
  longestWord() {
    const words = [`q(${this.row.word})`, ...this.lanes.map(({ word }) => word)];
    const all = words.join("\n");
    if (this.longest.all !== all) {
      this.longest = { all, pixels: widest(this.pen, `650 13px ${this.letters}`, words) };
    }
    return this.longest.pixels;
  }

  /** How far what happens in a frame has come, from 0 to 1. @param {number | undefined} frame */
  done(frame) {
    return frame === undefined ? 0 : ease(this.time - frame + 1);
  }

  phase(/** @type {string} */ phase) {
    return this.done(this.begins[phase]);
  }

  /** The frame that is shown, or on its way. */
  get frame() {
    return this.frames[within(Math.ceil(this.time), this.frames.length)];
  }

  yOf(/** @type {number} */ at) {
    return this.layout.top + at * this.layout.lane;
  }

  /**
   * @param {string} text @param {number} x @param {number} y @param {object} [look]
   * @param {CanvasTextAlign} [look.align]
   * @param {string} [look.fill]  A color, or its name
   * @param {number} [look.size] @param {number} [look.weight]
   * @param {number} [look.room]  Pixels, within which a longer text is shortened
   */
  write(text, x, y, { align = "left", fill = "ink", size = 12.5, weight = 400, room } = {}) {
    const { pen } = this;
    pen.font = `${weight} ${size}px ${this.letters}`;
    pen.textAlign = align;
    pen.textBaseline = "middle";
    pen.fillStyle = inkOf(fill);
    pen.fillText(room ? shortened(pen, text, room) : text, x, y);
  }

  /**
   * @param {string} fill @param {number} x @param {number} y @param {number} width
   * @param {number} height
   */
  box(fill, x, y, width, height) {
    this.pen.fillStyle = fill;
    this.pen.fillRect(x, y, width, height);
  }

  drawTitles() {
    const { t, pen, begins, time, layout, row } = this;
    const { keys, scores, weights, values } = layout.columns;
    const score = begins.scaled <= time ? "scaled" : "scores";
    const isPower = begins.power <= time && time < begins.weights;
    /** @type {[Column, string][]} */
    const titles = [
      [keys, t("steps.keys")],
      [scores, t(`steps.${score}`)],
      [weights, isPower ? (row.shift ? "exp(s − m)" : "exp(s)") : t("steps.weights")],
      [values, t("steps.values")],
    ];
    pen.font = `600 12px ${this.letters}`;
    for (const { title, ...place } of placeTitles(pen, titles, layout.width)) {
      this.write(title, place.x, TITLES, { ...place, fill: "quiet", weight: 600 });
    }
  }

  /** @param {Lane} lane @param {number} at */
  drawLane(lane, at) {
    const { pen, layout, frame } = this;
    const { key } = lane;
    const y = this.yOf(at);
    const isCurrent = frame.rest ? !key : frame.key === at;
    if (isCurrent) {
      pen.fillStyle = inkOf("sunk");
      pen.beginPath();
      pen.roundRect(0, y + 1, layout.width, layout.lane - 2, 6);
      pen.fill();
    }
    if (key?.masked === null) pen.globalAlpha = between(1, 0.45, this.phase("masked"));
    this.drawWord(lane, y, isCurrent);
    if (key) {
      this.drawKey(lane, y);
      this.drawScore(lane, y);
    }
    pen.globalAlpha = 1;
    this.drawWeight(lane, y);
    this.drawValue(lane, y);
  }

  /** @param {Lane} lane @param {number} y @param {boolean} isCurrent */
  drawWord({ key, word }, y, isCurrent) {
    const { isNarrow, columns } = this.layout;
    const { x, width } = columns.words;
    const name = key || !isNarrow ? word : `+${othersOf(this.row.rest)}`;
    this.write(name, x + width, y + this.layout.lane / 2, {
      align: "right",
      fill: key ? "ink" : "quiet",
      weight: isCurrent ? 650 : 400,
      size: 13,
      room: width,
    });
  }

  // A key, of which the lower half is seen while the query is over it.
  /** @param {Lane} lane @param {number} y */
  drawKey({ key, scoreAt }, y) {
    const { columns, lane, edge } = this.layout;
    const under = ease((this.time - scoreAt + 1) / 0.4) - ease((this.time - scoreAt) / 0.4);
    const from = between(edge, lane * 0.56, under);
    const end = lane - edge * (1 - under);
    this.drawVector(key.k, columns.keys, y + from, end - from, this.size);
  }

  /**
   * @param {number[]} values @param {Column} column @param {number} y @param {number} height
   * @param {number} size  Of the largest number
   */
  drawVector(values, { x, width }, y, height, size) {
    const { pen } = this;
    const cell = width / values.length;
    const apart = cell > 6 ? 1.5 : 0;
    values.forEach((value, at) => {
      const { fill, ink } = toneOf(value / size);
      this.box(fill, x + at * cell, y, cell - apart + (apart ? 0 : 0.4), height);
      if (cell < CLOSE || height < LOW) return;
      const { globalAlpha } = pen;
      const isPale = globalAlpha < SEEN;
      if (isPale) pen.globalAlpha = 1;
      this.write(short(value), x + (at + 0.5) * cell - apart / 2, y + height / 2 + 0.5, {
        align: "center",
        fill: isPale ? "quiet" : ink,
        size: cell < ROOMY || height < HIGH ? SMALL : undefined,
      });
      pen.globalAlpha = globalAlpha;
    });
  }

  /** The scores at the ends of the axis, which follows them when they are scaled. */
  get range() {
    const [before, after] = this.ends;
    return before.map((end, at) => between(end, after[at], this.phase("scaled")));
  }

  xOf(/** @type {number} */ score) {
    const { columns, number } = this.layout;
    const [lowest, highest] = this.range;
    const room = columns.scores.width - number;
    return columns.scores.x + ((score - lowest) / (highest - lowest || 1)) * room;
  }

  // A score after each of its steps, and how far these have come.
  /** @param {Key} key @returns {[number, number][]} */
  stepsOf({ scaled, capped, masked }) {
    return [
      [scaled, this.phase("scaled")],
      [capped, this.phase("capped")],
      [masked ?? capped, this.phase("biased")],
    ];
  }

  /** A score as it stands now, between its steps. @param {Key} key */
  scoreNow(key) {
    return this.stepsOf(key).reduce((now, [next, part]) => between(now, next, part), key.score);
  }

  /** The number of the last step of a score that is done. @param {Key} key */
  scoreTold(key) {
    if (key.masked === null && this.phase("masked") > 0.5) return "−∞";
    return short(this.stepsOf(key).findLast(([, part]) => part > 0.5)?.[0] ?? key.score);
  }

  /** @param {Lane} lane @param {number} y */
  drawScore({ key, scoreAt }, y) {
    const grown = this.done(scoreAt);
    const { pen, layout, time } = this;
    const { lane, inset, bar } = layout;
    const { x, width } = layout.columns.scores;
    if (!grown) return this.drawSlot(layout.columns.scores, y);
    const isHidden = key.masked === null;
    const hidden = this.phase("masked");
    const zero = this.xOf(0);
    const now = this.scoreNow(key);
    const isStairs = this.hasStairs && Math.ceil(time) === scoreAt;
    const [lowest, highest] = this.range;
    const end = between(zero, this.xOf(now), grown);
    pen.save();
    pen.globalAlpha *= (isHidden ? 1 - hidden : 1) * (isStairs ? 0.35 : 1);
    const { fill } = toneOf(now / Math.max(highest, -lowest));
    this.box(fill, Math.min(zero, end), y + inset, Math.max(1, Math.abs(end - zero)), bar);
    pen.restore();
    if (isStairs) this.drawStairs(key, y, grown);
    if (lowest < 0) this.box(inkOf("quiet"), Math.round(zero) - 0.5, y + 2, 1, lane - 4);
    if (isHidden && hidden) {
      const box = { x, y: y + inset, width: width - layout.number, height: bar };
      hatch(pen, box, inkOf("quiet"), hidden);
    }
    if (grown >= 0.6) this.writeNumber(this.scoreTold(key), layout.columns.scores, y);
  }

  // The products of a score as stairs, that end where the score does.
  /** @param {Key} key @param {number} y @param {number} grown */
  drawStairs(key, y, grown) {
    const { row, layout } = this;
    const [top, height] = layout.stairs;
    const steps = [0, ...stairsOf(row, key)];
    const step = height / row.q.length;
    const sizes = sizesOf(row, key);
    const most = Math.max(...sizes) || 1;
    row.q.forEach((each, at) => {
      const own = ease(grown * (row.q.length + 1) - at);
      if (!own) return;
      const from = this.xOf(steps[at]);
      const to = between(from, this.xOf(steps[at + 1]), own);
      const { fill } = toneOf((0.4 + (0.6 * sizes[at]) / most) * Math.sign(each * key.k[at]));
      const width = Math.max(1, Math.abs(to - from));
      this.box(fill, Math.min(from, to), y + top + at * step, width, step - 0.5);
    });
  }

  /** The place of a bar that is not there yet. @param {Column} column @param {number} y */
  drawSlot({ x, width }, y) {
    const { number, inset, bar } = this.layout;
    this.outline(x + 0.5, y + inset + 0.5, width - number - 1, bar - 1, { dash: [2, 4] });
  }

  weightNow(/** @type {Lane} */ { power, weight }) {
    const before = (power / this.mostPower) * this.phase("power");
    // What is divided by a sum keeps its share of the largest.
    return between(before, weight / this.most, this.phase("weights"));
  }

  barOf(/** @type {number} */ weight) {
    const { number, columns } = this.layout;
    return weight * (columns.weights.width - number);
  }

  /** @param {Lane} lane @param {number} y */
  drawWeight(lane, y) {
    const { layout, begins } = this;
    const { x } = layout.columns.weights;
    const begin = begins.power ?? begins.weights;
    if (this.time <= begin - 1) return this.drawSlot(layout.columns.weights, y);
    const now = Math.max(1, this.barOf(this.weightNow(lane)));
    this.box(weightColor(lane.weight), x, y + layout.inset, now, layout.bar);
    const isWeight = this.phase("weights") > 0.5;
    if (!isWeight && this.phase("power") < 0.5) return;
    const number = isWeight ? lane.weight : lane.power;
    const told = number < 10 ? shortWeight(number, layout.isNarrow ? 2 : 3) : short(number);
    this.writeNumber(told, layout.columns.weights, y, isWeight ? 600 : 400);
  }

  // The number of a bar, after it or above it, at the top of its line.
  /** @param {string} number @param {Column} column @param {number} y @param {number} [weight] */
  writeNumber(number, { x, width }, y, weight) {
    const { isAbove, numberY } = this.layout;
    const align = isAbove ? "left" : "right";
    this.write(number, isAbove ? x : x + width, y + numberY + 0.5, { align, weight });
  }

  /** @param {Lane} lane @param {number} y */
  drawValue(lane, y) {
    const { pen, layout } = this;
    // Of a value as much is seen as it has weight.
    pen.globalAlpha = between(1, 0.12 + (0.88 * lane.weight) / this.most, this.phase("weights"));
    const height = layout.lane - 2 * layout.edge;
    this.drawVector(lane.v, layout.columns.values, y + layout.edge, height, this.valueSize);
    pen.globalAlpha = 1;
  }

  /** The query: above the keys, or on its way over them. */
  drawQuery() {
    const { layout, row } = this;
    const { keys, words } = layout.columns;
    const lanes = this.lanes.filter(({ key }) => key);
    const slides = lanes.reduce((y, { scoreAt }, at) => {
      return between(y, this.yOf(at) + 2, ease((this.time - scoreAt + 1) / 0.4));
    }, HOME);
    const after = lanes.at(-1).scoreAt;
    const y = between(slides, HOME, ease((this.time - after) / 0.5));
    const away = Math.min(1, Math.abs(y - HOME) / 20);
    const height = between(VECTOR, layout.lane * 0.42, away);
    this.write(`q(${row.word})`, words.x + words.width, HOME + VECTOR / 2, {
      align: "right",
      fill: "accent",
      weight: 650,
      size: 13,
      room: words.width,
    });
    if (away) {
      this.outline(keys.x + 0.5, HOME + 0.5, keys.width - 1, VECTOR - 1, { dash: [3, 3] });
    }
    this.box(inkOf("paper"), keys.x - 3, y - 2, keys.width + 5, height + 4);
    this.drawVector(row.q, keys, y, height, this.size);
    this.frameVector(keys, y, height, 2);
  }

  /** Pixels of a weight of 1 in the vessel; sigmoids may have more to pour than one. */
  get room() {
    return (this.layout.columns.weights.width - this.layout.number) / Math.max(1, this.sum);
  }

  /**
   * @param {number} x @param {number} y @param {number} width @param {number} height
   * @param {object} [look]
   * @param {string} [look.color]  Its name
   * @param {number} [look.thick]  Where it is that of the query or the context
   * @param {number[]} [look.dash]
   */
  outline(x, y, width, height, { color = "rule", thick = 0, dash = [] } = {}) {
    const { pen } = this;
    pen.strokeStyle = inkOf(color);
    pen.lineWidth = thick || 1;
    pen.setLineDash(dash);
    pen.beginPath();
    pen.roundRect(x, y, width, height, thick ? 4 : 0);
    pen.stroke();
    pen.setLineDash([]);
  }

  /** @param {Column} column @param {number} y @param {number} height @param {number} thick */
  frameVector({ x, width }, y, height, thick) {
    this.outline(x - 2, y - 2, width + 3, height + 4, { color: "accent", thick });
  }

  /** The vessel that the weights are poured into, and the context that the values are mixed in. */
  drawFoot() {
    const { layout, lanes, room } = this;
    const { weights, values } = layout.columns;
    const y = layout.bottom;
    const poured = this.phase("weights");
    if (poured) {
      let { x } = weights;
      const top = y + VECTOR * (1 - poured);
      for (const { weight } of lanes) {
        const width = Math.max(0, weight * room - 1);
        this.box(weightColor(weight), x, top, width, VECTOR * poured);
        x += weight * room;
      }
    }
    const look = { color: poured ? "quiet" : "rule" };
    this.outline(weights.x - 1.5, y - 1.5, weights.width - layout.number + 3, VECTOR + 3, look);
    const total = poured === 1 ? ` = ${term(Number(this.sum.toFixed(3)))}` : "";
    this.write(`Σ p${total}`, weights.x, y + VECTOR + 15, { fill: "quiet" });
    this.drawContext(values, y);
  }

  /** @param {Column} column @param {number} y */
  drawContext(column, y) {
    const { layout, lanes, row } = this;
    this.outline(column.x - 1.5, y - 1.5, column.width + 2, VECTOR + 3);
    this.write(`c(${row.word})`, column.x, y + VECTOR + 15, {
      fill: "accent",
      weight: 650,
      room: layout.width - column.x,
    });
    const parts = lanes.map((lane) => this.done(lane.mixAt) * lane.weight);
    const isWhole = lanes.every(({ mixAt }) => mixAt === undefined || this.done(mixAt) === 1);
    if (!parts.some(Boolean)) return;
    const mixed = row.context.map((_, at) => {
      return sum(lanes.map((lane, place) => parts[place] * lane.v[at]));
    });
    this.drawVector(isWhole ? row.context : mixed, column, y, VECTOR, this.valueSize);
    const thick = 2 * this.phase("context");
    if (thick) this.frameVector(column, y, VECTOR, thick);
  }

  /** @param {number} x @param {number} y @param {(lane: number, column: string) => void} pointed */
  point(x, y, pointed) {
    const { columns, top, lane } = this.layout;
    const at = Math.floor((y - top) / lane);
    if (at < 0 || at >= this.lanes.length) return;
    pointed(at, x >= columns.weights.x ? "mix" : "score");
  }
}
