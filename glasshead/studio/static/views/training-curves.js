// Curves over steps, as a chart draws them.
import { alarmAt, axis, dot, reading, smallText, stepAxis } from "../chart.js";
import { letterScale } from "../dom.js";
import { clamped, grouped, significant } from "../numbers.js";

/** @import { Translate } from "../app.js" */
/** @import { Cursor, LegendEntry, Plot } from "../chart.js" */
/** @import { Mark } from "../marks.js" */

/**
 * @typedef {object} OwnCurve
 * @property {string} name @property {number[]} steps @property {number[]} values
 * @property {boolean} [unnamed]  Whether the legend leaves it out
 * @property {boolean} [below]  Whether it is drawn below the others
 * @property {string} [title]  Its name in the legend, where that is not its label
 *
 * @typedef {OwnCurve & LegendEntry} Curve
 */

/** @typedef {{x: number, y: number}} Point */

/** @typedef {{place: (value: number) => number}} Line  Where an axis has a number */

/**
 * What a chart of curves shows.
 * @typedef {object} CurvesData
 * @property {Curve[]} curves
 * @property {[number, number]} span  The first and the last step of the axis
 * @property {boolean} [logarithmicSteps]
 * @property {boolean} [logarithmic]  Of the values, where all of them are above 0
 * @property {number} [threshold]  Of the alarms
 * @property {number} height @property {number} [best]  A step
 * @property {number[]} [alarms]  Steps
 * @property {LegendEntry[]} [signs]  What the legend names in addition to the curves
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

// Curves, over the best step and under the alarms.
/** @param {Translate} t @param {CurvesData} data @param {number} width @returns {Plot} */
export function curvePlot(t, data, width) {
  const { curves, signs = [], span, best = null, alarms = [], threshold } = data;
  const height = highest(data.height);
  const right = width - RIGHT;
  const bottom = height - BOTTOM;
  const steps = [...new Set(curves.flatMap((curve) => curve.steps))];
  steps.sort((one, other) => one - other);
  const x = stepAxis(...span, LEFT, right, bottom, data.logarithmicSteps);
  const y = valueAxis(data, right, bottom);
  const named = curves.filter((curve) => !curve.unnamed);
  const legend = [...named.map((each) => ({ ...each, label: each.title ?? each.label })), ...signs];
  const isShown = isWithin(span);
  /** A line from top to bottom at a step. @param {number} step @param {Mark} look */
  const upright = (step, look) => {
    return { d: `M${Math.round(x.place(step)) + 0.5} ${TOP}V${bottom}`, ...look };
  };
  const isEmpty = !steps.some(isShown);
  const curvesOf = (/** @type {boolean} */ below) => {
    const some = curves.filter((curve) => Boolean(curve.below) === below);
    return some.flatMap((curve) => curveMarks(curve, x, y));
  };
  const marks = [
    ...x.marks,
    ...y.marks,
    ...(threshold === undefined ? [] : thresholdMarks(t, threshold, y, right)),
    ...(isShown(best) ? [upright(best, { stroke: "quiet", dash: "2 3" })] : []),
    ...(isEmpty ? [smallText(t("training.empty"), (LEFT + right) / 2, bottom - 6, "middle")] : []),
    ...curvesOf(true),
    ...curvesOf(false),
    ...alarms
      .filter(isShown)
      .flatMap((step) => [
        alarmAt(x.place(step), TOP),
        upright(step, { stroke: "alarm", dash: "5 3" }),
      ]),
  ];
  const stepAt = (/** @type {number} */ place) => {
    const step = x.stepAt(place);
    return steps.reduce((nearest, each) => {
      return Math.abs(each - step) < Math.abs(nearest - step) ? each : nearest;
    });
  };
  const crossed = (/** @type {Cursor} */ cursor) => {
    const step = cursor.step ?? steps.findLast(isShown) ?? steps.at(-1);
    const isHere = cursor.step !== null && isShown(step);
    const line = isHere ? [upright(step, { stroke: "ink", opacity: 0.6 })] : [];
    const dots = isHere ? curves.flatMap((curve) => dotAt(curve, step, x, y)) : [];
    return { marks: [...line, ...dots], readout: readings(t, curves, step) };
  };
  return { marks, legend: legend.length > 1 ? legend : [], height, steps, stepAt, x, crossed };
}

// How high a chart is: in a presentation, as high as the screen below the sentence of a tour.
export function highest(/** @type {number} */ usual) {
  const large = letterScale();
  const guide = getComputedStyle(document.documentElement).getPropertyValue("--guide");
  const free = (innerHeight - (parseFloat(guide) || 0)) / large - ELSEWHERE;
  return large > 1 ? Math.max(usual, free) : usual;
}

export function isWithin(/** @type {[number, number]} */ [from, to]) {
  return (/** @type {number | null} */ step) => step !== null && step >= from && step <= to;
}

