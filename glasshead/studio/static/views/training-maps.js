// The map of heads, as a chart draws it: a row a head, a column a step at which it was watched.
import { alarmAt, reading, smallText, stepAxis } from "../chart.js";
import { ramp, scale } from "../colors.js";
import { letterScale } from "../dom.js";
import { clamped, grouped, significant } from "../numbers.js";

/** @import { Translate } from "../app.js" */
/** @import { Cursor, Plotter } from "../chart.js" */
/** @import { Mark } from "../marks.js" */

/**
 * A number in an answer: those that JSON does not know are texts.
 * @typedef {number | "NaN" | "Infinity" | "-Infinity" | null} Written
 */

/**
 * What was read of the heads while a run was trained.
 * @typedef {object} Heads
 * @property {string[]} layers
 * @property {[number, number][]} heads  The layer of each row, and its head
 * @property {[number, number][]} columns  The first and last step of each
 * @property {Record<string, Measure>} measures
 */

/**
 * @typedef {object} Measure
 * @property {Written[][]} values  Of each head and column
 * @property {Written[]} extreme  Of all heads together
 * @property {[number, number]} range
 * @property {number} threshold  Of the alarms
 */

/**
 * What a map shows.
 * @typedef {object} MapData
 * @property {Heads} heads
 * @property {string} measure
 * @property {string} label
 * @property {{step: number, row: number}[]} alarms
 * @property {[number, number] | null} span  The first and the last step; null for all
 * @property {boolean} logarithmicSteps
 */

const LEFT = 30;
const RIGHT = 10;
const KEY = 24;
// Where the colors begin, after the number of the first one.
const COLORS = LEFT + 46;
const HEADING = 17;
const BOTTOM = 27;
// All heads together are about so high, in pixels, and one of them between these.
const ALL_ROWS = 420;
const LOWEST_ROW = 2;
const HIGHEST_ROW = 15;
// From how many pixels a row has its number, and a space to the next.
const NUMBERED = 10;
const SPACED = 6;

/** A plotter of maps. @param {Translate} t @returns {Plotter<MapData>} */
export function mapPlotter(t) {
  return (data, width) => new MapPlot(t, data, width);
}

class MapPlot {
  /** @param {Translate} t @param {MapData} data @param {number} width */
  constructor(t, data, width) {
    const { heads, columns, measures } = data.heads;
    this.t = t;
    this.data = data;
    const height = Math.floor(ALL_ROWS / heads.length);
    // In a presentation it has the screen to itself.
    const row = clamped(height, LOWEST_ROW, HIGHEST_ROW * letterScale() ** 2);
    this.rowHeight = row > SPACED ? row - 1 : row;
    this.left = LEFT;
    this.right = width - RIGHT;
    /** @type {number[]} */
    this.rows = [];
    const names = this.layOutRows(row, KEY);
    const bottom = names.bottom;
    this.firsts = columns.map(([first]) => first);
    this.steps = columns.map(([, last]) => last);
    this.x = this.axis(bottom + 3);
    this.edges = [...this.firsts, Infinity].map((each) => {
      const x = each === Infinity ? this.right : Math.round(this.x.place(each));
      return clamped(x, this.left, this.right);
    });
    this.height = bottom + BOTTOM;
    const { values, range: ends, threshold } = measures[data.measure];
    this.values = values.map((line) => line.map(asNumber));
    this.marks = [
      ...colorKey(ends),
      ...thresholdMark(ends, threshold, t),
      ...names.marks,
      ...this.cellMarks(ends),
      ...this.x.marks,
      ...this.alarmMarks(),
    ];
  }

  /** @param {number} y */
  axis(y) {
    const { firsts } = this;
    const { span, logarithmicSteps } = this.data;
    if (span) return stepAxis(...span, this.left, this.right, y, logarithmicSteps);
    const last = this.steps.at(-1);
    // The last column is as wide as the others are in the mean.
    const mean = firsts.length > 1 ? (last - firsts[0]) / (firsts.length - 1) : 1;
    return stepAxis(firsts[0], last + mean, this.left, this.right, y, logarithmicSteps);
  }

