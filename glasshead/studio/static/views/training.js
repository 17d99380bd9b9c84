// The view "training": a run folder, followed while it grows.
import { Chart, Cursor } from "../chart.js";
import { categories } from "../colors.js";
import { firstText, slider, toggle, zoomButtons } from "../controls.js";
import { capitalized, element, fill, letterScale, withCode } from "../dom.js";
import { range, wholeNumber } from "../numbers.js";
import { linkTo } from "../selection.js";
import { Refused, Unreachable } from "../source.js";
import { checkpointSection } from "./training-checkpoints.js";
import { curvePlot } from "./training-curves.js";
import {
  alarmBanner,
  alarmTable,
  findings,
  inWords,
  lastRows,
  metricName,
  otherRuns,
  owned,
  ownerOf,
  settingsTable,
  standing,
} from "./training-status.js";
import { mapPlot } from "./training-maps.js";
import { Zoom } from "./training-zoom.js";

/** @import { Context, View } from "../app.js" */
/** @import { Plot } from "../chart.js" */
/** @import { Curve, CurvesData } from "./training-curves.js" */
/** @import { MapData, Written } from "./training-maps.js" */
/** @import { Alarm, OtherRun, Run, WrittenCurve } from "./training-status.js" */
/** @import { Span } from "./training-zoom.js" */

// Milliseconds between two questions; more, where the answer takes long.
const INTERVAL = 1500;
const TIMES_AS_LONG = 4;
const SMOOTHING = [0, 0.5, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99];
const USUAL_SMOOTHING = 0.6;
const NOT_FOUND = 404;
// The charts whose titles are translated; others have the name of their metric.
const TITLED = ["loss", "learning_rate"];
// How curves are drawn; those of other metrics as the validation is.
/** @type {Record<string, {word: string, color: string, width?: number, dots?: boolean}>} */
const LINES = {
  loss: { word: "training.curve.loss", color: "accent" },
  "smoothed loss": { word: "training.curve.smoothed", color: "accent", width: 2 },
  validation_loss: { word: "training.curve.validation", color: "ink", dots: true },
  learning_rate: { word: "training.figure.learning_rate", color: "accent" },
};
// The measures that have a map, and the alarms that are shown in it.
/** @type {Record<string, string>} */
const MAPS = { normalized_entropy: "entropy_collapse", max_score: "maximum_logit" };
// The curves of another run; of the loss, the smoothed one where there is one.
const OVER = ["smoothed loss", "loss"];
// Milliseconds that a part rests before more of its rows are asked for.
const ZOOM_RESTS = 150;

class Training {
  /** @param {HTMLElement} frame @param {Context} context */
  constructor(frame, context) {
    const { t, state, language } = context;
    this.frame = frame;
    this.context = context;
    this.t = t;
    this.run = /** @type {Run} */ (null);
    this.cursor = new Cursor(wholeNumber(state.at, null), wholeNumber(state.head, 0), (changes) =>
      this.remember(changes),
    );
    this.zoom = new Zoom(spanOf(state), () => this.zoomed());
    this.others = otherRuns(t, (over) => this.reconsider({ over }));
    // The charts and heads that the view was laid out for, as JSON.
    this.shape = "";
    /** The first map of heads, if there is one. @type {HTMLElement} */
    this.map = null;
    this.asking = /** @type {number} */ (null);
    this.standing = standing(t, language);
    this.banner = element("div.banner");
    this.zooming = zoomButtons(t, (factor) => this.zoom.by(factor));
    this.checkpoints = checkpointSection(context);
    this.notice = element("div.away", { role: "alert" });
    this.content = element("div");
    this.problems = element("div.problems");
    this.found = element("div");
    this.settings = element("section.settings");
    const held = [this.found, this.standing, this.problems, this.banner, this.settings];
    this.overview = element("div.overview", { "data-panel": "" }, held);
    this.drawn = element("div.drawn");
    this.alarms = element("div.alarms", { "data-panel": "" });
    this.notes = element("div.notes");
    this.rows = element("div.rows", { "data-panel": "" });
    fill(frame, this.notice, this.content);
  }

  /** Ask how the run is, and again for as long as the view is open and the studio answers. */
  async follow() {
    const { signal, source } = this.context;
    if (signal.aborted) return;
    const began = performance.now();
    const isHidden = this.run && document.visibilityState !== "visible";
    if (!isHidden && !(await this.ask())) return;
    if (source.offline) return;
    const pause = Math.max(INTERVAL, TIMES_AS_LONG * (performance.now() - began));
    setTimeout(() => this.follow(), pause);
  }

