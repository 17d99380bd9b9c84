// A canvas that shows a part of a map: a pointer drags it, a wheel zooms it, and a press that does not
// drag is a click. It is drawn with the next frame of the screen.
import { inkOf } from "../colors.js";
import { letterScale, placeIn } from "../dom.js";
import { within } from "../numbers.js";

/** @import { Mark } from "../marks.js" */
/** @import { Viewport } from "./viewport.js" */

/** @typedef {{left: number, top: number}} Point  Pixels from where the viewport begins */

/** @typedef {{left: number, top: number, bottom: number}} Edges  Pixels around the viewport */

// How far a pointer may tremble in a click, in pixels.
const STILL = 4;
// Pixels of a line that a wheel turns by, and how much of a power of 2 each pixel zooms by.
const WHEEL_LINE = 30;
const WHEEL_ZOOM = 0.004;
const PINCH_ZOOM = 0.02;
// A finer screen costs more pixels in each frame than anybody sees.
const FINEST = 2;

/** Subclasses override what is drawn, and what a click, a pointer and a change of size do. */
export class ZoomPane {
  /** @param {HTMLCanvasElement} canvas @param {Viewport} view @param {AbortSignal} signal */
  constructor(canvas, view, signal) {
    this.canvas = canvas;
    this.view = view;
    this.signal = signal;
    this.pen = canvas.getContext("2d", { alpha: false });
    this.edges = /** @type {Edges} */ ({ left: 0, top: 0, bottom: 0 });
    this.size = { width: 0, height: 0 };
    this.at = /** @type {Point} */ ({ left: 0, top: 0 });
    this.drawing = /** @type {number | null} */ (null);
    /** @type {(Point & {from: Point, pointer: number, still: boolean}) | null} */
    this.press = null;
    /** @param {keyof HTMLElementEventMap} name @param {(event: any) => void} heard */
    const on = (name, heard) => canvas.addEventListener(name, heard, { signal, passive: false });
    on("pointerdown", (event) => this.pressed(event));
    on("pointermove", (event) => this.pointed(event));
    on("pointerup", () => this.released());
    on("pointercancel", () => (this.press = null));
    // What the wheel does here it does not do to the page.
    on("wheel", (event) => this.wheel(event));
    const observer = new ResizeObserver(() => this.resize());
    observer.observe(canvas);
    signal.addEventListener("abort", () => observer.disconnect());
  }

  /** Another part is seen, after a drag, a wheel or a key. */
  changed() {
    this.renewed();
  }

  /** The same part has another size, or shows something else. */
  renewed() {
    this.draw();
  }

  // A pointer is at the place `at`, and clicks, or else it is a mouse that presses nothing.
  /** @type {(clicks: boolean) => void} */
  reached() {}

  paint() {}

  /** Fit what is shown into `size`; gives what is left free around it. */
  fit() {
    return this.edges;
  }

  /** The place that stays where it is when keys zoom. */
  get focus() {
    return { y: 0, x: 0 };
  }

  resize() {
    const { view, canvas, pen } = this;
    const large = letterScale();
    const [width, height] = [canvas.clientWidth / large, canvas.clientHeight / large];
    if (!width || !height) return;
    const { isWhole } = view;
    const fine = Math.min(devicePixelRatio, FINEST) * large;
    canvas.width = Math.round(width * fine);
    canvas.height = Math.round(height * fine);
    pen.setTransform(fine, 0, 0, fine, 0, 0);
    this.size = { width, height };
    this.edges = this.fit();
    const { left, top, bottom } = this.edges;
    Object.assign(view, { width: width - left, height: height - top - bottom });
    view.go(view.y, view.x, isWhole ? 0 : view.zoom);
    this.renewed();
  }

  /** Draw with the next frame of the screen. */
  draw() {
    this.drawing ??= requestAnimationFrame(() => {
      this.drawing = null;
      if (!this.signal.aborted) this.paint();
    });
  }

  /** Zoom at the focus; by 0, until all is seen. @param {number} factor */
  zoom(factor) {
    const { view } = this;
    const { y, x } = this.focus;
    view.zoomBy(factor, within(view.left(x), view.width), within(view.top(y), view.height));
    this.changed();
  }

  drawMark(/** @type {Mark} */ mark) {
    const { pen } = this;
    const { x, y, width = 1, height, fill: color, opacity = 1, d } = mark;
    if (color) pen.fillStyle = inkOf(color);
    if (mark.text !== undefined) this.drawText(mark);
    else if (mark.image) pen.drawImage(mark.image, x, y, Number(width), height);
    else if (d === undefined) pen.fillRect(x, y, Number(width), height);
    else {
      const path = new Path2D(d);
      pen.globalAlpha = Number(opacity);
      pen.strokeStyle = inkOf(mark.stroke);
      pen.lineWidth = Number(width);
      if (color) pen.fill(path);
      pen.stroke(path);
      pen.globalAlpha = 1;
    }
  }

  drawText(/** @type {Mark} */ { x, y, text, size, anchor = "start", weight = 400, rotate = 0 }) {
    const { pen } = this;
    pen.save();
    pen.translate(x, y);
    pen.rotate((rotate * Math.PI) / 180);
    pen.font = `${weight} ${size}px ${inkOf("plain")}`;
    pen.textAlign = anchor === "middle" ? "center" : /** @type {CanvasTextAlign} */ (anchor);
    pen.fillText(String(text), 0, 0);
    pen.restore();
  }

  /** @param {MouseEvent} event @returns {Point} */
  pointOf(event) {
    const { x, y } = placeIn(this.canvas, event);
    return { left: x - this.edges.left, top: y - this.edges.top };
  }

  pressed(/** @type {PointerEvent} */ event) {
    if (event.button !== 0) return;
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    const at = this.pointOf(event);
    this.press = { ...at, from: at, pointer: event.pointerId, still: true };
  }

  pointed(/** @type {PointerEvent} */ event) {
    const { press } = this;
    const at = this.pointOf(event);
    this.at = at;
    if (!press && event.pointerType === "mouse" && event.buttons === 0) this.reached(false);
    if (press?.pointer !== event.pointerId) return;
    press.still &&= Math.hypot(at.left - press.from.left, at.top - press.from.top) < STILL;
    if (press.still) return;
    this.view.pan(at.left - press.left, at.top - press.top);
    Object.assign(press, at);
    this.changed();
  }

  released() {
    const { press } = this;
    this.press = null;
    if (!press?.still) return;
    this.at = press;
    this.reached(true);
  }

  wheel(/** @type {WheelEvent} */ event) {
    const { view } = this;
    // Seen whole, it goes no further away: the wheel scrolls the page instead.
    if (view.isWhole && event.deltaY > 0) return;
    event.preventDefault();
    const { left, top } = this.pointOf(event);
    const isOfLines = event.deltaMode === WheelEvent.DOM_DELTA_LINE;
    const pixels = event.deltaY * (isOfLines ? WHEEL_LINE : 1);
    // Two fingers on a touchpad come as a wheel with Ctrl.
    const speed = event.ctrlKey ? PINCH_ZOOM : WHEEL_ZOOM;
    view.zoomBy(2 ** (-pixels * speed), left, top);
    this.changed();
  }
}