  /**
   * Place the rows, with the name of each layer above its heads.
   * @param {number} height @param {number} top
   */
  layOutRows(height, top) {
    const { heads } = this.data.heads;
    /** @type {Mark[]} */
    const marks = [];
    let y = top - 9;
    heads.forEach(([layer, head], row) => {
      if (layer !== heads[row - 1]?.[0]) {
        y += HEADING + 5;
        marks.push(smallText(this.layerName(layer), this.left, y - 5));
      }
      this.rows.push(y);
      if (height >= NUMBERED) {
        marks.push(smallText(head, this.left - 7, y + height / 2 + 4, "end"));
      }
      y += height;
    });
    return { bottom: y, marks };
  }

  /** @param {number} layer */
  layerName(layer) {
    return this.data.heads.layers[layer] || this.t("training.the_model");
  }

  /** The cells, as one path for each color. @param {[number, number]} ends @returns {Mark[]} */
  cellMarks([low, high]) {
    const place = scale({ top: high - low });
    const colors = ramp();
    /** @type {string[]} */
    const paths = colors.map(() => "");
    this.values.forEach((line, row) => {
      line.forEach((value, column) => {
        if (value === null || Number.isNaN(value) || !this.isShown(column)) return;
        paths[place(value - low)] += this.cell(row, column);
      });
    });
    const look = { stroke: "none", "shape-rendering": "crispEdges" };
    const marks = paths.map((d, color) => ({ d, fill: colors[color], ...look }));
    return marks.filter(({ d }) => d);
  }

  /** @param {number} column */
  isShown(column) {
    const { span } = this.data;
    return !span || (this.firsts[column] <= span[1] && this.edges[column + 1] > this.left);
  }

  /** @param {number} row @param {number} column */
  cell(row, column) {
    const left = this.edges[column];
    // However many columns there are, each is seen.
    const right = Math.max(left + 1, this.edges[column + 1]);
    return box(left, right, this.rows[row], this.rowHeight);
  }

  alarmMarks() {
    const { alarms, span } = this.data;
    const shown = alarms.filter(({ step }) => !span || (step >= span[0] && step <= span[1]));
    return shown.map(({ step, row }) => {
      return alarmAt(this.x.place(step), this.rows[row] + 5);
    });
  }

  /** @param {number} step */
  columnAt(step) {
    return Math.max(
      0,
      this.firsts.findLastIndex((each) => each <= step),
    );
  }

  /** @param {number} x */
  stepAt(x) {
    return this.steps[this.columnAt(this.x.stepAt(x))];
  }

  /** @param {Cursor} cursor */
  crossed(cursor) {
    const { t, data, edges } = this;
    const row = Math.min(cursor.row, this.rows.length - 1);
    const isLast = cursor.step === null;
    const column = isLast ? this.firsts.length - 1 : this.columnAt(cursor.step);
    const marks = [this.outline(this.left, this.right, row, { opacity: 0.4 })];
    if (!isLast && this.isShown(column)) {
      marks.push(this.outline(edges[column], edges[column + 1], row, { width: 2 }));
    }
    const [layer, head] = data.heads.heads[row];
    // A column may hold several steps.
    const between = [...new Set(data.heads.columns[column])];
    const steps = between.map(grouped).join("–");
    const readout = [
      reading("step", t("training.step"), between.join("-"), steps),
      reading("head", this.layerName(layer), row, t("training.head", { head })),
      reading(data.measure, data.label, this.values[row][column]),
    ];
    return { marks, readout };
  }

  /**
   * @param {number} from @param {number} to @param {number} row @param {Mark} look @returns {Mark}
   */
  outline(from, to, row, look) {
    const d = box(from - 1, to + 1, this.rows[row] - 1, this.rowHeight + 2);
    return { d, stroke: "ink", ...look };
  }
}

/** @param {number} from @param {number} to @param {number} y @param {number} height */
function box(from, to, y, height) {
  return `M${from} ${y}H${to}v${height}H${from}z`;
}

/** @param {Written} value */
export function asNumber(value) {
  return value === null ? null : Number(value);
}

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
  const text = t("training.threshold", { value: significant(threshold) });
  return [
    { d: `M${at} -1v16`, stroke: "alarm", width: 2 },
    { ...smallText(text, COLORS + length + 50, 11), fill: "alarm" },
  ];
}