  /** Show how the run is; gives whether to go on. */
  async ask() {
    const { source, signal, state } = this.context;
    try {
      const [first, last] = this.zoom.span ?? [];
      const params = { smoothing: SMOOTHING[this.smoothing], first, last, over: state.over };
      const version = this.run?.version;
      const answer = await source.json("training", { ...params, version }, { signal });
      this.run = { ...this.run, ...answer };
      // A file of this view has nothing to add it to.
      source.recording?.("training", params, { ...this.run, changed: true });
      this.standing.show(this.run);
      if (answer.changed) this.show();
      fill(this.notice);
    } catch (error) {
      if (error.status !== NOT_FOUND) {
        if (!(error instanceof Unreachable)) delete this.frame.dataset.drawn;
        this.context.failed(error);
        return false;
      }
      // A run that is away may come back, and is reported once.
      const told = [element("p", this.t("training.away")), element("p.quiet", error.message)];
      if (!this.notice.firstChild) fill(this.notice, told);
    }
    this.frame.dataset.drawn = "";
    return true;
  }

  get smoothing() {
    const { smoothing = USUAL_SMOOTHING } = this.context.state;
    return Math.max(0, SMOOTHING.indexOf(Number(smoothing)));
  }

  show() {
    const { t } = this;
    const { charts, found, heads, alarms, notes, table, problems, others, pace } = this.run;
    const settings = Object.keys(others).length ? this.run.settings : null;
    this.zoom.last = Math.max(
      1,
      pace.step,
      ...Object.values(others).map(({ figures }) => Number(figures.step)),
    );
    this.others.show(this.run);
    const shape = JSON.stringify([Object.keys(charts), heads?.heads, ownerOf(this.run)]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.layOut();
    }
    this.draw();
    const sentences = problems.map((problem) => element("p", capitalized(problem)));
    fill(this.problems, sentences);
    fill(this.found, findings(t, this.run));
    fill(this.settings, settings && settingsTable(t, settings));
    const banner = heads && alarmBanner(t, this.run, (alarm) => this.openHead(alarm));
    fill(this.banner, banner);
    this.overview.classList.toggle("alarmed", Boolean(banner));
    const isOpen = this.alarms.querySelector("details")?.open;
    const go = (/** @type {Alarm} */ alarm) => this.go(alarm);
    fill(this.alarms, alarms.length > 0 && alarmTable(t, alarms, go, isOpen));
    const told = notes.map(([name, places]) => element("p.quiet", t(name, places)));
    fill(this.notes, told);
    fill(this.rows, table.rows.length > 0 && lastRows(t, this.run));
    const parts = [this.found, this.settings, this.drawn, this.checkpoints.body];
    this.context.picture(() => ({ parts, card: [this.drawn], sentence: inWords(t, found) }));
  }

  layOut() {
    const { t, cursor } = this;
    const { charts, heads } = this.run;
    cursor.charts.clear();
    /** @param {string} title @param {(width: number) => Plot} plotter @param {string} [heading] */
    const chart = (title, plotter, heading) => {
      const made = new Chart(title, cursor, plotter, heading);
      // The others are panels in groups.
      if (heading === "h2") made.element.dataset.panel = "";
      this.zoom.over(made);
      return made.element;
    };
    const [first, ...others] = Object.keys(charts).map((name) => {
      const plotter = (/** @type {number} */ width) => curvePlot(t, this.curvesOf(name), width);
      return chart(this.title(name), plotter, name === "loss" ? "h2" : "h3");
    });
    const measures = heads ? Object.keys(MAPS) : [];
    const pairs = measures.map((measure) => [
      chart(t(`training.extreme.${measure}`), (width) => {
        return curvePlot(t, this.extremesOf(measure), width);
      }),
      chart(owned(t(`training.measure.${measure}`), this.run), (width) => {
        return mapPlot(t, this.mapOf(measure), width);
      }),
    ]);
    this.map = pairs[0]?.[1];
    fill(
      this.drawn,
      first,
      element("div.charts", { "data-panel": "" }, others),
      element("h2", t("training.heads")),
      element(
        "div.charts.two",
        pairs.map((pair) => element("div", { "data-panel": "" }, pair)),
      ),
    );
    fill(
      this.content,
      this.overview,
      this.controls(),
      this.notes,
      this.drawn,
      heads ? null : element("p.note", withCode(t("training.unwatched"))),
      this.alarms,
      this.checkpoints.section,
      this.rows,
    );
  }

