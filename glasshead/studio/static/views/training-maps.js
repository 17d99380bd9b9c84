// The map of heads, as a chart draws it: a row a head, a column a step at which it was watched.
import { alarmAt, reading, smallText, stepAxis } from "../chart.js";
import { ramp, scale } from "../colors.js";
import { letterScale } from "../dom.js";
import { clamped, grouped, significant } from "../numbers.js";
import { highest, isWithin } from "./training-curves.js";

/** @import { Translate } from "../app.js" */
/** @import { Cursor, Plot } from "../chart.js" */
/** @import { Mark } from "../marks.js" */

// A number in an answer: those that JSON does not know are texts.
/** @typedef {number | "NaN" | "Infinity" | "-Infinity" | null} Written */

/**
 * What was read of the heads while a run was trained: the layer of each row and its head, and the
 * first and last step of each column.
 * @typedef {{layers: string[], heads: [number, number][], columns: [number, number][],
 *   measures: Record<string, Measure>}} Heads
 */

/**
 * Values of each head and column, the extreme of all heads together, and the threshold of the
 * alarms.
 * @typedef {{values: Written[][], extreme: Written[], range: [number, number],
 *   threshold: number}} Measure
 */

/**
 * What a map shows, from the first to the last step of its span; null for all.
 * @typedef {{heads: Heads, measure: string, label: string, alarms: {step: number, row: number}[],
 *   span: [number, number] | null, logarithmicSteps: boolean}} MapData
 */

const LEFT = 30;
const RIGHT = 10;
const KEY = 24;
// Where the colors begin, after the number of the first one.
const COLORS = LEFT + 46;
const HEADING = 22;
const BOTTOM = 27;
// All heads together are about so high, in pixels, and one of them between these.
const ALL_ROWS = 420;
const LOWEST_ROW = 2;
const HIGHEST_ROW = 15;
// From how many pixels a row has its number, and a space to the next.
const NUMBERED = 10;
const SPACED = 6;

/** A map of heads. @param {Translate} t @param {MapData} data @param {number} width @returns {Plot} */
export function mapPlot(t, data, width) {
  const { heads: rows, layers, columns, measures } = data.heads;
  const { values: written, range: ends, threshold } = measures[data.measure];
  const values = written.map((line) => line.map(asNumber));
  const others = layers.length * HEADING + BOTTOM;
  const room = Math.floor((highest(ALL_ROWS + others) - others) / rows.length);
  const height = clamped(room, LOWEST_ROW, letterScale() > 1 ? Infinity : HIGHEST_ROW);
  const rowHeight = height > SPACED ? height - 1 : height;
  const layerName = (/** @type {number} */ layer) => t("model.layer", { layer });
  const whole = layers.map((name, layer) => layerName(layer) + (name && ` · ${name}`));
  const { tops, bottom, names } = rowPlaces(rows, height, (layer) => whole[layer]);
  const firsts = columns.map(([first]) => first);
  const steps = columns.map(([, last]) => last);
  const shown = data.span ?? [firsts[0], steps.at(-1)];
  const x = stepAxis(shown[0], shown[1], LEFT, width - RIGHT, bottom + 3, data.logarithmicSteps);
  // A column goes half of the way to the next one.
  const halves = firsts.map((first, column) => (first + (steps[column - 1] ?? first)) / 2);
  const edges = halves.map((each) => clamped(Math.round(x.place(each)), LEFT, x.right));
  edges.push(x.right);
  const columnAt = (/** @type {number} */ step) => {
    const column = halves.findLastIndex((each) => each <= step);
    return Math.max(0, column);
  };
  const isShown = (/** @type {number} */ column) => {
    const { span } = data;
    return !span || (halves[column] <= span[1] && edges[column + 1] > LEFT);
  };
  /** @param {number} column @param {number} row */
  const cell = (column, row) => {
    // However many columns there are, each is seen.
    const right = Math.max(edges[column] + 1, edges[column + 1]);
    return box(edges[column], right, tops[row], rowHeight);
  };
  const shownAlarms = data.alarms.filter(({ step }) => !data.span || isWithin(data.span)(step));
  const marks = [
    ...colorKey(ends),
    ...thresholdMark(ends, threshold, t),
    ...names,
    ...cellMarks(values, ends, (column, row) => (isShown(column) ? cell(column, row) : "")),
    ...x.marks,
    ...shownAlarms.map(({ step, row }) => alarmAt(x.place(step), tops[row] + rowHeight / 2 + 4.5)),
  ];
  /** @param {number} from @param {number} to @param {number} row @param {Mark} look */
  const outline = (from, to, row, look) => {
    return { d: box(from - 1, to + 1, tops[row] - 1, rowHeight + 2), stroke: "ink", ...look };
  };
  const crossed = (/** @type {Cursor} */ { step, row: chosen }) => {
    const row = Math.min(chosen, rows.length - 1);
    const column = columnAt(step ?? data.span?.[1] ?? Infinity);
    const isHere = step !== null && isShown(column);
    const own = isHere ? [outline(edges[column], edges[column + 1], row, { width: 2 })] : [];
    const [layer, head] = rows[row];
    // A column may hold several steps.
    const between = [...new Set(columns[column])];
    const readout = [
      reading("step", t("training.step"), between.join("-"), between.map(grouped).join("–")),
      reading("head", layerName(layer), row, t("training.head", { head })),
      reading(data.measure, data.label, values[row][column]),
    ];
    return { marks: [outline(LEFT, x.right, row, { opacity: 0.4 }), ...own], readout };
  };
  const stepAt = (/** @type {number} */ place) => steps[columnAt(x.stepAt(place))];
  const shape = { height: bottom + BOTTOM, rows: tops, rowHeight };
  return { marks, ...shape, steps, stepAt, x, crossed };
}

