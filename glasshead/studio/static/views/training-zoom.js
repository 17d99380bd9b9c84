// A part of the steps, chosen by dragging over a chart, by the wheel with Ctrl, or by keys.
import { element, letterScale } from "../dom.js";
import { clamped } from "../numbers.js";

/** @import { Chart } from "../chart.js" */

/** @typedef {[number, number]} Span  The first and the last step */

// A shorter way of the pointer chooses nothing.
const SHORTEST = 6;
const FACTOR = 2;
// Of a turn of the wheel.
const SPEED = 0.003;

/** The part of the steps that all charts of a run show; null is the whole run. */
export class Zoom {
  /** @param {Span | null} span @param {() => void} changed */
  constructor(span, changed) {
    this.span = span;
    this.changed = changed;
    // The last step of all.
    this.last = 1;
  }

  /** @returns {Span} */
  get shown() {
    return this.span ?? [0, this.last];
  }

  /**
   * Show some steps, at least two of them, within the run; all of them are no part.
   * @param {Span | null} span
   */
  show(span) {
    const before = String(this.span);
    this.span = this.bounded(span);
    if (String(this.span) !== before) this.changed();
  }

  /** @param {Span | null} span @returns {Span | null} */
  bounded(span) {
    if (!span) return null;
    const width = Math.min(this.last, Math.max(2, Math.round(span[1] - span[0])));
    const from = clamped(Math.round(span[0]), 0, this.last - width);
    return width >= this.last ? null : [from, from + width];
  }

  /**
   * Show fewer or more steps about one, which keeps its place.
   * @param {number} factor  Above 1 for fewer
   * @param {number} step
   */
  by(factor, step) {
    const [from, to] = this.shown;
    this.show([step - (step - from) / factor, step + (to - step) / factor]);
  }

  /** Show a step that is beside what is shown. @param {number} step */
  follow(step) {
    const [from, to] = this.shown;
    if (step < from) this.show([step, step + to - from]);
    else if (step > to) this.show([step - (to - from), step]);
  }

  /** Let a chart choose what is shown. @param {Chart<any>} chart */
  over(chart) {
    const { frame } = chart;
    const drag = new Drag(this, chart);
    frame.append(drag.area);
    frame.addEventListener("pointerdown", (event) => drag.begin(event));
    frame.addEventListener("pointermove", (event) => drag.move(event));
    frame.addEventListener("pointerup", (event) => drag.end(event));
    frame.addEventListener("pointercancel", () => drag.cancel());
    frame.addEventListener("dblclick", () => this.show(null));
    frame.addEventListener("keydown", (event) => this.press(event, chart));
    frame.addEventListener("wheel", (event) => this.turn(event, chart), { passive: false });
  }

  /** @param {KeyboardEvent} event @param {Chart<any>} chart */
  press(event, chart) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const [from, to] = this.shown;
    const { step } = chart.cursor;
    const about = step !== null && step >= from && step <= to ? step : (from + to) / 2;
    if (event.key === "+" || event.key === "=") this.by(FACTOR, about);
    else if (event.key === "-") this.by(1 / FACTOR, about);
    else if (event.key === "0") this.show(null);
    else return;
    event.preventDefault();
  }

  /** The wheel alone scrolls the page. @param {WheelEvent} event @param {Chart<any>} chart */
  turn(event, chart) {
    const { plot } = chart;
    if (!plot || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    this.by(Math.exp(-event.deltaY * SPEED), plot.x.stepAt(chart.placeOf(event).x));
  }
}

/** A way of the pointer from one step to another. */
class Drag {
  /** @param {Zoom} zoom @param {Chart<any>} chart */
  constructor(zoom, chart) {
    this.zoom = zoom;
    this.chart = chart;
    this.area = element("div.dragged", { hidden: true });
    /** @type {number | null} */
    this.from = null;
  }

  /** @param {PointerEvent} event */
  placeOf(event) {
    const { left, right } = this.chart.plot;
    return clamped(this.chart.placeOf(event).x, left, right);
  }

  /** @param {PointerEvent} event */
  begin(event) {
    // A finger leads the cross-hair, or scrolls the page.
    if (!this.chart.plot || event.button || event.pointerType === "touch") return;
    this.from = this.placeOf(event);
    this.chart.frame.setPointerCapture(event.pointerId);
  }

  /** @param {PointerEvent} event */
  move(event) {
    if (this.from === null) return;
    const to = this.placeOf(event);
    this.area.hidden = Math.abs(to - this.from) < SHORTEST;
    const large = letterScale();
    this.area.style.left = `${Math.min(this.from, to) * large}px`;
    this.area.style.width = `${Math.abs(to - this.from) * large}px`;
  }

  /** @param {PointerEvent} event */
  end(event) {
    const { from, zoom } = this;
    this.cancel();
    if (from === null) return;
    const to = this.placeOf(event);
    if (Math.abs(to - from) < SHORTEST) return;
    const { x } = this.chart.plot;
    zoom.show([x.stepAt(Math.min(from, to)), x.stepAt(Math.max(from, to))]);
  }

  cancel() {
    this.from = null;
    this.area.hidden = true;
  }
}