  controls() {
    const { t } = this;
    const logarithmic = (/** @type {"x" | "y"} */ axis) => {
      return toggle(t(`training.log.${axis}`), this.isLogarithmic(axis), (on) => {
        const axes = ["x", "y"].filter((each) => (each === axis ? on : this.isLogarithmic(each)));
        this.context.remember({ log: axes.join("") || null });
        this.draw();
      });
    };
    /** @param {number} place */
    const textOf = (place) => SMOOTHING[place] || t("training.smoothing.none");
    const moved = (/** @type {number} */ place) => this.reconsider({ smoothing: SMOOTHING[place] });
    return [
      element(
        "div.controls",
        this.others,
        slider(t("training.smoothing"), SMOOTHING.length, this.smoothing, textOf, moved),
        logarithmic("y"),
        logarithmic("x"),
        this.zooming,
      ),
      element("p.quiet.help", t("training.keys")),
    ];
  }

  isLogarithmic(/** @type {string} */ axis) {
    return (this.context.state.log ?? "").includes(axis);
  }

  title(/** @type {string} */ chart) {
    const { t } = this;
    const isTitled = TITLED.includes(chart);
    return isTitled ? t(`training.${chart}`) : t("training.metric", { name: metricName(t, chart) });
  }

  /** Keep something of the view in the address, and what is shown with the cross-hair. */
  remember(/** @type {Record<string, any>} */ changes) {
    this.context.remember(changes);
    if (typeof changes.at === "number") this.zoom.follow(changes.at);
  }

  /** Ask again with something else in the address. @param {Record<string, any>} changes */
  reconsider(changes) {
    this.context.remember(changes);
    return this.ask();
  }

  /** Draw what there is of another part, and ask for all of it once the part rests. */
  zoomed() {
    const [from = null, to = null] = this.zoom.span ?? [];
    this.context.remember({ from, to });
    this.draw();
    clearTimeout(this.asking);
    this.asking = setTimeout(() => this.ask(), ZOOM_RESTS);
  }

  draw() {
    this.zooming.all.disabled = this.zoom.span === null;
    for (const chart of this.cursor.charts) chart.draw();
  }

  get axes() {
    return {
      span: this.zoom.shown,
      logarithmic: this.isLogarithmic("y"),
      logarithmicSteps: this.isLogarithmic("x"),
    };
  }

  /** What a chart of the log shows. @param {string} name @returns {CurvesData} */
  curvesOf(name) {
    const { t } = this;
    const { charts, alarms, best } = this.run;
    const own = charts[name].map((curve) => this.curve(curve));
    const curves = this.overOthers(own, (other) => {
      const written = other.charts[name] ?? [];
      const loss = OVER.find((each) => written.some((curve) => curve.name === each));
      const kept = written.filter((curve) => !OVER.includes(curve.name) || curve.name === loss);
      return kept.map((curve) => this.curve(curve));
    });
    const signs = [
      best && { label: owned(t("training.best"), this.run), sign: "┊", color: "quiet" },
      alarms[0] && { label: owned(t("training.alarm"), this.run), sign: "▼", color: "alarm" },
    ].filter(Boolean);
    const marked = {
      best: best?.step,
      alarms: alarms.map(({ step }) => step),
      // A panel of a presentation does not show the legend of the loss.
      signs: name === "loss" || letterScale() > 1 ? signs : [],
    };
    return {
      curves,
      ...this.axes,
      // The learning rate is the plan's, whatever comes of it.
      ...(name === "learning_rate" ? {} : marked),
      height: name === "loss" ? this.lossHeight : 150,
    };
  }

  /** The loss is as high as what a wide window shows next to it. */
  get lossHeight() {
    const isHigh =
      Object.keys(this.run.charts).length > 3 && matchMedia("(min-width: 90rem)").matches;
    return isHigh ? 440 : 280;
  }

