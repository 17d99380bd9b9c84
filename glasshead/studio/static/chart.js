// Charts over the steps of a training, which share one cross-hair.
import { element, fill, letterScale, moveOf, setAttributes } from "./dom.js";
import { markNode, svgNode } from "./marks.js";
import { grouped, range, significant, ticks, within } from "./numbers.js";

/** @import { Children } from "./dom.js" */
/** @import { Mark } from "./marks.js" */

/**
 * A chart as it is drawn at a width.
 * @typedef {object} Plot
 * @property {Mark[]} marks
 * @property {LegendEntry[]} [legend]
 * @property {number} height
 * @property {number[]} steps  Where the cross-hair can stand, in order
 * @property {(x: number) => number} stepAt  The step of a place
 * @property {ReturnType<typeof stepAxis>} x
 * @property {number} left
 * @property {number} right
 * @property {number[]} [rows]  Top of each row between which the cross-hair goes up and down
 * @property {number} [rowHeight]
 * @property {(cursor: Cursor) => {marks: Mark[], readout: Children}} crossed  The cross-hair, and
 *   the numbers where it stands
 */

/**
 * Draw a chart of some data.
 * @template Data
 * @typedef {(data: Data, width: number) => Plot} Plotter
 */

/**
 * What a legend names.
 * @typedef {object} LegendEntry
 * @property {string} label
 * @property {string} color
 * @property {string} [sign]  A letter in place of a line
 * @property {boolean} [dots]
 * @property {number} [width]
 * @property {number} [opacity]
 */

const LETTER = 11;
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
    /** @type {Set<Chart<any>>} */
    this.charts = new Set();
  }

  /** Stand at a step for a while, until the pointer leaves. @param {number | null} step */
  show(step) {
    this.step = step;
    for (const chart of this.charts) chart.cross();
  }

  /** @param {number | null} step */
  keep(step) {
    this.kept = step;
    this.remember({ at: step });
    this.show(step);
  }

  /** @param {number} row */
  choose(row) {
    if (row === this.row) return;
    this.row = row;
    this.remember({ head: row });
    this.show(this.step);
  }

  leave() {
    this.show(this.kept);
  }
}

/**
 * A heading, a drawing through which pointer and arrows lead the cross-hair, and the numbers where
 * it stands.
 * @template Data
 */
export class Chart {
  /**
   * @param {string} title @param {Cursor} cursor @param {Plotter<Data>} plotter
   * @param {string} heading  Tag of the heading
   */
  constructor(title, cursor, plotter, heading = "h3") {
    this.title = title;
    this.cursor = cursor;
    this.plotter = plotter;
    /** @type {Data | null} */
    this.data = null;
    /** @type {Plot | null} */
    this.plot = null;
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
    this.element = element("figure", { "data-panel": "" }, parts);
    new ResizeObserver(() => this.draw()).observe(this.frame);
    cursor.charts.add(this);
  }

  /** @param {Data} data */
  show(data) {
    this.data = data;
    this.draw();
  }

