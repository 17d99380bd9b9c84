// Curves over steps, as a chart draws them.
import { alarmAt, dot, powers, reading, smallText, stepAxis } from "../chart.js";
import { letterScale } from "../dom.js";
import { clamped, grouped, significant, ticks } from "../numbers.js";

/** @import { Translate } from "../app.js" */
/** @import { Cursor, LegendEntry, Plotter } from "../chart.js" */
/** @import { Mark } from "../marks.js" */

/**
 * @typedef {object} OwnCurve
 * @property {string} name
 * @property {number[]} steps
 * @property {number[]} values
 * @property {boolean} [unnamed]  Whether the legend leaves it out
 * @property {boolean} [below]  Whether it is drawn below the others
 * @property {string} [run]  Of several, the run that it is of
 * @property {string} [title]  Its name in the legend, where that is not its label
 *
 * @typedef {OwnCurve & LegendEntry} Curve
 */

/** @typedef {{x: number, y: number}} Point */

/**
 * What a chart of curves shows.
 * @typedef {object} CurvesData
 * @property {Curve[]} curves
 * @property {[number, number]} span  The first and the last step of the axis
 * @property {boolean} [logarithmicSteps]
 * @property {boolean} [logarithmic]  Of the values, where all of them are above 0
 * @property {number} [threshold]  Of the alarms
 * @property {number} height
 * @property {number} [best]  A step
 * @property {number[]} [alarms]  Steps
 * @property {LegendEntry[]} [signs]  What the legend names beside the curves
 */

const LEFT = 54;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 24;
// So many points have room for a dot each.
const MOST_DOTS = 80;
// Of the height of a screen, in pixels, what is not a chart.
const ELSEWHERE = 170;
// Pixels between two numbers of the axis of values.
const TICKS_APART = 34;

/** A plotter of curves. @param {Translate} t @returns {Plotter<CurvesData>} */
export function curvePlotter(t) {
  return (data, width) => new CurvePlot(t, data, width);
}

class CurvePlot {
  /** @param {Translate} t @param {CurvesData} data @param {number} width */
  constructor(t, data, width) {
    const { curves, signs = [], span, logarithmicSteps } = data;
    this.t = t;
    this.data = data;
    const named = curves.filter((curve) => !curve.unnamed);
    const titled = named.map((curve) => ({ ...curve, label: curve.title ?? curve.label }));
    const entries = [...titled, ...signs];
    this.legend = entries.length > 1 ? entries : [];
    const large = letterScale();
    // In a presentation it has the screen to itself.
    this.height = large > 1 ? Math.max(data.height, innerHeight / large - ELSEWHERE) : data.height;
    this.left = LEFT;
    this.right = width - RIGHT;
    this.top = TOP;
    this.bottom = this.height - BOTTOM;
    this.steps = [...new Set(curves.flatMap((curve) => curve.steps))];
    this.steps.sort((one, other) => one - other);
    this.x = stepAxis(...span, this.left, this.right, this.bottom, logarithmicSteps);
    this.y = valueAxis(data, this.top, this.bottom);
    this.marks = [...this.axisMarks(), ...this.dataMarks()];
  }

  axisMarks() {
    return [...this.x.marks, ...this.y.marks(this.left, this.right)];
  }

  /** The curves, over the best step and under the alarms. */
  dataMarks() {
    const { curves, best = null, alarms = [] } = this.data;
    const bestMark = { stroke: "quiet", dash: "2 3" };
    return [
      ...this.thresholdMarks(),
      ...(best === null || !this.isShown(best) ? [] : [this.upright(best, bestMark)]),
      ...curves.filter((curve) => curve.below).flatMap((curve) => this.curveMarks(curve)),
      ...curves.filter((curve) => !curve.below).flatMap((curve) => this.curveMarks(curve)),
      ...alarms
        .filter((step) => this.isShown(step))
        .flatMap((step) => [
          alarmAt(this.x.place(step), this.top),
          this.upright(step, { stroke: "alarm", opacity: 0.5 }),
        ]),
    ];
  }

  /** @param {number} step */
  isShown(step) {
    const [from, to] = this.data.span;
    return step >= from && step <= to;
  }

  /** The threshold of the alarms: a line, or a number at the top where it is far above. */
  thresholdMarks() {
    const { threshold } = this.data;
    if (threshold === undefined) return [];
    const y = Math.round(this.y.place(threshold)) + 0.5;
    const isFar = y < this.top;
    const name = this.t("training.threshold", { value: significant(threshold) });
    const at = isFar ? this.top + 10 : y - 4;
    const label = { ...smallText(isFar ? `${name} ↑` : name, this.right, at, "end") };
    const text = { ...label, fill: "alarm" };
    if (isFar) return [text];
    const look = { stroke: "alarm", width: 1.25, dash: "5 3" };
    return [{ d: `M${this.left} ${y}H${this.right}`, ...look }, text];
  }

  /**
   * A curve as a line, which is broken where there is no number, and a few points as dots.
   * @param {Curve} curve @returns {Mark[]}
   */
  curveMarks({ steps, values, color, dots, width = 1.5, opacity }) {
    const points = steps.map((step, at) => {
      const value = this.y.shown(values[at]);
      return Number.isFinite(value) ? { x: this.x.place(step), y: this.y.place(value) } : null;
    });
    const d = linePath(points, this.left, this.right);
    const hasDots = dots && steps.length <= MOST_DOTS;
    const inner = points.filter((point) => {
      return point && point.x >= this.left - 0.01 && point.x <= this.right + 0.01;
    });
    const shown = hasDots ? inner : [];
    const look = { stroke: color, width, opacity, "stroke-linejoin": "round" };
    return [...(d ? [{ d, ...look }] : []), ...shown.map((point) => dot(point.x, point.y, color))];
  }

