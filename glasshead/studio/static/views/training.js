// The view "training": a run folder, followed while it grows.
import { Chart, Cursor } from "../chart.js";
import { slider } from "../controls.js";
import { element, fill, withCode } from "../dom.js";
import { Refused, Unreachable } from "../source.js";
import { curvePlotter } from "./training-curves.js";
import { mapPlotter } from "./training-maps.js";
import { Standing, alarmTable, lastRows, plain } from "./training-status.js";

/**
 * @import { Context } from "../app.js"
 * @import { Mark } from "../figure.js"
 * @import { CurvesData } from "./training-curves.js"
 * @import { MapData } from "./training-maps.js"
 * @import { Alarm, Run, WrittenCurve } from "./training-status.js"
 */

// Milliseconds between two questions; more, where the answer takes long.
const INTERVAL = 1500;
const TIMES_AS_LONG = 4;
const SMOOTHING = [0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99];
const USUAL_SMOOTHING = 0.8;
const NOT_FOUND = 404;
/** @type {Record<string, string>} */
const TITLES = { loss: "training.loss", learning_rate: "training.learning_rate" };
/**
 * How curves are drawn; those of other metrics as the validation is.
 * @type {Record<string, {word: string, color: string, width?: number, dots?: boolean}>}
 */
const LINES = {
  loss: { word: "training.curve.loss", color: "accent" },
  "smoothed loss": { word: "training.curve.smoothed", color: "accent", width: 2 },
  validation_loss: { word: "training.curve.validation", color: "ink", dots: true },
  learning_rate: { word: "training.figure.learning_rate", color: "accent" },
};
/**
 * The measures that have a map, and the alarms that are shown in it.
 * @type {Record<string, string>}
 */
const MAPS = { normalized_entropy: "entropy_collapse", max_score: "maximum_logit" };
// Of the picture.
const WIDTH = 1000;
const MARGIN = 24;

class Training {
  /**
   * @param {HTMLElement} frame
   * @param {Context} context
   */
  constructor(frame, context) {
    const { t, state, remember, language } = context;
    this.frame = frame;
    this.context = context;
    this.t = t;
    /** @type {Run} */
    this.run = null;
    this.cursor = new Cursor(wholeNumber(state.at), wholeNumber(state.head) ?? 0, remember);
    // The place in SMOOTHING.
    this.smoothing = Math.max(0, SMOOTHING.indexOf(Number(state.smoothing ?? USUAL_SMOOTHING)));
    // The charts and heads that the view was laid out for, as JSON.
    this.shape = "";
    /** @type {Map<string, Chart<CurvesData>>} */
    this.curves = new Map();
    /** @type {Map<string, Chart<MapData>>} */
    this.maps = new Map();
    this.standing = new Standing(t, language);
    this.notice = element("div.away", { role: "alert" });
    this.content = element("div");
    this.problems = element("div.problems");
    this.alarms = element("div.alarms");
    this.notes = element("div.notes");
    this.rows = element("div.rows");
    fill(frame, this.notice, this.content);
  }

  /** Ask how the run is, and again for as long as the view is open and the studio answers. */
  async follow() {
    if (await this.ask()) setTimeout(() => this.askAgain(), INTERVAL);
  }

  async askAgain() {
    if (this.context.signal.aborted) return;
    const began = performance.now();
    const isHidden = document.visibilityState !== "visible";
    if (!isHidden && !(await this.ask())) return;
    const pause = Math.max(INTERVAL, TIMES_AS_LONG * (performance.now() - began));
    setTimeout(() => this.askAgain(), pause);
  }

  /** Show how the run is; gives whether to go on. */
  async ask() {
    const { source, signal } = this.context;
    try {
      const params = { smoothing: SMOOTHING[this.smoothing], version: this.run?.version };
      const answer = await source.json("training", params, { signal });
      this.run = { ...this.run, ...answer };
      this.standing.show(this.run);
      if (answer.changed) this.show();
      fill(this.notice);
    } catch (error) {
      if (!this.isAway(error)) return false;
    }
    this.frame.dataset.drawn = "";
    return true;
  }

  /**
   * Tell that the run is away, which may come back; gives whether it was that.
   * @param {Error} error
   */
  isAway(error) {
    if (!(error instanceof Refused && error.status === NOT_FOUND)) {
      if (!(error instanceof Unreachable)) delete this.frame.dataset.drawn;
      this.context.failed(error);
      return false;
    }
    if (!this.notice.firstChild) {
      const told = element("p", this.t("training.away"));
      fill(this.notice, told, element("p.quiet", error.message));
    }
    return true;
  }

