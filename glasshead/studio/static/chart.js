// Charts over the steps of a training, which share one cross-hair.
import { element, fill, letterScale, moveOf, placeIn, setAttributes } from "./dom.js";
import { markNode, svgNode } from "./marks.js";
import { grouped, range, significant, ticks, within } from "./numbers.js";

/** @import { Children } from "./dom.js" */
/** @import { Mark } from "./marks.js" */

/**
 * A chart as it is drawn at a width.
 * @typedef {object} Plot
 * @property {Mark[]} marks @property {LegendEntry[]} [legend] @property {number} height
 * @property {number[]} steps  Where the cross-hair can stand, in order
 * @property {(x: number) => number} stepAt  The nearest of them to a place
 * @property {ReturnType<typeof stepAxis>} x
 * @property {number[]} [rows]  Top of each row between which the cross-hair goes up and down
 * @property {number} [rowHeight]
 * @property {(cursor: Cursor) => {marks: Mark[], readout: Children}} crossed  The cross-hair, and
 *   the numbers where it stands
 */

/**
 * What a legend names; a sign is a letter in place of a line.
 * @typedef {{label: string, color: string, sign?: string, dots?: boolean, width?: number,
 *   opacity?: number}} LegendEntry
 */

// The size of letters; those of a presentation are still larger, as a chart fills the screen.
const LETTER = 11;
const LARGE_LETTER = 14;
// The share of all steps that PageUp and PageDown go by.
const PAGES = 10;

/** Where the cross-hair of all charts stands: at a step, null being the last one, and in a row. */
export class Cursor {
  /**
   * @param {number | null} step @param {number} row
   * @param {(changes: {at: number | null} | {head: number}) => void} remember
   */
  constructor(step, row, remember) {
    this.step = step;
    this.row = row;
    this.remember = remember;
    this.kept = step;
    this.charts = /** @type {Set<Chart>} */ (new Set());
  }

  /** Stand at a step for a while, until the pointer leaves. @param {number | null} step */
  show(step) {
    this.step = step;
    for (const chart of this.charts) chart.cross();
  }

  keep(/** @type {number | null} */ step) {
    this.kept = step;
    this.remember({ at: step });
    this.show(step);
  }

  choose(/** @type {number} */ row) {
    if (row === this.row) return;
    this.row = row;
    this.remember({ head: row });
    this.show(this.step);
  }

  leave() {
    this.show(this.kept);
  }
}

// A heading, a drawing through which pointer and arrows lead the cross-hair, and the numbers where
// it stands.
export class Chart {
  /**
   * @param {string} title @param {Cursor} cursor @param {(width: number) => Plot} plotter
   * @param {string} heading  Tag of the heading
   */
  constructor(title, cursor, plotter, heading = "h3") {
    this.cursor = cursor;
    this.plotter = plotter;
    this.plot = /** @type {Plot | null} */ (null);
    this.picture = svgNode("svg", { class: "picture", "aria-hidden": "true" });
    this.crossHair = svgNode("svg", { class: "cross", "aria-hidden": "true" });
    this.legend = element("p.legend");
    this.readout = element("p.readout");
    this.frame = element(
      "div.plot",
      {
        tabindex: 0,
        role: "slider",
        "aria-label": title,
        "aria-valuemin": 0,
        "aria-valuemax": 0,
        "aria-valuenow": 0,
        onkeydown: (event) => this.walk(event),
        onpointermove: (event) => this.point(event),
        onpointerleave: () => cursor.leave(),
      },
      this.picture,
      this.crossHair,
    );
    const parts = [element(heading, title), this.legend, this.frame, this.readout];
    this.element = element("figure", parts);
    new ResizeObserver(() => this.draw()).observe(this.frame);
    cursor.charts.add(this);
  }

  draw() {
    const large = letterScale();
    const width = Math.floor(this.frame.clientWidth / large);
    if (!width) return;
    this.plot = this.plotter(width);
    const { height } = this.plot;
    const size = { width: width * large, height: height * large };
    for (const each of [this.picture, this.crossHair]) {
      setAttributes(each, { ...size, viewBox: `0 0 ${width} ${height}` });
    }
    this.picture.replaceChildren(...this.plot.marks.map(markNode));
    fill(this.legend, this.plot.legend?.map(keyOf));
    this.cross();
  }

  /** Draw the cross-hair, and tell the numbers where it stands. */
  cross() {
    if (!this.plot?.steps.length) return;
    const { marks, readout } = this.plot.crossed(this.cursor);
    this.crossHair.replaceChildren(...marks.map(markNode));
    fill(this.readout, readout);
    const [first, last] = [this.plot.steps[0], this.plot.steps.at(-1)];
    setAttributes(this.frame, {
      "aria-valuemin": first,
      "aria-valuemax": last,
      "aria-valuenow": this.cursor.step ?? last,
      "aria-valuetext": this.readout.textContent,
    });
  }

  walk(/** @type {KeyboardEvent} */ event) {
    if (!this.plot?.steps.length) return;
    const { cursor } = this;
    const { steps, rows } = this.plot;
    const [down, right] = moveOf(event) ?? [0, 0];
    const isAlong = right !== 0 || Math.abs(down) > 1;
    if (event.key === "Escape" && cursor.kept !== null) cursor.keep(null);
    else if (isAlong) cursor.keep(nextStep(steps, cursor.step, down, right));
    else if (down && rows) cursor.choose(within(cursor.row + down, rows.length));
    else return;
    event.preventDefault();
  }

