// The stage of the walk: a query that slides over the keys, products that rise to scores, a softmax
// that pours them into one vessel, and values that mix. Each frame is drawn from its numbers alone.
import { inkOf } from "../colors.js";
import { element, letterScale } from "../dom.js";
import { paintsFiner } from "../marks.js";
import { sum, term, within } from "../numbers.js";
import { toneOf } from "../diverging.js";
import {
  HOME,
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
  weightColor,
} from "./steps-layout.js";
import { drawMotion } from "./steps-motion.js";

/** @import { Translate } from "../app.js" */
/** @import { Column, Lane, Layout } from "./steps-layout.js" */
/** @import { Frame, Key, Row } from "./steps-row.js" */

// Numbers of a vector whose products are drawn as stairs, one each.
const STAIRS = 8;
// Room that scaled scores leave free, of what they had.
const CALM = 1.5;
// A cell as wide and high as this has room for its number.
const ROOMY = 33;
const HIGH = 13;
// Numbers of what is paler are not written.
const SEEN = 0.4;

// What stands below it in a presentation: steps without effect, and the control bar.
const UNDER = 112;

export class Stage {
  /** @param {Translate} t @param {(lane: number, column: string) => void} pointed */
  constructor(t, pointed) {
    this.t = t;
    /** @type {Row} */
    this.row = null;
    /** @type {Frame[]} */
    this.frames = [];
    /** @type {Lane[]} */
    this.lanes = [];
    // The first frame of each phase that is there.
    /** @type {Record<string, number>} */
    this.begins = {};
    this.time = 0;
    this.width = 0;
    // In a presentation the height that the screen leaves.
    /** @type {number | null} */
    this.free = null;
    /** @type {Layout} */
    this.layout = null;
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
    this.begins = {};
    frames.forEach(({ phase }, at) => {
      this.begins[phase] ??= at;
    });
    this.lanes = lanesOf(row, frames, this.t);
    const scores = row.keys.flatMap(({ scaled, capped, masked }) => {
      return [scaled, capped, masked ?? 0];
    });
    const stairs = this.hasStairs ? row.keys.flatMap((key) => stairsOf(row, key)) : [];
    const raw = [...row.keys.map(({ score }) => score), ...stairs];
    // Scaled scores that are far smaller are drawn larger, yet smaller than they were.
    const calmed = scores.map((score) => score * CALM);
    this.ends = [raw, calmed].map((all) => [Math.min(0, ...all), Math.max(0, ...all)]);
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
    // Letters are as large as those of the page.
    this.zoom = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
    this.letters = getComputedStyle(this.element).fontFamily;
    this.width = this.element.clientWidth / this.zoom;
    const above = this.element.getBoundingClientRect().top + scrollY;
    this.free = letterScale() > 1 ? (innerHeight - above) / this.zoom - UNDER : null;
    this.paint();
  }

  /** @param {number} time  In frames: 2.5 is on the way from frame 2 to frame 3 */
  paint(time = this.time, fine = devicePixelRatio) {
    this.time = time;
    const { width } = this;
    if (!this.row || !width) return;
    const { length } = this.lanes;
    this.layout = layoutOf(width, this.row, length, this.longestWord(), this.free);
    const { pen, layout } = this;
    const scale = fine * this.zoom;
    this.element.width = Math.round(width * scale);
    this.element.height = Math.round(layout.height * scale);
    this.element.style.setProperty("height", `${layout.height * this.zoom}px`);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    this.drawTitles();
    this.lanes.forEach((lane, at) => this.drawLane(lane, at));
    this.drawFoot();
    this.drawQuery();
    this.lanes.forEach((lane, at) => drawMotion(this, lane, this.yOf(at)));
  }

  longestWord() {
    const { pen, row } = this;
    pen.font = `650 13px ${this.letters}`;
    const words = [`q(${row.word})`, ...this.lanes.map(({ word }) => word)];
    return Math.max(...words.map((word) => pen.measureText(word).width));
  }

  /** How far what happens in a frame has come, from 0 to 1. @param {number | undefined} frame */
  done(frame) {
    return frame === undefined ? 0 : ease(this.time - frame + 1);
  }

  /** @param {string} phase */
  phase(phase) {
    return this.done(this.begins[phase]);
  }

  /** The frame that is shown, or on its way. */
  get frame() {
    return this.frames[within(Math.ceil(this.time), this.frames.length)];
  }