  show() {
    const { t } = this;
    const { charts, heads, alarms, notes, table, problems } = this.run;
    const shape = JSON.stringify([Object.keys(charts), heads?.heads]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.layOut();
    }
    this.drawCurves();
    this.drawMaps();
    fill(
      this.problems,
      problems.map((problem) => element("p", problem)),
    );
    fill(this.alarms, alarms.length > 0 && alarmTable(t, alarms, (alarm) => this.go(alarm)));
    fill(
      this.notes,
      notes.map(([name, places]) => element("p.quiet", t(name, places))),
    );
    fill(this.rows, table.rows.length > 0 && lastRows(t, table));
    this.context.picture(() => this.figure());
  }

  layOut() {
    const { t, cursor } = this;
    const { charts, heads } = this.run;
    cursor.charts.clear();
    this.curves = new Map(
      Object.keys(charts).map((name) => {
        const heading = name === "loss" ? "h2" : "h3";
        return [name, new Chart(this.title(name), cursor, curvePlotter(t), heading)];
      }),
    );
    const measures = heads ? Object.keys(MAPS) : [];
    this.maps = new Map(
      measures.map((name) => {
        return [name, new Chart(t(`training.measure.${name}`), cursor, mapPlotter(t))];
      }),
    );
    const [first, ...others] = elementsOf(this.curves);
    fill(
      this.content,
      this.standing.element,
      this.problems,
      element("div.controls", this.smoothingSlider()),
      first,
      element("div.charts", others),
      element("h2", t("training.heads")),
      heads
        ? element("div.charts", elementsOf(this.maps))
        : element("p.note", withCode(t("training.unwatched"))),
      this.alarms,
      this.notes,
      this.rows,
    );
  }

  /** @param {string} chart */
  title(chart) {
    const { t } = this;
    return chart in TITLES ? t(TITLES[chart]) : t("training.metric", { name: plain(chart) });
  }

  smoothingSlider() {
    const { t } = this;
    /** @param {number} place */
    const textOf = (place) => SMOOTHING[place] || t("training.smoothing.none");
    /** @param {number} place */
    const moved = (place) => {
      this.smoothing = place;
      this.context.remember({ smoothing: SMOOTHING[place] });
      this.ask();
    };
    return slider(t("training.smoothing"), SMOOTHING.length, this.smoothing, textOf, moved);
  }

  drawCurves() {
    const { t } = this;
    const { charts, alarms, best, pace } = this.run;
    const signs = [];
    if (best) signs.push({ label: t("training.best"), sign: "┊", color: "quiet" });
    if (alarms.length) signs.push({ label: t("training.alarm"), sign: "▼", color: "alarm" });
    const marked = { best: best?.step, alarms: alarms.map(({ step }) => step) };
    for (const [name, chart] of this.curves) {
      chart.show({
        curves: charts[name].map((curve) => this.curve(curve)),
        to: Math.max(1, pace.step),
        // The learning rate is the plan's, whatever comes of it.
        ...(name === "learning_rate" ? {} : marked),
        ...(name === "loss" ? { signs, height: 280 } : { height: 150 }),
      });
    }
  }

  /** @param {WrittenCurve} written */
  curve({ name, steps, values }) {
    const { word, ...look } = LINES[name] ?? LINES.validation_loss;
    const label = name in LINES ? this.t(word) : plain(name);
    // The loss itself stands behind the smoothed one.
    const opacity = name === "loss" && this.smoothing > 0 ? 0.35 : 1;
    return { name, steps, values: values.map(Number), label, opacity, ...look };
  }

  drawMaps() {
    const { heads, alarms } = this.run;
    for (const [measure, chart] of this.maps) {
      const shown = alarms.filter(({ kind, row }) => kind === MAPS[measure] && row !== null);
      const label = this.t(`training.reading.${measure}`);
      chart.show({ heads, measure, label, alarms: shown });
    }
  }

  /**
   * Lead the cross-hair to an alarm.
   * @param {Alarm} alarm
   */
  go({ row, step }) {
    if (row !== null) this.cursor.choose(row);
    this.cursor.keep(step);
    elementsOf(this.maps)[0]?.scrollIntoView({ block: "nearest" });
  }

  figure() {
    /** @type {Mark[]} */
    const marks = [];
    let y = MARGIN;
    for (const chart of [...this.curves.values(), ...this.maps.values()]) {
      const drawn = chart.figure(MARGIN, y, WIDTH - 2 * MARGIN);
      marks.push(...drawn.marks);
      y += drawn.height;
    }
    return { width: WIDTH, height: y + MARGIN, marks };
  }
}

/** @param {Map<string, Chart<any>>} charts */
function elementsOf(charts) {
  return [...charts.values()].map((chart) => chart.element);
}

/**
 * A whole number in the address; null of anything else.
 * @param {string | undefined} text
 */
function wholeNumber(text) {
  return /^\d{1,15}$/.test(text ?? "") ? Number(text) : null;
}

export const training = {
  /**
   * @param {HTMLElement} frame
   * @param {Context} context
   */
  async open(frame, context) {
    await new Training(frame, context).follow();
  },
};