/**
 * The tops of the rows, with the name of each layer above its heads.
 * @param {Heads["heads"]} heads @param {number} height @param {(layer: number) => string} nameOf
 */
function rowPlaces(heads, height, nameOf) {
  const names = /** @type {Mark[]} */ ([]);
  let bottom = KEY - 9;
  const tops = heads.map(([layer, head], row) => {
    if (layer !== heads[row - 1]?.[0]) {
      bottom += HEADING;
      names.push(smallText(nameOf(layer), LEFT, bottom - 5));
    }
    const top = bottom;
    if (height >= NUMBERED) names.push(smallText(head, LEFT - 7, top + height / 2 + 4, "end"));
    bottom += height;
    return top;
  });
  return { tops, bottom, names };
}

/**
 * The cells, as one path for each color.
 * @param {(number | null)[][]} values @param {[number, number]} ends
 * @param {(column: number, row: number) => string} cell @returns {Mark[]}
 */
function cellMarks(values, [low, high], cell) {
  const place = scale({ top: high - low });
  const colors = ramp();
  const paths = colors.map(() => "");
  values.forEach((line, row) => {
    line.forEach((value, column) => {
      if (value !== null && !Number.isNaN(value)) paths[place(value - low)] += cell(column, row);
    });
  });
  const look = { stroke: "none", "shape-rendering": "crispEdges" };
  return paths.map((d, color) => ({ d, fill: colors[color], ...look })).filter(({ d }) => d);
}

/** @param {number} from @param {number} to @param {number} y @param {number} height */
const box = (from, to, y, height) => `M${from} ${y}H${to}v${height}H${from}z`;

export const asNumber = (/** @type {Written} */ value) => (value === null ? null : Number(value));

/** The colors, and the numbers at their ends. @param {[number, number]} ends @returns {Mark[]} */
function colorKey([low, high]) {
  const colors = ramp();
  const to = COLORS + 2 * colors.length;
  return [
    smallText(significant(low, 3), COLORS - 6, 11, "end"),
    smallText(significant(high, 3), to + 6, 11),
    ...colors.map((fill, at) => ({ x: COLORS + 2 * at, y: 2, width: 2, height: 10, fill })),
  ];
}

/**
 * Where in the colors the threshold of the alarms is; nothing where it is beyond them.
 * @param {[number, number]} ends @param {number} threshold @param {Translate} t @returns {Mark[]}
 */
function thresholdMark([low, high], threshold, t) {
  const length = 2 * ramp().length;
  const share = (threshold - low) / (high - low);
  if (!(share >= 0 && share <= 1)) return [];
  const at = Math.round(COLORS + share * length) + 0.5;
  const text = `▼ ${t("training.threshold", { value: significant(threshold) })}`;
  return [
    { d: `M${at} -1v16`, stroke: "alarm", width: 2 },
    { ...smallText(text, COLORS + length + 50, 11), fill: "alarm" },
  ];
}