  /** The lowest or highest readings of all heads. @param {string} measure @returns {CurvesData} */
  extremesOf(measure) {
    const { measures, columns } = this.run.heads;
    const { extreme, threshold } = measures[measure];
    const label = this.t(`training.reading.${measure}`);
    const curves = this.overOthers([extremeCurve(measure, columns, extreme, label)], (other) => {
      const read = other.extremes[measure];
      return read ? [extremeCurve(measure, other.columns, read, label)] : [];
    });
    return { curves, threshold, height: 150, ...this.axes };
  }

  // Curves with those of the other runs, a color for each run.
  /** @param {Curve[]} own @param {(other: OtherRun) => Curve[]} curvesOf */
  overOthers(own, curvesOf) {
    const { run, others } = this.run;
    const colors = categories();
    const over = Object.entries(others).map(([name, other], at) => {
      // The second color is near that of an alarm, so it comes last.
      return ofRun(curvesOf(other), name, colors[at + 2] ?? colors[1], `${name}/`);
    });
    const named = own.findLast(({ name }) => name !== "loss");
    return over.length ? [ofRun(own, run, colors[0], "", named), ...over].flat() : own;
  }

  curve(/** @type {WrittenCurve} */ { name, steps, values }) {
    const { word, ...look } = LINES[name] ?? LINES.validation_loss;
    const label = name in LINES ? this.t(word) : metricName(this.t, name);
    // The loss itself stands behind the smoothed one.
    const opacity = name === "loss" && this.smoothing > 0 ? 0.35 : 1;
    return { name, steps, values: values.map(Number), label, opacity, ...look };
  }

  /** @param {string} measure @returns {MapData} */
  mapOf(measure) {
    const { heads, alarms } = this.run;
    const shown = alarms.filter(({ kind, row }) => kind === MAPS[measure] && row !== null);
    const label = this.t(`training.reading.${measure}`);
    const { logarithmicSteps } = this.axes;
    return { heads, measure, label, alarms: shown, span: this.zoom.span, logarithmicSteps };
  }

  /** Lead the cross-hair to an alarm. @param {Alarm} alarm */
  go({ row, step }) {
    if (row !== null) this.cursor.choose(row);
    this.cursor.keep(step);
    this.map?.scrollIntoView({ block: "nearest" });
  }

  // Open the head of an alarm in the view of heads, or where the view has none of its layer, lead
  // the cross-hair to it.
  async openHead(/** @type {Alarm} */ alarm) {
    const { source, about, signal } = this.context;
    let found = /** @type {{layer: number} | null} */ (null);
    try {
      if (about.views.heads === null) {
        const text = await firstText(this.context, element("p"));
        const params = { text, layer: alarm.layer };
        found = await source.json("training/head", params, { signal });
      }
    } catch (error) {
      if (!(error instanceof Refused)) return this.context.failed(error);
    }
    if (found) location.hash = linkTo("heads", { layer: found.layer, head: alarm.head });
    else this.go(alarm);
  }
}

/**
 * Curves as those of one of several runs, of which the legend names one by the run.
 * @param {Curve[]} curves @param {string} run @param {string} color
 * @param {string} prefix  Of their names in the readout
 * @returns {Curve[]}
 */
function ofRun(curves, run, color, prefix, named = curves[0]) {
  return curves.map((curve) => ({
    ...curve,
    color,
    name: `${prefix}${curve.name}`,
    label: `${run} · ${curve.label}`,
    title: curve === named ? run : null,
    // What stands behind its smoothed curve has its own name.
    unnamed: curve !== named && !(curve.opacity < 1),
    below: prefix !== "",
  }));
}

/**
 * The lowest or highest reading of all heads.
 * @param {string} measure @param {[number, number][]} columns @param {Written[]} extreme
 * @param {string} label @returns {Curve}
 */
function extremeCurve(measure, columns, extreme, label) {
  const known = range(extreme.length).filter((at) => extreme[at] !== null);
  const steps = known.map((at) => columns[at][1]);
  const values = known.map((at) => Number(extreme[at]));
  return { name: measure, steps, values, label, color: "accent", width: 1.75 };
}

// The part of the steps in the address; null where there is none.
/** @param {Record<string, string>} state @returns {Span | null} */
function spanOf({ from, to }) {
  const span = [wholeNumber(from, null), wholeNumber(to, null)];
  return span[0] !== null && span[1] > span[0] ? /** @type {Span} */ (span) : null;
}

/** @type {View} */
export const training = (frame, context) => new Training(frame, context).follow();