  draw() {
    const large = letterScale();
    const width = Math.floor(this.frame.clientWidth / large);
    if (!this.data || !width) return;
    this.plot = this.plotter(this.data, width);
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

  /** @param {KeyboardEvent} event */
  walk(event) {
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

  /** @param {PointerEvent} event */
  point(event) {
    const { cursor, plot } = this;
    if (!plot?.steps.length) return;
    const { x, y } = this.placeOf(event);
    const row = plot.rows?.findIndex((top) => y >= top && y < top + plot.rowHeight) ?? -1;
    if (row >= 0) cursor.choose(row);
    cursor.show(plot.stepAt(x));
  }

  /** Where an event is, in pixels of the plot. @param {MouseEvent} event */
  placeOf({ clientX, clientY }) {
    const box = this.frame.getBoundingClientRect();
    const large = letterScale();
    return { x: (clientX - box.left) / large, y: (clientY - box.top) / large };
  }
}

/**
 * The step that a key leads to from another.
 * @param {number[]} steps @param {number | null} step
 * @param {number} down  Pages, where `right` is 0
 * @param {number} right
 */
function nextStep(steps, step, down, right) {
  const now = step === null ? steps.length : steps.findLastIndex((each) => each <= step);
  const pages = -Math.sign(down) * Math.ceil(steps.length / PAGES);
  return steps[within(now + (right || pages), steps.length)];
}

/**
 * A number of the readout, and what it is of.
 * @param {string} name @param {string} label @param {number | string | null} value
 */
export function reading(name, label, value, text = significant(/** @type {number} */ (value))) {
  const attributes = { "data-name": name, "data-value": String(value) };
  return element("span.told", attributes, `${label} `, element("b", text));
}

/**
 * The axis of steps; a logarithmic one begins with step 1.
 * @param {number} from @param {number} to @param {number} left @param {number} right
 * @param {number} y @param {boolean} [logarithmic]
 */
export function stepAxis(from, to, left, right, y, logarithmic = false) {
  const low = logarithmic ? Math.max(1, from) : from;
  const bent = logarithmic ? Math.log : (/** @type {number} */ step) => step;
  const straight = logarithmic ? Math.exp : bent;
  const span = to > low ? bent(to) - bent(low) : 1;
  /** @param {number} step */
  const place = (step) => {
    const share = (bent(logarithmic ? Math.max(step, 0.5) : step) - bent(low)) / span;
    return left + share * (right - left);
  };
  /** @param {number} x */
  const stepAt = (x) => straight(bent(low) + ((x - left) / (right - left)) * span);
  /** @type {Mark[]} */
  const marks = [{ d: `M${left} ${y + 0.5}H${right}`, stroke: "quiet" }];
  const round = logarithmic ? powers : ticks;
  for (const step of round(low, to, Math.max(2, (right - left) / 90)).filter(Number.isInteger)) {
    const at = Math.round(place(step)) + 0.5;
    // Numbers at the ends stay within the chart.
    const inner = at < left + 12 ? "start" : "middle";
    const anchor = at > right - 18 ? "end" : inner;
    marks.push({ d: `M${at} ${y}v4`, stroke: "quiet" });
    marks.push(smallText(grouped(step), Math.min(at, right), y + 16, anchor));
  }
  return { marks, place, stepAt };
}

/**
 * Round numbers between two above 0, each some times the one before.
 * @param {number} low @param {number} high
 * @param {number} count  About how many
 */
export function powers(low, high, count) {
  const tens = range(Math.ceil(Math.log10(high)) - Math.floor(Math.log10(low)) + 1);
  const first = Math.floor(Math.log10(low));
  /** @param {number[]} digits */
  const withDigits = (digits) => {
    const all = tens.flatMap((at) => digits.map((digit) => digit * 10 ** (first + at)));
    const between = all.filter((each) => each >= low * 0.999 && each <= high * 1.001);
    return between.map((each) => Number(each.toPrecision(12)));
  };
  const found = [[1, 2, 5], [1, 3], [1]].map(withDigits);
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
  return { x, y, text, size: LETTER, fill: "quiet", anchor };
}

/**
 * The sign of an alarm, which points down at a place.
 * @param {number} x @param {number} y @returns {Mark}
 */
export function alarmAt(x, y) {
  return { d: `M${x - 5} ${y - 9}h10l-5 9z`, fill: "alarm", stroke: "paper" };
}

/** @param {number} x @param {number} y @param {string} color @returns {Mark} */
export function dot(x, y, color, radius = 2.6) {
  /** @param {number} wide */
  const half = (wide) => `a${radius} ${radius} 0 1 0 ${wide} 0`;
  const start = `M${(x - radius).toFixed(1)} ${y.toFixed(1)}`;
  return { d: `${start}${half(2 * radius)}${half(-2 * radius)}z`, fill: color, stroke: "none" };
}
