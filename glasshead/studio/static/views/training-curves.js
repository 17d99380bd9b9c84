// Curves over steps, as a chart draws them.
import { alarmAt, dot, legend, small, stepAxis, told } from "../chart.js";
import { count, short, ticks } from "../numbers.js";

const LEFT = 54, RIGHT = 10, TOP = 10, BOTTOM = 24;
// So many points have room for a dot each.
const DOTTED = 80;

/** A plan (chart.js) of curves {name, label, steps, values, color, width, opacity, dots}, `to` a step; `best` is one,
 * `alarms` are some; the legend has the curves and `signs`, where these are several. */
export function plotted(t) {
  return (spec, left, top, width) => {
    const { curves, signs = [], best = null, alarms = [] } = spec;
    const names = legend(curves.length + signs.length > 1 ? [...curves, ...signs] : [], left, top, width);
    const height = names.height + spec.height;
    const [x0, x1, y0, y1] = [left + LEFT, left + width - RIGHT, top + names.height + TOP, top + height - BOTTOM];
    const x = stepAxis(0, spec.to, x0, x1, y1);
    const y = upwards(curves, y0, y1);
    const upright = (step, rest) => ({ d: `M${Math.round(x.place(step)) + 0.5} ${y0}V${y1}`, ...rest });
    const marks = [
      ...names.marks, ...x.marks, ...y.marks(x0, x1),
      ...(best === null ? [] : [upright(best, { stroke: "quiet", "stroke-dasharray": "2 3" })]),
      ...curves.flatMap((curve) => lineOf(curve, x, y)),
      ...alarms.flatMap((step) => [alarmAt(x.place(step), y0), upright(step, { stroke: "alarm", opacity: 0.5 })]),
    ];
    const steps = [...new Set(curves.flatMap((curve) => curve.steps))].sort((a, b) => a - b);
    const stepAt = (place) => {
      const step = x.step(place);
      return steps.reduce((near, each) => (Math.abs(each - step) < Math.abs(near - step) ? each : near));
    };
    const crossed = (at) => {
      const step = at.step ?? steps.at(-1);
      const line = [], numbers = [told("step", t("training.step"), step, count(step))];
      if (at.step !== null && step <= spec.to) line.push(upright(step, { stroke: "ink", opacity: 0.6 }));
      for (const { name, label, color, ...curve } of curves) {
        const place = curve.steps.findLastIndex((each) => each <= step);
        if (place < 0) continue;
        const [there, value] = [curve.steps[place], curve.values[place]];
        if (there === at.step && Number.isFinite(value)) line.push(dot(x.place(step), y.place(value), color, 3.2));
        numbers.push(told(name, there === step ? label : t("training.at_step", { label, step: count(there) }), value));
      }
      return { marks: line, told: numbers };
    };
    return { marks, height, steps, stepAt, crossed };
  };
}

function lineOf({ steps, values, color, dots, width = 1.5, opacity }, x, y) {
  const points = steps.map((step, at) => Number.isFinite(values[at]) && [x.place(step), y.place(values[at])]);
  // The pen is lifted where there is no number.
  const said = (point) => point.map((each) => each.toFixed(1)).join(" ");
  const d = points.map((point, at) => (point ? (points[at - 1] ? "L" : "M") + said(point) : "")).join("");
  const dotted = dots && steps.length <= DOTTED ? points.filter(Boolean).map((point) => dot(...point, color)) : [];
  return d ? [{ d, stroke: color, width, opacity, "stroke-linejoin": "round" }, ...dotted] : [];
}

function upwards(curves, y0, y1) {
  const all = curves.flatMap(({ values }) => values).filter(Number.isFinite);
  const most = (sign) => sign * all.reduce((most, each) => Math.max(most, sign * each), -Infinity);
  const [low, high] = all.length ? [most(-1), most(1)] : [0, 1];
  const room = (high - low) * 0.05 || Math.abs(low) * 0.1 || 0.5;
  const [from, to] = [low < 0 ? low - room : Math.max(0, low - room), high + room];
  const place = (value) => y1 - ((value - from) / (to - from)) * (y1 - y0);
  const marks = (left, right) => ticks(from, to, Math.max(2, (y1 - y0) / 34)).flatMap((value) => {
    const at = Math.round(place(value)) + 0.5;
    return [{ d: `M${left} ${at}H${right}`, stroke: "rule" }, small(short(value), left - 7, at + 4, "end")];
  });
  return { place, marks };
}
