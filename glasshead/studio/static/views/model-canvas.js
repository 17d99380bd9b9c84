// The canvas of the whole model: moved by pointer, wheel and keys; a button stands on the head that
// is selected, so that the keyboard and screen readers reach each.
import { paperColor } from "../colors.js";
import { zoomButtons } from "../controls.js";
import { element, moveOf } from "../dom.js";
import { finer } from "../marks.js";
import { within } from "../numbers.js";
import { panZoom } from "../parts/pan-zoom.js";
import { Viewport } from "./atlas-viewport.js";
import { ROW, SHOWS_MAP, cornerOf, headAt, marksOf, sizeOf, tokenAt } from "./model-scene.js";

/**
 * @import { Translate } from "../app.js"
 * @import { Mark } from "../marks.js"
 * @import { Point } from "../parts/pan-zoom.js"
 * @import { Scene } from "./model-scene.js"
 */

/**
 * What a canvas reports.
 * @typedef {object} Heard
 * @property {(layer: number, head: number) => void} chosen
 * @property {(query: number) => void} asked  A token was chosen as the query
 * @property {(heads: number[]) => void} wanted  Whole maps that are seen and not there
 * @property {() => void} moved  Another part is seen
 */

const ZOOM_STEP = 1.5;
// Zooming into a head takes so many milliseconds.
const GLIDE = 260;
// The head that is opened fills so much of the canvas.
const OPENED = 0.42;
const MOST_FINE = 2;
// A head may be eight times as large as a token of an atlas.
const LEVELS = { levels: 1, finest: -3, coarse: 1, ready: true, tops: [1], floor: 0, most: 1 };

export class ModelCanvas {
  /**
   * @param {Translate} t
   * @param {Heard} heard
   * @param {AbortSignal} signal
   */
  constructor(t, heard, signal) {
    this.heard = heard;
    this.signal = signal;
    /** @type {Scene} */
    this.scene = null;
    this.view = new Viewport({ ...sizeOf([1], 1), ...LEVELS });
    /** @type {number | null} */
    this.drawing = null;
    /** @type {Record<string, string>} */
    this.inks = {};
    this.canvas = element("canvas", { "aria-hidden": "true" });
    finer.set(this.canvas, () => marksOf(this.scene, this.view));
    this.pen = this.canvas.getContext("2d", { alpha: false });
    const onkeydown = (/** @type {KeyboardEvent} */ event) => this.key(event);
    this.node = element("button.node", {
      type: "button",
      onkeydown,
      onclick: () => this.open(),
      "aria-describedby": "model-help",
    });
    this.zooming = zoomButtons(t, (factor) => this.zoom(factor), ZOOM_STEP);
    this.element = element("div.whole", this.canvas, this.node);
    this.listen();
  }

  listen() {
    const { canvas, signal } = this;
    const moves = {
      view: () => this.view,
      origin: () => ({ left: 0, top: ROW }),
      changed: () => this.changed(),
      clicked: (/** @type {Point} */ point) => this.clicked(point),
    };
    panZoom(canvas, moves, signal);
    canvas.addEventListener("dblclick", () => this.open(), { signal });
    const observer = new ResizeObserver(() => this.resize());
    observer.observe(this.element);
    signal.addEventListener("abort", () => observer.disconnect());
  }

  /**
   * @param {Scene} scene
   * @param {string} name  The head that is selected, in words
   */
  show(scene, name) {
    const isNew = this.scene?.counts.join() !== scene.counts.join();
    this.scene = scene;
    this.node.ariaLabel = name;
    this.inks = {};
    if (isNew) this.resize();
    this.changed(false);
  }

  resize() {
    const { view, canvas, element: frame } = this;
    const { clientWidth: width, clientHeight: height } = frame;
    if (!width || !height) return;
    const { isWhole } = view;
    if (this.scene) {
      const size = sizeOf(this.scene.counts, width / (height - ROW));
      this.scene.column = size.column;
      view.info = { ...size, ...LEVELS };
    }
    const fine = Math.min(devicePixelRatio, MOST_FINE);
    canvas.width = Math.round(width * fine);
    canvas.height = Math.round(height * fine);
    this.pen.setTransform(fine, 0, 0, fine, 0, 0);
    Object.assign(view, { width, height: height - ROW });
    view.go(view.y, view.x, isWhole ? 0 : view.zoom);
    this.changed(false);
  }

  /** Another part is seen, or other numbers. @param {boolean} moved */
  changed(moved = true) {
    const { view, scene } = this;
    if (!scene) return;
    if (view.zoom >= SHOWS_MAP) {
      const wanted = this.seen().filter((at) => !scene.maps.has(at));
      if (wanted.length) this.heard.wanted(wanted);
    }
    if (moved) this.heard.moved();
    this.draw();
  }

  /** The heads that are seen, counted over all layers. */
  seen() {
    const { view, scene } = this;
    /** @type {number[]} */
    const found = [];
    let at = 0;
    scene.counts.forEach((count, layer) => {
      for (let head = 0; head < count; head += 1, at += 1) {
        const { x, y } = cornerOf(scene.column, layer, head);
        const isAcross = view.left(x + 1) > 0 && view.left(x) < view.width;
        if (isAcross && view.top(y + 1) > 0 && view.top(y) < view.height) found.push(at);
      }
    });
    return found;
  }