/**
 * The threshold of the alarms: a line, or a number at the top where it is far above.
 * @param {Translate} t @param {number} threshold @param {Line} y @param {number} right
 * @returns {Mark[]}
 */
function thresholdMarks(t, threshold, { place }, right) {
  const y = Math.round(place(threshold)) + 0.5;
  const isFar = y < TOP;
  const name = t("training.threshold", { value: significant(threshold) });
  const label = smallText(isFar ? `${name} ↑` : name, right, isFar ? TOP - 1 : y - 4, "end");
  const look = { stroke: "alarm", width: 1.25, dash: "5 3" };
  const line = { d: `M${LEFT} ${y}H${right}`, ...look };
  return [...(isFar ? [] : [line]), { ...label, fill: "alarm" }];
}

// A curve as a line, which is broken where there is no number, and a few points as dots.
/** @param {Curve} curve @param {Plot["x"]} x @param {Line} y @returns {Mark[]} */
function curveMarks({ steps, values, color, dots, width = 1.5, opacity }, x, y) {
  const points = steps.map((step, at) => {
    const point = { x: x.place(step), y: y.place(values[at]) };
    return Number.isFinite(point.y) ? point : null;
  });
  const d = linePath(points, LEFT, x.right);
  const hasDots = dots && steps.length <= MOST_DOTS;
  const shown = points.filter((point) => {
    return hasDots && point && point.x >= LEFT - 0.01 && point.x <= x.right + 0.01;
  });
  const look = { stroke: color, width, opacity, "stroke-linejoin": "round" };
  return [...(d ? [{ d, ...look }] : []), ...shown.map((point) => dot(point.x, point.y, color))];
}

/** @param {Curve} curve @param {number} step @param {Line} x @param {Line} y */
function dotAt({ steps, values, color }, step, x, y) {
  const height = y.place(values[steps.lastIndexOf(step)]);
  return Number.isFinite(height) ? [dot(x.place(step), height, color, 3.2)] : [];
}

/** The numbers of curves at a step. @param {Translate} t @param {Curve[]} curves @param {number} step */
function readings(t, curves, step) {
  const all = curves.map(({ name, label, steps, values }) => {
    const place = steps.findLastIndex((each) => each <= step);
    if (place < 0) return null;
    const own = steps[place];
    // A curve without a number here tells its last one, and of which step that is.
    const before = t("training.at_step", { label, step: grouped(own) });
    return reading(name, own === step ? label : before, values[place]);
  });
  return [reading("step", t("training.step"), step, grouped(step)), ...all];
}

// A line through points, broken where there is none, and cut at the sides of the chart.
/** @param {(Point | null)[]} points @param {number} left @param {number} right */
function linePath(points, left, right) {
  const written = (/** @type {Point} */ { x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`;
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

// A point, or where the line from it to another comes into the chart.
/** @param {Point} point @param {Point} other @param {number} left @param {number} right */
function cut(point, other, left, right) {
  const x = clamped(point.x, left, right);
  if (x === point.x) return point;
  const share = (x - point.x) / (other.x - point.x);
  return { x, y: point.y + share * (other.y - point.y) };
}

// The axis of values, with a little room above and below, and none below 0 where no value is. It is
// that of the values within the span.
/** @param {CurvesData} data @param {number} right @param {number} bottom */
function valueAxis({ curves, span, threshold, logarithmic }, right, bottom) {
  const all = curves.flatMap((curve) => valuesWithin(curve, span));
  // A threshold that is far above would leave the curves no room.
  const reach = all.reduce((one, other) => Math.max(one, other), -Infinity);
  if (threshold !== undefined && threshold < 2 * reach) all.push(threshold);
  const low = all.length ? all.reduce((one, other) => Math.min(one, other)) : 0;
  const high = all.length ? all.reduce((one, other) => Math.max(one, other)) : 1;
  const isLogarithmic = logarithmic && low > 0;
  const room = (high - low) * 0.05 || Math.abs(low) * 0.1 || 0.5;
  const [from, to] = isLogarithmic
    ? [low / (high / low) ** 0.05 / 1.001, high * (high / low) ** 0.05 * 1.001]
    : [low < 0 ? low - room : Math.max(0, low - room), high + room];
  const { place, ticks } = axis(from, to, bottom, TOP, isLogarithmic);
  /** @type {Mark[]} */
  const marks = ticks(TICKS_APART, 3).flatMap((value) => {
    const y = Math.round(place(value)) + 0.5;
    const number = smallText(significant(value), LEFT - 7, y + 4, "end");
    return [{ d: `M${LEFT} ${y}H${right}`, stroke: "rule" }, number];
  });
  return { place, marks };
}

// The finite values of a curve within a span, and of its line at the ends of the span.
/** @param {Curve} curve @param {[number, number]} span */
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
