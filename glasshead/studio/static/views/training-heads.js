// The map of heads, as a chart draws it: a row a head, a column a step at which it was watched.
import { alarmAt, small, stepAxis, told } from "../chart.js";
import { ramp, scale } from "../colors.js";
import { count, short } from "../numbers.js";

const LEFT = 30, RIGHT = 10, KEY = 24, HEADING = 17, BOTTOM = 27;
// All heads together are about so high, in pixels, and one of them between these.
const HIGH = 420, LOWEST = 2, HIGHEST = 15;

export function mapped(t) {
  return ({ heads: { heads, layers, columns, measures }, measure, label, alarms }, left, top, width) => {
    const { values, range } = measures[measure];
    const high = Math.max(LOWEST, Math.min(HIGHEST, Math.floor(HIGH / heads.length)));
    const size = high > 6 ? high - 1 : high;
    const [x0, x1] = [left + LEFT, left + width - RIGHT];
    const nameOf = (layer) => layers[layer] || t("training.the_model");
    const { rows, bottom, marks: names } = listed(heads, nameOf, high, x0, top + KEY);
    // The last column is as wide as the others are in the mean.
    const firsts = columns.map(([first]) => first);
    const [first, last] = [firsts[0], columns.at(-1)[1]];
    const mean = columns.length > 1 ? (last - first) / (columns.length - 1) : 1;
    const x = stepAxis(first, last + mean, x0, x1, bottom + 3);
    const edges = [...firsts.map((each) => Math.round(x.place(each))), x1];
    const columnAt = (step) => Math.max(0, firsts.findLastIndex((each) => each <= step));
    const box = (from, to, y, tall) => `M${from} ${y}H${to}v${tall}H${from}z`;
    const cells = (row, column) => box(edges[column], Math.max(edges[column] + 1, edges[column + 1]), rows[row], size);
    const outlined = (from, to, row, look) => (
      { d: box(from - 1, to + 1, rows[row] - 1, size + 2), stroke: "ink", ...look });
    const crossed = (at) => {
      const row = Math.min(at.row, rows.length - 1);
      const column = at.step === null ? columns.length - 1 : columnAt(at.step);
      const between = [...new Set(columns[column])];
      const step = told("step", t("training.step"), between.join("-"), between.map(count).join("–"));
      const [layer, head] = heads[row];
      const crosses = [outlined(x0, x1, row, { opacity: 0.4 })];
      if (at.step !== null) crosses.push(outlined(edges[column], edges[column + 1], row, { width: 2 }));
      const named = told("head", nameOf(layer), row, t("training.head", { head }));
      return { marks: crosses, told: [step, named, told(measure, label, number(values[row][column]))] };
    };
    const marks = [
      ...key(range, x0, top), ...names, ...painted(values, range, cells), ...x.marks,
      ...alarms.map(({ step, row }) => alarmAt(x.place(step), rows[row] + 5)),
    ];
    const steps = columns.map(([, end]) => end);
    const stepAt = (place) => steps[columnAt(x.step(place))];
    return { marks, height: bottom + BOTTOM - top, steps, stepAt, rows, size, crossed };
  };
}

export function number(value) { return value === null ? null : Number(value); }

function listed(heads, nameOf, high, left, top) {
  const [rows, marks] = [[], []];
  let y = top - 9;
  heads.forEach(([layer, head], row) => {
    if (layer !== heads[row - 1]?.[0]) {
      y += HEADING + 5;
      marks.push(small(nameOf(layer), left, y - 5));
    }
    rows.push(y);
    if (high >= 10) marks.push(small(head, left - 7, y + high / 2 + 4, "end"));
    y += high;
  });
  return { rows, bottom: y, marks };
}

function painted(values, [low, high], cells) {
  const place = scale({ top: high - low });
  const paths = ramp().map(() => []);
  values.forEach((row, at) => row.map(number).forEach((value, column) => {
    if (value !== null && !Number.isNaN(value)) paths[place(value - low)].push(cells(at, column));
  }));
  const look = { stroke: "none", "shape-rendering": "crispEdges" };
  return paths.map((path, color) => ({ d: path.join(""), fill: ramp()[color], ...look })).filter(({ d }) => d);
}

function key([low, high], x, y) {
  const [from, colors] = [x + 46, ramp()];
  return [small(short(low, 3), from - 6, y + 11, "end"), small(short(high, 3), from + 2 * colors.length + 6, y + 11),
    ...colors.map((fill, at) => ({ x: from + 2 * at, y: y + 2, width: 2, height: 10, fill }))];
}