  /** The layer and the number of the head that is selected. @returns {[number, number]} */
  get place() {
    let { head } = this.scene;
    let layer = 0;
    while (head >= this.scene.counts[layer]) {
      head -= this.scene.counts[layer];
      layer += 1;
    }
    return [layer, head];
  }

  /** The left upper corner of the head that is selected. */
  get corner() {
    return cornerOf(this.scene.column, ...this.place);
  }

  /** Draw with the next frame of the screen. */
  draw() {
    this.drawing ??= requestAnimationFrame(() => {
      this.drawing = null;
      if (this.signal.aborted || !this.scene) return;
      const { pen, view } = this;
      pen.fillStyle = this.ink("paper");
      pen.fillRect(0, 0, view.width, view.height + ROW);
      pen.imageSmoothingEnabled = false;
      for (const mark of marksOf(this.scene, view)) this.drawMark(mark);
      const { x, y } = this.corner;
      const { style } = this.node;
      style.width = style.height = `${view.zoom}px`;
      style.transform = `translate(${view.left(x)}px, ${view.top(y) + ROW}px)`;
      this.element.dataset.zoom = String(view.zoom);
    });
  }

  /** @param {string} name */
  ink(name) {
    return (this.inks[name] ??= paperColor(name) || name);
  }

  /** @param {Mark} mark */
  drawMark({ x, y, width, height, fill: color, opacity, ...rest }) {
    const { pen } = this;
    if (rest.image) pen.drawImage(rest.image, x, y, Number(width), height);
    else if (rest.text !== undefined) this.drawText({ x, y, fill: color, ...rest });
    else if (rest.d === undefined) {
      pen.fillStyle = this.ink(color);
      pen.fillRect(x, y, Number(width), height);
    } else {
      const path = new Path2D(rest.d);
      pen.globalAlpha = Number(opacity ?? 1);
      pen.strokeStyle = this.ink(rest.stroke);
      pen.lineWidth = Number(width ?? 1);
      if (color) {
        pen.fillStyle = this.ink(color);
        pen.fill(path);
      }
      pen.stroke(path);
      pen.globalAlpha = 1;
    }
  }

  /** @param {Mark} mark */
  drawText({ x, y, text, size, anchor, weight = 400, fill: color, rotate }) {
    const { pen } = this;
    pen.fillStyle = this.ink(color);
    pen.font = `${weight} ${size}px ${this.ink("plain")}`;
    pen.textAlign = anchor === "middle" ? "center" : anchor === "end" ? "right" : "left";
    if (!rotate) {
      pen.fillText(String(text), x, y);
      return;
    }
    pen.save();
    pen.translate(x, y);
    pen.rotate((rotate * Math.PI) / 180);
    pen.fillText(String(text), 0, 0);
    pen.restore();
  }

  /** @param {Point} point */
  clicked({ left, top }) {
    const { scene, view } = this;
    if (!scene) return;
    const token = tokenAt(scene, view, { left, top: top + ROW });
    const found = headAt(scene, view.key(left), view.query(top));
    if (token !== null) this.heard.asked(token);
    else if (found) this.heard.chosen(...found);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const move = moveOf(event);
    if (move) this.step(move);
    else if (event.key === "+" || event.key === "=") this.zoom(ZOOM_STEP);
    else if (event.key === "-") this.zoom(1 / ZOOM_STEP);
    else if (event.key === "Escape" || event.key === "0") this.zoom(0);
    else return;
    event.preventDefault();
  }

  /** Select a neighbor. @param {[number, number]} move */
  step([down, right]) {
    const { counts } = this.scene;
    const [layer, head] = this.place;
    const next = within(layer + right, counts.length);
    this.heard.chosen(next, within(head + down, counts[next]));
  }

  /** Bring the head that is selected into sight. */
  reveal() {
    const { view } = this;
    const { x, y } = this.corner;
    const [left, top] = [view.left(x), view.top(y)];
    const isSeen = left >= 0 && top >= 0 && left + view.zoom <= view.width;
    if (isSeen && top + view.zoom <= view.height) return;
    view.go(y + 0.5, x + 0.5);
    this.changed();
  }

  /** Zoom at the head that is selected; by 0, until all is seen. @param {number} factor */
  zoom(factor) {
    const { view } = this;
    const { x, y } = this.corner;
    view.zoomBy(
      factor,
      within(view.left(x + 0.5), view.width),
      within(view.top(y + 0.5), view.height),
    );
    this.changed();
  }

  /** Go near the head that is selected, or back where it is near. */
  open() {
    const { view } = this;
    const near = OPENED * Math.min(view.width, view.height);
    if (view.zoom > 0.9 * near) {
      this.zoom(0);
      return;
    }
    const { x, y } = this.corner;
    const from = { y: view.y, x: view.x, zoom: view.zoom };
    const start = performance.now();
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const glide = () => {
      if (this.signal.aborted) return;
      const part = isStill ? 1 : Math.min(1, (performance.now() - start) / GLIDE);
      const zoom = from.zoom * (near / from.zoom) ** part;
      // Places move as their distance to the end, in pixels, shrinks.
      const rest = part === 1 ? 0 : ((1 - part) * from.zoom) / zoom;
      view.go(y + 0.5 + (from.y - y - 0.5) * rest, x + 0.5 + (from.x - x - 0.5) * rest, zoom);
      this.changed(part === 1);
      if (part < 1) requestAnimationFrame(glide);
    };
    glide();
  }
}
