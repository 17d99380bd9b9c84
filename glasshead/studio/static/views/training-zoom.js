// A part of the steps, chosen by dragging over a chart, by the wheel with Ctrl, or by keys.
import { element, letterScale, placeIn } from "../dom.js";
import { clamped } from "../numbers.js";

/** @import { Chart, Cursor } from "../chart.js" */

/** @typedef {[number, number]} Span  The first and the last step */

// A shorter way of the pointer chooses nothing.
const SHORTEST = 6;
/** What keys zoom by. @type {Record<string, number>} */
const KEYS = { "+": 2, "=": 2, "-": 1 / 2, 0: 0 };
// Of a turn of the wheel.
const SPEED = 0.003;

/** The part of the steps that all charts of a run show; null is the whole run. */
export class Zoom {
  /** @param {Span | null} span @param {() => void} changed */
  constructor(span, changed) {
    /** @type {Span | null} */
    this.span = span;
    this.changed = changed;
    this.last = 1;
  }

  /** @returns {Span} */
  get shown() {
    return this.span ?? [0, this.last];
  }

  /** Show some steps, at least two of them, within the run; all of them are no part. */
  show(/** @type {Span | null} */ span) {
    const before = String(this.span);
    const [low, high] = span ?? [0, this.last];
    const width = Math.min(this.last, Math.max(2, Math.round(high - low)));
    const from = clamped(Math.round(low), 0, this.last - width);
    this.span = width < this.last ? [from, from + width] : null;
    if (String(this.span) !== before) this.changed();
  }

  // Show fewer or more steps about one, which keeps its place, or about the middle.
  /** @param {number} factor  Above 1 for fewer, 0 for all @param {number} [step] */
  by(factor, step) {
    const [from, to] = this.shown;
    const about = step ?? (from + to) / 2;
    this.show(factor ? [about - (about - from) / factor, about + (to - about) / factor] : null);
  }

  /** Show a step that is next to what is shown. @param {number} step */
  follow(step) {
    const [from, to] = this.shown;
    if (step < from) this.show([step, step + to - from]);
    else if (step > to) this.show([step - (to - from), step]);
  }

  /** Let a chart choose what is shown. @param {Chart} chart */
  over(chart) {
    const { frame } = chart;
    const area = element("div.dragged", { hidden: true });
    frame.append(area);
    // Where a way of the pointer began.
    let from = /** @type {number | null} */ (null);
    /** Where the pointer is, and how far it has come. @param {PointerEvent} event */
    const wayTo = (event) => {
      const { left, right } = chart.plot.x;
      const to = clamped(placeIn(frame, event).x, left, right);
      return { to, low: Math.min(from, to), length: Math.abs(to - from) };
    };
    frame.addEventListener("pointerdown", (event) => {
      // A finger leads the cross-hair, or scrolls the page.
      if (!chart.plot || event.button || event.pointerType === "touch") return;
      from = wayTo(event).to;
      frame.setPointerCapture(event.pointerId);
    });
    frame.addEventListener("pointermove", (event) => {
      if (from === null) return;
      const { low, length } = wayTo(event);
      area.hidden = length < SHORTEST;
      area.style.left = `${low * letterScale()}px`;
      area.style.width = `${length * letterScale()}px`;
    });
    frame.addEventListener("pointerup", (event) => {
      if (from === null) return;
      const { low, length } = wayTo(event);
      const { x } = chart.plot;
      if (length >= SHORTEST) this.show([x.stepAt(low), x.stepAt(low + length)]);
    });
    // However it ends.
    frame.addEventListener("lostpointercapture", () => {
      from = null;
      area.hidden = true;
    });
    frame.addEventListener("dblclick", () => this.show(null));
    frame.addEventListener("keydown", (event) => this.press(event, chart.cursor));
    /** The wheel alone scrolls the page. @param {WheelEvent} event */
    const turn = (event) => {
      if (!chart.plot || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      const step = chart.plot.x.stepAt(placeIn(frame, event).x);
      this.by(Math.exp(-event.deltaY * SPEED), step);
    };
    frame.addEventListener("wheel", turn, { passive: false });
  }

  /** @param {KeyboardEvent} event @param {Cursor} cursor */
  press(event, { step }) {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
    event.preventDefault();
    const [from, to] = this.shown;
    this.by(KEYS[event.key], step !== null && step >= from && step <= to ? step : undefined);
  }
}