  /**
   * A line from top to bottom at a step.
   * @param {number} step @param {Mark} look @returns {Mark}
   */
  upright(step, look) {
    const x = Math.round(this.x.place(step)) + 0.5;
    return { d: `M${x} ${this.top}V${this.bottom}`, ...look };
  }

  /** @param {number} x */
  stepAt(x) {
    const step = this.x.stepAt(x);
    return this.steps.reduce((nearest, each) => {
      return Math.abs(each - step) < Math.abs(nearest - step) ? each : nearest;
    });
  }

  /** @param {Cursor} cursor */
  crossed(cursor) {
    const { t, data } = this;
    const last = this.steps.findLast((each) => this.isShown(each)) ?? this.steps.at(-1);
    const step = cursor.step ?? last;
    /** @type {Mark[]} */
    const marks = [];
    const readout = [reading("step", t("training.step"), step, grouped(step))];
    if (cursor.step !== null && this.isShown(step)) {
      marks.push(this.upright(step, { stroke: "ink", opacity: 0.6 }));
    }
    for (const { name, label, color, steps, values } of data.curves) {
      const place = steps.findLastIndex((each) => each <= step);
      if (place < 0) continue;
      const own = steps[place];
      const value = values[place];
      if (own === cursor.step && this.isShown(own) && Number.isFinite(this.y.shown(value))) {
        marks.push(dot(this.x.place(step), this.y.place(value), color, 3.2));
      }
      // A curve without a number here tells its last one, and of which step that is.
      const before = t("training.at_step", { label, step: grouped(own) });
      readout.push(reading(name, own === step ? label : before, value));
    }
    return { marks, readout };
  }
}

/**
 * A line through points, broken where there is none, and cut at the sides of the chart.
 * @param {(Point | null)[]} points @param {number} left @param {number} right
 */
function linePath(points, left, right) {
  /** @param {Point} point */
  const written = ({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  let isDown = false;
  return points.reduce((path, point, at) => {
    const before = points[at - 1];
    if (!point || !before) {
      isDown = false;
      return path;
    }
    const start = cut(before, point, left, right);
    const end = cut(point, before, left, right);
    const isSeen = point.x >= left && before.x <= right;
    const from = isSeen && !isDown ? `M${written(start)}` : "";
    isDown = isSeen;
    return isSeen ? `${path}${from}L${written(end)}` : path;
  }, "");
}

/**
 * A point, or where the line from it to another comes into the chart.
 * @param {Point} point @param {Point} other @param {number} left @param {number} right
 */
function cut(point, other, left, right) {
  const x = clamped(point.x, left, right);
  if (x === point.x) return point;
  const share = (x - point.x) / (other.x - point.x);
  return { x, y: point.y + share * (other.y - point.y) };
}

/**
 * The axis of values, with a little room above and below, and none below 0 where no value is. It is
 * that of the values within the span.
 * @param {CurvesData} data @param {number} top @param {number} bottom
 */
function valueAxis(data, top, bottom) {
  const all = data.curves.flatMap((curve) => valuesWithin(curve, data.span));
  const { threshold } = data;
  // A threshold that is far above would leave the curves no room.
  const reach = all.reduce((one, other) => Math.max(one, other), -Infinity);
  if (threshold !== undefined && threshold < 2 * reach) all.push(threshold);
  const low = all.length ? all.reduce((one, other) => Math.min(one, other)) : 0;
  const high = all.length ? all.reduce((one, other) => Math.max(one, other)) : 1;
  const isLogarithmic = Boolean(data.logarithmic) && low > 0;
  const room = (high - low) * 0.05 || Math.abs(low) * 0.1 || 0.5;
  const [from, to] = isLogarithmic
    ? [low / (high / low) ** 0.05 / 1.001, high * (high / low) ** 0.05 * 1.001]
    : [low < 0 ? low - room : Math.max(0, low - room), high + room];
  const bent = isLogarithmic ? Math.log : (/** @type {number} */ value) => value;
  /** @param {number} value */
  const place = (value) => {
    return bottom - ((bent(value) - bent(from)) / (bent(to) - bent(from))) * (bottom - top);
  };
  /** A value, or NaN where the axis has no place for it. @param {number} value */
  const shown = (value) => (isLogarithmic && value <= 0 ? NaN : value);
  /** @param {number} left @param {number} right @returns {Mark[]} */
  const marks = (left, right) => {
    const count = Math.max(3, (bottom - top) / TICKS_APART);
    return (isLogarithmic ? powers : ticks)(from, to, count).flatMap((value) => {
      const y = Math.round(place(value)) + 0.5;
      const number = smallText(significant(value), left - 7, y + 4, "end");
      return [{ d: `M${left} ${y}H${right}`, stroke: "rule" }, number];
    });
  };
  return { place, marks, shown };
}

/**
 * The finite values of a curve within a span, and of its line at the ends of the span.
 * @param {Curve} curve @param {[number, number]} span
 */
function valuesWithin({ steps, values }, span) {
  const points = steps.map((x, at) => ({ x, y: values[at] }));
  const inside = points.filter(({ x }) => x >= span[0] && x <= span[1]);
  const ends = span.flatMap((end) => {
    const at = points.findIndex(({ x }) => x > end);
    return at > 0 ? [cut(points[at], points[at - 1], -Infinity, end)] : [];
  });
  const some = [...inside, ...ends].map(({ y }) => y).filter(Number.isFinite);
  return some.length ? some : values.filter(Number.isFinite);
}
