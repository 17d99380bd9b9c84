// The view "training": a run folder, followed while it grows.
import { chart, cursor } from "../chart.js";
import { slider } from "../controls.js";
import { element, fill } from "../dom.js";
import { Refused, Unreachable } from "../source.js";
import { plotted } from "./training-curves.js";
import { mapped } from "./training-heads.js";
import { alarmTable, lastRows, plain, standing } from "./training-told.js";

const EACH = 1500;
const SMOOTHING = [0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99];
const USUAL = 0.8;
const AWAY = 404;
const TITLES = { loss: "training.loss", learning_rate: "training.learning_rate" };
// How curves are drawn; those of other figures as the validation is.
const LINES = {
  loss: { word: "training.curve.loss", color: "accent" },
  "smoothed loss": { word: "training.curve.smoothed", color: "accent", width: 2 },
  validation_loss: { word: "training.curve.validation", color: "ink", dots: true },
  learning_rate: { word: "training.figure.learning_rate", color: "accent" },
};
const MAPS = { normalized_entropy: "entropy_collapse", max_score: "maximum_logit" };

export const training = {
  async open(frame, context) {
    const view = new Training(frame, context);
    const again = async () => {
      if (context.signal.aborted) return;
      const began = performance.now();
      const on = document.visibilityState !== "visible" || await view.ask();
      if (on) setTimeout(again, Math.max(EACH, 4 * (performance.now() - began)));
    };
    if (await view.ask()) setTimeout(again, EACH);
  },
};

class Training {
  constructor(frame, context) {
    const { t, state, remember, language } = context;
    Object.assign(this, { frame, context, t, told: {} });
    this.at = cursor(whole(state.at), whole(state.head) ?? 0, remember);
    this.smoothing = Math.max(0, SMOOTHING.indexOf(Number(state.smoothing ?? USUAL)));
    this.standing = standing(t, language);
    [this.notice, this.content] = [element("div.away", { role: "alert" }), element("div")];
    fill(frame, this.notice, this.content);
  }

  async ask() {
    const { frame, context: { source, signal, failed } } = this;
    try {
      const asked = { smoothing: SMOOTHING[this.smoothing], version: this.told.version };
      const told = await source.json("training", asked, { signal });
      Object.assign(this.told, told);
      this.standing.show(this.told);
      if (told.changed) this.show();
      fill(this.notice);
    } catch (error) {
      if (!(error instanceof Refused && error.status === AWAY)) {
        if (!(error instanceof Unreachable)) delete frame.dataset.drawn;
        failed(error);
        return false;
      }
      if (!this.notice.firstChild) {
        fill(this.notice, element("p", this.t("training.away")), element("p.quiet", error.message));
      }
    }
    frame.dataset.drawn = "";
    return true;
  }

  show() {
    const { t, told: { charts, heads, alarms, notes, table, problems } } = this;
    const shape = JSON.stringify([Object.keys(charts), heads?.heads]);
    if (shape !== this.shape) { this.shape = shape; this.layOut(); }
    this.draw();
    fill(this.problems, problems.map((problem) => element("p", problem)));
    fill(this.alarms, alarms.length > 0 && alarmTable(t, alarms, (alarm) => this.go(alarm)));
    fill(this.notes, notes.map(([name, places]) => element("p.quiet", t(name, places))));
    fill(this.rows, table.rows.length > 0 && lastRows(t, table));
    this.context.picture(() => this.picture());
  }

  layOut() {
    const { t, at, told: { charts, heads }, context: { remember } } = this;
    at.charts.clear();
    const title = (name) => (name in TITLES ? t(TITLES[name]) : t("training.metric", { name: plain(name) }));
    const curve = (name) => [name, chart(title(name), at, plotted(t), name === "loss" ? "h2" : "h3")];
    const map = (name) => [name, chart(t(`training.measure.${name}`), at, mapped(t))];
    this.curves = Object.keys(charts).map(curve);
    this.maps = heads ? Object.keys(MAPS).map(map) : [];
    for (const name of ["problems", "alarms", "notes", "rows"]) this[name] = element(`div.${name}`);
    const said = (place) => SMOOTHING[place] || t("training.smoothing.none");
    const smooth = (place) => {
      this.smoothing = place;
      remember({ smoothing: SMOOTHING[place] });
      this.ask();
    };
    const beside = (all) => element("div.charts", all.map(([, each]) => each));
    fill(this.content, this.standing, this.problems,
      element("div.controls", slider(t("training.smoothing"), SMOOTHING.length, this.smoothing, said, smooth)),
      this.curves[0]?.[1], beside(this.curves.slice(1)),
      element("h2", t("training.heads")), heads ? beside(this.maps) : element("p.note", t("training.unwatched")),
      this.alarms, this.notes, this.rows);
  }

  draw() {
    const { t, told: { charts, heads, alarms, best, pace } } = this;
    const to = Math.max(1, pace.step);
    const signs = [];
    if (best) signs.push({ label: t("training.best"), sign: "┊", color: "quiet" });
    if (alarms.length) signs.push({ label: t("training.alarm"), sign: "▼", color: "alarm" });
    for (const [name, each] of this.curves) {
      const curves = charts[name].map((curve) => {
        const line = LINES[curve.name] ?? LINES.validation_loss;
        const label = curve.name in LINES ? t(line.word) : plain(curve.name);
        const opacity = curve.name === "loss" && this.smoothing > 0 ? 0.35 : 1;
        return { ...curve, ...line, label, values: curve.values.map(Number), opacity };
      });
      const marked = name === "learning_rate" ? {} : { best: best?.step, alarms: alarms.map(({ step }) => step) };
      each.show({ curves, to, ...marked, ...(name === "loss" ? { signs, height: 280 } : { height: 150 }) });
    }
    for (const [name, each] of this.maps) {
      const marked = alarms.filter(({ kind, row }) => kind === MAPS[name] && row !== null);
      each.show({ heads, measure: name, label: t(`training.reading.${name}`), alarms: marked });
    }
  }

  go({ row, step }) {
    if (row !== null) this.at.choose(row);
    this.at.keep(step);
    this.maps[0]?.[1].scrollIntoView({ block: "nearest" });
  }

  picture() {
    const [width, side] = [1000, 24];
    const marks = [];
    let y = side;
    for (const [, each] of [...this.curves, ...this.maps]) {
      const drawn = each.picture(side, y, width - 2 * side);
      marks.push(...drawn.marks);
      y += drawn.height;
    }
    return { width, height: y + side, marks };
  }
}

function whole(text) {
  return /^\d{1,15}$/.test(text ?? "") ? Number(text) : null;
}