  /** @param {number} at */
  yOf(at) {
    return this.layout.top + at * this.layout.lane;
  }

  /**
   * @param {string} text @param {number} x @param {number} y @param {object} [look]
   * @param {CanvasTextAlign} [look.align] @param {string} [look.fill] @param {number} [look.size]
   * @param {number} [look.weight]
   * @param {number} [look.room]  Pixels, within which a longer text is shortened
   */
  write(text, x, y, { align = "left", fill = inkOf("ink"), size = 12.5, weight = 400, room } = {}) {
    const { pen } = this;
    pen.font = `${weight} ${size}px ${this.letters}`;
    pen.textAlign = align;
    pen.textBaseline = "middle";
    pen.fillStyle = fill;
    pen.fillText(room ? shortened(pen, text, room) : text, x, y);
  }

  drawTitles() {
    const { t, pen, begins, time, layout } = this;
    const { keys, scores, weights, values } = layout.columns;
    const stages = ["scaled", "capped", "biased", "masked"].filter((name) => begins[name] <= time);
    const score = t(
      `steps.${stages.at(-1) === "masked" ? "masked" : stages.length ? "scaled" : "scores"}`,
    );
    const isPower = begins.power <= time && time < begins.weights;
    /** @type {[Column, string][]} */
    const titles = [
      [keys, t("steps.keys")],
      [scores, score],
      [weights, isPower ? "exp(s)" : t("steps.weights")],
      [values, t("steps.values")],
    ];
    pen.font = `600 12px ${this.letters}`;
    for (const { title, ...place } of placeTitles(pen, titles, layout.width)) {
      this.write(title, place.x, 12, { ...place, fill: inkOf("quiet"), weight: 600 });
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
    const name = key || !isNarrow ? word : `+${this.row.rest.count}`;
    this.write(name, x + width, y + this.layout.lane / 2, {
      align: "right",
      fill: inkOf(key ? "ink" : "quiet"),
      weight: isCurrent ? 650 : 400,
      size: 13,
      room: width,
    });
  }

  /**
   * A key, of which the lower half is seen while the query is over it.
   * @param {Lane} lane @param {number} y
   */
  drawKey({ key, scoreAt }, y) {
    const { columns, lane } = this.layout;
    const under = ease((this.time - scoreAt + 1) / 0.4) - ease((this.time - scoreAt) / 0.4);
    const from = between(4, lane * 0.53, under);
    this.drawVector(key.k, columns.keys, y + from, lane - 4 - from, this.size);
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
      pen.fillStyle = fill;
      pen.fillRect(x + at * cell, y, cell - apart + (apart ? 0 : 0.4), height);
      if (cell < ROOMY || height < HIGH || pen.globalAlpha < SEEN) return;
      this.write(short(value), x + (at + 0.5) * cell - apart / 2, y + height / 2 + 0.5, {
        align: "center",
        fill: ink,
      });
    });
  }

  /** The scores at the ends of the axis, which follows them when they are scaled. */
  range() {
    const [before, after] = this.ends;
    const [lowest, highest] = [0, 1].map((end) => {
      return between(before[end], after[end], this.phase("scaled"));
    });
    return { lowest, highest };
  }

  /** @param {number} score */
  xOf(score) {
    const { columns, number } = this.layout;
    const { lowest, highest } = this.range();
    const room = columns.scores.width - number;
    return columns.scores.x + ((score - lowest) / (highest - lowest || 1)) * room;
  }

  /** A score as it stands now, between its steps. @param {Key} key */
  scoreNow({ score, scaled, capped, masked }) {
    let now = between(score, scaled, this.phase("scaled"));
    now = between(now, capped, this.phase("capped"));
    return between(now, masked ?? capped, this.phase("biased"));
  }

  /** The number of the last step of a score that is done. @param {Key} key */
  scoreTold({ score, scaled, capped, masked }) {
    if (masked === null && this.phase("masked") > 0.5) return "−∞";
    if (masked !== null && this.phase("biased") > 0.5) return short(masked);
    if (this.phase("capped") > 0.5) return short(capped);
    return short(this.phase("scaled") > 0.5 ? scaled : score);
  }

  /** @param {Lane} lane @param {number} y */
  drawScore({ key, scoreAt }, y) {
    const grown = this.done(scoreAt);
    const { pen, layout, time } = this;
    const { lane, columns } = layout;
    if (!grown) return this.drawSlot(columns.scores, y);
    const isHidden = key.masked === null;
    const zero = this.xOf(0);
    const now = this.scoreNow(key);
    const inset = Math.min(7, lane * 0.22);
    const height = lane - 2 * inset;
    const isStairs = this.hasStairs && Math.ceil(time) === scoreAt;
    const { lowest, highest } = this.range();
    const tone = toneOf(now / Math.max(highest, -lowest));
    pen.save();
    if (isHidden) pen.globalAlpha *= 1 - this.phase("masked");
    pen.globalAlpha *= isStairs ? 0.35 : 1;
    pen.fillStyle = tone.fill;
    const end = between(zero, this.xOf(now), grown);
    pen.fillRect(Math.min(zero, end), y + inset, Math.max(1, Math.abs(end - zero)), height);
    pen.restore();
    if (isStairs) this.drawStairs(key, y + inset, height, grown);
    if (lowest < 0) this.rule(zero, y + 2, lane - 4);
    if (isHidden && this.phase("masked")) {
      const { x, width } = columns.scores;
      const box = { x, y: y + inset, width: width - layout.number, height };
      hatch(pen, box, inkOf("quiet"), this.phase("masked"));
    }
    if (grown < 0.6) return;
    const { scores } = columns;
    this.write(this.scoreTold(key), scores.x + scores.width, y + lane / 2 + 0.5, {
      align: "right",
    });
  }

  /**
   * The products of a score as stairs, that end where the score does.
   * @param {Key} key @param {number} y @param {number} height @param {number} grown
   */
  drawStairs(key, y, height, grown) {
    const { pen, row } = this;
    const steps = [0, ...stairsOf(row, key)];
    const step = height / row.q.length;
    const sizes = sizesOf(row, key);
    const most = Math.max(...sizes) || 1;
    row.q.forEach((each, at) => {
      const own = ease(grown * (row.q.length + 1) - at);
      if (!own) return;
      const from = this.xOf(steps[at]);
      const to = between(from, this.xOf(steps[at + 1]), own);
      pen.fillStyle = toneOf((0.4 + (0.6 * sizes[at]) / most) * Math.sign(each * key.k[at])).fill;
      pen.fillRect(Math.min(from, to), y + at * step, Math.max(1, Math.abs(to - from)), step - 0.5);
    });
  }

  /** The place of a bar that is not there yet. @param {Column} column @param {number} y */
  drawSlot({ x, width }, y) {
    const { number, lane } = this.layout;
    const inset = Math.min(7, lane * 0.22) + 0.5;
    this.pen.setLineDash([2, 4]);
    this.outline(x + 0.5, y + inset, width - number - 1, lane - 2 * inset, inkOf("rule"));
    this.pen.setLineDash([]);
  }

  /** @param {number} x @param {number} y @param {number} height */
  rule(x, y, height) {
    this.pen.fillStyle = inkOf("quiet");
    this.pen.fillRect(Math.round(x) - 0.5, y, 1, height);
  }

  /** @param {Lane} lane */
  weightNow({ power, weight }) {
    const before = (power / this.mostPower) * this.phase("power");
    // What is divided by a sum keeps its share of the largest.
    return between(before, weight / this.most, this.phase("weights"));
  }

  /** @param {number} weight */
  barOf(weight) {
    const { number, columns } = this.layout;
    return weight * (columns.weights.width - number);
  }

  /** @param {Lane} lane @param {number} y */
  drawWeight(lane, y) {
    const { pen, layout, begins } = this;
    const { x, width } = layout.columns.weights;
    const begin = begins.power ?? begins.weights;
    if (this.time <= begin - 1) return this.drawSlot(layout.columns.weights, y);
    const now = this.weightNow(lane);
    const inset = Math.min(7, layout.lane * 0.22);
    pen.fillStyle = weightColor(lane.weight);
    pen.fillRect(x, y + inset, Math.max(1, this.barOf(now)), layout.lane - 2 * inset);
    const isWeight = this.phase("weights") > 0.5;
    if (!isWeight && this.phase("power") < 0.5) return;
    const told = isWeight ? lane.weight : lane.power;
    const digits = layout.isNarrow ? 2 : 3;
    this.write(shortWeight(told, digits), x + width, y + layout.lane / 2 + 0.5, {
      align: "right",
      weight: isWeight ? 600 : 400,
    });
  }

  /** @param {Lane} lane @param {number} y */
  drawValue(lane, y) {
    const { pen, layout } = this;
    // Of a value as much is seen as it has weight.
    pen.globalAlpha = between(1, 0.12 + (0.88 * lane.weight) / this.most, this.phase("weights"));
    this.drawVector(lane.v, layout.columns.values, y + 4, layout.lane - 8, this.valueSize);
    pen.globalAlpha = 1;
  }

  /** The query: above the keys, or on its way over them. */
  drawQuery() {
    const { pen, layout, lanes, row } = this;
    const { keys, words } = layout.columns;
    const slides = lanes.reduce((y, lane, at) => {
      const { scoreAt } = lane;
      return lane.key ? between(y, this.yOf(at) + 2, ease((this.time - scoreAt + 1) / 0.4)) : y;
    }, HOME);
    const after = lanes.findLast(({ key }) => key).scoreAt;
    const y = between(slides, HOME, ease((this.time - after) / 0.5));
    const away = Math.min(1, Math.abs(y - HOME) / 20);
    const height = between(VECTOR, layout.lane * 0.42, away);
    this.write(`q(${row.word})`, words.x + words.width, HOME + VECTOR / 2, {
      align: "right",
      fill: inkOf("accent"),
      weight: 650,
      size: 13,
      room: words.width,
    });
    if (away) {
      pen.setLineDash([3, 3]);
      this.outline(keys.x + 0.5, HOME + 0.5, keys.width - 1, VECTOR - 1, inkOf("rule"));
      pen.setLineDash([]);
    }
    pen.fillStyle = inkOf("paper");
    pen.fillRect(keys.x - 3, y - 2, keys.width + 5, height + 4);
    this.drawVector(row.q, keys, y, height, this.size);
    this.outline(keys.x - 2, y - 2, keys.width + 3, height + 4, inkOf("accent"), 2);
  }

  /** Pixels of a weight of 1 in the vessel; sigmoids may have more to pour than one. */
  get room() {
    return (this.layout.columns.weights.width - this.layout.number) / Math.max(1, this.sum);
  }

  /**
   * A frame around a vector.
   * @param {number} x @param {number} y @param {number} width @param {number} height
   * @param {string} color
   * @param {number} [thick]  Where it is that of the query or the context
   */
  outline(x, y, width, height, color, thick) {
    const { pen } = this;
    pen.strokeStyle = color;
    pen.lineWidth = thick ?? 1;
    pen.beginPath();
    pen.roundRect(x, y, width, height, thick ? 4 : 0);
    pen.stroke();
  }

  /** The vessel that the weights are poured into, and the context that the values are mixed in. */
  drawFoot() {
    const { pen, layout, lanes } = this;
    const { weights, values } = layout.columns;
    const y = layout.bottom;
    const poured = this.phase("weights");
    const { room } = this;
    if (poured) {
      let x = weights.x;
      for (const lane of lanes) {
        const { weight } = lane;
        pen.fillStyle = weightColor(weight);
        pen.fillRect(x, y + VECTOR * (1 - poured), Math.max(0, weight * room - 1), VECTOR * poured);
        x += weight * room;
      }
    }
    const edge = poured ? inkOf("quiet") : inkOf("rule");
    this.outline(weights.x - 1.5, y - 1.5, weights.width - layout.number + 3, VECTOR + 3, edge);
    const total = poured === 1 ? ` = ${term(Number(this.sum.toFixed(3)))}` : "";
    this.write(`Σ p${total}`, weights.x, y + VECTOR + 15, { fill: inkOf("quiet") });
    this.drawContext(values, y);
  }

  /** @param {Column} column @param {number} y */
  drawContext(column, y) {
    const { layout, lanes, row } = this;
    this.outline(column.x - 1.5, y - 1.5, column.width + 2, VECTOR + 3, inkOf("rule"));
    this.write(`c(${row.word})`, column.x, y + VECTOR + 15, {
      fill: inkOf("accent"),
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
    if (thick) {
      this.outline(column.x - 2, y - 2, column.width + 3, VECTOR + 4, inkOf("accent"), thick);
    }
  }

  /** @param {number} x @param {number} y @param {(lane: number, column: string) => void} pointed */
  point(x, y, pointed) {
    const { columns, top, lane } = this.layout;
    const at = Math.floor((y - top) / lane);
    if (at < 0 || at >= this.lanes.length) return;
    pointed(at, x >= columns.weights.x ? "mix" : "score");
  }
}
