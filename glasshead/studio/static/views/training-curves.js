// Curves over steps, as a chart draws them.
import { alarmAt, dot, legend, reading, smallText, stepAxis } from "../chart.js";
import { grouped, significant, ticks } from "../numbers.js";

/**
 * @import { Translate } from "../app.js"
 * @import { Cursor, LegendEntry, Plotter } from "../chart.js"
 * @import { Mark } from "../figure.js"
 */

/**
 * @typedef {object} OwnCurve
 * @property {string} name
 * @property {number[]} steps
 * @property {number[]} values
 *
 * @typedef {OwnCurve & LegendEntry} Curve
 */

/**
 * What a chart of curves shows.
 * @typedef {object} CurvesData
 * @property {Curve[]} curves
 * @property {number} to  The last step of the axis
 * @property {number} height
 * @property {number} [best]  A step
 * @property {number[]} [alarms]  Steps
 * @property {LegendEntry[]} [signs]  What the legend names beside the curves
 */

/** @typedef {ReturnType<typeof stepAxis>} StepAxis */
/** @typedef {ReturnType<typeof valueAxis>} ValueAxis */

const LEFT = 54;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 24;
// So many points have room for a dot each.
const MOST_DOTS = 80;
// Pixels between two numbers of the axis of values.
const TICKS_APART = 34;

/**
 * A plotter of curves.
 * @param {Translate} t
 * @returns {Plotter<CurvesData>}
 */
export function curvePlotter(t) {
  return (data, left, top, width) => new CurvePlot(t, data, left, top, width);
}

class CurvePlot {
  /**
   * @param {Translate} t
   * @param {CurvesData} data
   * @param {number} left
   * @param {number} top
   * @param {number} width
   */
  constructor(t, data, left, top, width) {
    const { curves, signs = [] } = data;
    this.t = t;
    this.data = data;
    const entries = [...curves, ...signs];
    const names = legend(entries.length > 1 ? entries : [], left, top, width);
    this.height = names.height + data.height;
    this.left = left + LEFT;
    this.right = left + width - RIGHT;
    this.top = top + names.height + TOP;
    this.bottom = top + this.height - BOTTOM;
    this.steps = [...new Set(curves.flatMap((curve) => curve.steps))];
    this.steps.sort((one, other) => one - other);
    this.x = stepAxis(0, data.to, this.left, this.right, this.bottom);
    this.y = valueAxis(curves, this.top, this.bottom);
    this.marks = [...names.marks, ...this.axisMarks(), ...this.dataMarks()];
  }

  axisMarks() {
    return [...this.x.marks, ...this.y.marks(this.left, this.right)];
  }

  /** The curves, over the best step and under the alarms. */
  dataMarks() {
    const { curves, best = null, alarms = [] } = this.data;
    const bestMark = { stroke: "quiet", "stroke-dasharray": "2 3" };
    return [
      ...(best === null ? [] : [this.upright(best, bestMark)]),
      ...curves.flatMap((curve) => curveMarks(curve, this.x, this.y)),
      ...alarms.flatMap((step) => [
        alarmAt(this.x.place(step), this.top),
        this.upright(step, { stroke: "alarm", opacity: 0.5 }),
      ]),
    ];
  }

  /**
   * A line from top to bottom at a step.
   * @param {number} step
   * @param {Mark} look
   * @returns {Mark}
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
    const step = cursor.step ?? this.steps.at(-1);
    /** @type {Mark[]} */
    const marks = [];
    const readout = [reading("step", t("training.step"), step, grouped(step))];
    if (cursor.step !== null && step <= data.to) {
      marks.push(this.upright(step, { stroke: "ink", opacity: 0.6 }));
    }
    for (const { name, label, color, steps, values } of data.curves) {
      const place = steps.findLastIndex((each) => each <= step);
      if (place < 0) continue;
      const own = steps[place];
      const value = values[place];
      if (own === cursor.step && Number.isFinite(value)) {
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
 * A curve as a line, which is broken where there is no number, and a few points as dots.
 * @param {Curve} curve
 * @param {StepAxis} x
 * @param {ValueAxis} y
 * @returns {Mark[]}
 */
function curveMarks({ steps, values, color, dots, width = 1.5, opacity }, x, y) {
  const points = steps.map((step, at) => {
    const value = values[at];
    return Number.isFinite(value) ? { x: x.place(step), y: y.place(value) } : null;
  });
  const parts = points.map((point, at) => {
    if (!point) return "";
    return `${points[at - 1] ? "L" : "M"}${point.x.toFixed(1)} ${point.y.toFixed(1)}`;
  });
  const d = parts.join("");
  if (!d) return [];
  const hasDots = dots && steps.length <= MOST_DOTS;
  const shown = hasDots ? points.filter(Boolean) : [];
  const look = { stroke: color, width, opacity, "stroke-linejoin": "round" };
  return [{ d, ...look }, ...shown.map((point) => dot(point.x, point.y, color))];
}

/**
 * The axis of values, with a little room above and below, and none below 0 where no value is.
 * @param {Curve[]} curves
 * @param {number} top
 * @param {number} bottom
 */
function valueAxis(curves, top, bottom) {
  const all = curves.flatMap(({ values }) => values).filter(Number.isFinite);
  const low = all.length ? all.reduce((one, other) => Math.min(one, other)) : 0;
  const high = all.length ? all.reduce((one, other) => Math.max(one, other)) : 1;
  const room = (high - low) * 0.05 || Math.abs(low) * 0.1 || 0.5;
  const from = low < 0 ? low - room : Math.max(0, low - room);
  const to = high + room;
  /** @param {number} value */
  const place = (value) => bottom - ((value - from) / (to - from)) * (bottom - top);
  /**
   * @param {number} left
   * @param {number} right
   * @returns {Mark[]}
   */
  const marks = (left, right) => {
    const count = Math.max(2, (bottom - top) / TICKS_APART);
    return ticks(from, to, count).flatMap((value) => {
      const y = Math.round(place(value)) + 0.5;
      const number = smallText(significant(value), left - 7, y + 4, "end");
      return [{ d: `M${left} ${y}H${right}`, stroke: "rule" }, number];
    });
  };
  return { place, marks };
}