  point(/** @type {PointerEvent} */ event) {
    const { cursor, plot } = this;
    if (!plot?.steps.length) return;
    const { x, y } = placeIn(this.frame, event);
    const row = plot.rows?.findIndex((top) => y >= top && y < top + plot.rowHeight) ?? -1;
    if (row >= 0) cursor.choose(row);
    cursor.show(plot.stepAt(x));
  }
}

// The step that a key leads to from another; `down` counts in pages, where `right` is 0.
/** @param {number[]} steps @param {number} step @param {number} down @param {number} right */
function nextStep(steps, step, down, right) {
  const now = step === null ? steps.length : steps.findLastIndex((each) => each <= step);
  const pages = -Math.sign(down) * Math.ceil(steps.length / PAGES);
  return steps[within(now + (right || pages), steps.length)];
}

/** @param {string} name @param {string} label @param {number | string | null} value */
export function reading(name, label, value, text = significant(/** @type {number} */ (value))) {
  const attributes = { "data-name": name, "data-value": String(value) };
  return element("span.told", attributes, `${label} `, element("b", text));
}

/**
 * Places of numbers between two ends, in pixels.
 * @param {number} low @param {number} high @param {number} start @param {number} end
 * @param {boolean} logarithmic
 */
export function axis(low, high, start, end, logarithmic) {
  const [bent, straight] = logarithmic ? [Math.log, Math.exp] : [Number, Number];
  const pixels = (end - start) / (bent(high) - bent(low) || 1);
  return {
    place: (/** @type {number} */ value) => start + (bent(value) - bent(low)) * pixels,
    valueAt: (/** @type {number} */ place) => straight(bent(low) + (place - start) / pixels),
    /** Round numbers. @param {number} apart  About so many pixels @param {number} least */
    ticks(apart, least) {
      const count = Math.max(least, Math.abs(end - start) / apart);
      const round = logarithmic ? powers : ticks;
      const found = round(low, high, count);
      // A number alone is no scale.
      return found.length > 1 ? found : round(low, high, 2 * count);
    },
  };
}

/**
 * The axis of steps; a logarithmic one begins with step 1.
 * @param {number} from @param {number} to @param {number} left @param {number} right
 * @param {number} y
 */
export function stepAxis(from, to, left, right, y, logarithmic = false) {
  const line = axis(logarithmic ? Math.max(1, from) : from, to, left, right, logarithmic);
  /** @param {number} step */
  const place = (step) => line.place(logarithmic ? Math.max(step, 0.5) : step);
  const marks = /** @type {Mark[]} */ ([{ d: `M${left} ${y + 0.5}H${right}`, stroke: "quiet" }]);
  for (const step of line.ticks(90, 2).filter(Number.isInteger)) {
    const at = Math.round(place(step)) + 0.5;
    // Numbers at the ends stay within the chart.
    const inner = at < left + 12 ? "start" : "middle";
    const anchor = at > right - 18 ? "end" : inner;
    marks.push({ d: `M${at} ${y}v4`, stroke: "quiet" });
    marks.push(smallText(grouped(step), Math.min(at, right), y + 16, anchor));
  }
  return { marks, place, stepAt: line.valueAt, left, right };
}

// Round numbers between two above 0, each some times the one before.
/** @param {number} low @param {number} high @param {number} count  About how many */
export function powers(low, high, count) {
  const first = Math.floor(Math.log10(low));
  const tens = range(Math.ceil(Math.log10(high)) - first + 1).map((at) => 10 ** (first + at));
  const found = [[1, 2, 5], [1, 3], [1]].map((digits) => {
    const all = tens.flatMap((ten) => digits.map((each) => Number((each * ten).toPrecision(12))));
    return all.filter((each) => each >= low * 0.999 && each <= high * 1.001);
  });
  const few = found.find((each) => each.length <= 1.5 * count) ?? found.at(-1);
  return few.length > 1 ? few : ticks(low, high, count);
}

/** A legend's entry: a sample of the curve or the sign, and its name. @param {LegendEntry} entry */
function keyOf({ label, color, sign, dots, width, opacity }) {
  /** @type {Mark[]} */
  const marks = sign
    ? [{ ...smallText(sign, 9, 9, "middle"), fill: color }]
    : [{ d: "M0 5h18", stroke: color, width, opacity }];
  if (dots) marks.push(dot(9, 5, color));
  const look = { viewBox: "0 0 18 10", "aria-hidden": "true" };
  return element("span.key", svgNode("svg", look, ...marks.map(markNode)), label);
}

/**
 * @param {string | number} text @param {number} x @param {number} y @param {string} [anchor]
 * @returns {Mark}
 */
export function smallText(text, x, y, anchor) {
  return { x, y, text, size: letterScale() > 1 ? LARGE_LETTER : LETTER, fill: "quiet", anchor };
}

// The sign of an alarm, which points down at a place.
/** @param {number} x @param {number} y @returns {Mark} */
export function alarmAt(x, y) {
  return { d: `M${x - 5} ${y - 9}h10l-5 9z`, fill: "alarm", stroke: "paper" };
}

/** @param {number} x @param {number} y @param {string} color @returns {Mark} */
export function dot(x, y, color, radius = 2.6) {
  const half = `a${radius} ${radius} 0 1 1`;
  const d = `M${x - radius} ${y}${half} ${2 * radius} 0${half} ${-2 * radius} 0`;
  return { d, fill: color, stroke: "none" };
}
