// The canvas of the whole model: moved by pointer, wheel and keys; a button stands on the head that
// is selected, so that the keyboard and screen readers reach each.
import { inkOf } from "../colors.js";
import { zoomButtons } from "../controls.js";
import { element, letterScale, moveOf } from "../dom.js";
import { finer } from "../marks.js";
import { clamped, within } from "../numbers.js";
import { Viewport } from "../parts/viewport.js";
import { ZoomPane } from "../parts/zoom-pane.js";
import { ROW, SHOWS_MAP, headAt, marksOf, placesOf, sizeOf, tokenAt } from "./model-scene.js";

/** @import { Translate } from "../app.js" */
/** @import { Scene } from "./model-scene.js" */

/**
 * What a canvas reports: a head or a query that is chosen, whole maps that are seen and not there,
 * and that another part is seen.
 * @typedef {{chosen: (layer: number, head: number) => void, asked: (query: number) => void,
 *   wanted: (heads: number[]) => void, moved: () => void}} Heard
 */

const ZOOM_STEP = 1.5;
/** @type {Record<string, number>} */
const ZOOM_KEYS = { "+": ZOOM_STEP, "=": ZOOM_STEP, "-": 1 / ZOOM_STEP, 0: 0, Escape: 0 };
// Zooming into a head takes so many milliseconds.
const GLIDE = 260;
// The head that is opened fills so much of the canvas.
const OPENED = 0.42;
// A head may be eight times as large as a token of an atlas.
const LEVELS = { levels: 1, finest: -3, coarse: 1, ready: true, tops: [1], floor: 0, most: 1 };

export class ModelCanvas extends ZoomPane {
  /** @param {Translate} t @param {Heard} heard @param {AbortSignal} signal */
  constructor(t, heard, signal) {
    const view = new Viewport({ ...sizeOf([1], 1, 1), ...LEVELS });
    const ondblclick = () => this.open();
    super(element("canvas", { "aria-hidden": "true", ondblclick }), view, signal);
    this.heard = heard;
    this.scene = /** @type {Scene} */ (null);
    finer.set(this.canvas, () => marksOf(this.scene, this.view));
    this.node = element("button.node", {
      type: "button",
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event),
      onclick: () => this.open(),
      "aria-describedby": "model-help",
    });
    this.zooming = zoomButtons(t, (factor) => this.zoom(factor), ZOOM_STEP);
    this.element = element("div.whole", this.canvas, this.node);
  }

  /** @param {Scene} scene @param {string} name  The head that is selected, in words */
  show(scene, name) {
    const isNew = this.scene?.counts.join() !== scene.counts.join();
    if (!isNew) scene.column = this.scene.column;
    this.scene = scene;
    this.node.ariaLabel = name;
    if (isNew) this.resize();
    this.renewed();
  }

  fit() {
    const { view, scene } = this;
    const { width, height } = this.size;
    if (scene) {
      const size = sizeOf(scene.counts, width, height - ROW);
      scene.column = size.column;
      view.info = { ...size, ...LEVELS };
    }
    return { left: 0, top: ROW, bottom: 0 };
  }

  changed() {
    this.renewed();
    if (this.scene) this.heard.moved();
  }

  renewed() {
    const { view, scene } = this;
    if (!scene) return;
    this.hold();
    if (view.zoom >= SHOWS_MAP) {
      const wanted = this.seen().filter((at) => !scene.maps.has(at));
      if (wanted.length) this.heard.wanted(wanted);
    }
    this.draw();
  }

  /** The heads that are seen, counted over all layers. */
  seen() {
    const { view, scene } = this;
    return placesOf(scene).flatMap(({ x, y }, at) => {
      const isAcross = view.left(x + 1) > 0 && view.left(x) < view.width;
      return isAcross && view.top(y + 1) > 0 && view.top(y) < view.height ? [at] : [];
    });
  }

  /** Keep a head in sight: in an empty spot, half of the nearest one. */
  hold() {
    const { view, scene } = this;
    if (this.seen().length) return;
    const [nearest] = placesOf(scene)
      .map(({ x, y }) => ({ x: x + 0.5 - view.x, y: y + 0.5 - view.y }))
      .sort((one, other) => Math.hypot(one.x, one.y) - Math.hypot(other.x, other.y));
    /** @param {number} far @param {number} pixels */
    const beyond = (far, pixels) => far - clamped(far / pixels, -1, 1) * pixels;
    const [right, down] = [view.width, view.height].map((each) => each / 2 / view.zoom);
    view.go(view.y + beyond(nearest.y, down), view.x + beyond(nearest.x, right));
  }

  /** The head that is selected, and its left upper corner. */
  get selected() {
    return placesOf(this.scene)[this.scene.head];
  }

  get focus() {
    const { x, y } = this.selected;
    return { x: x + 0.5, y: y + 0.5 };
  }

  paint() {
    const { pen, view, scene } = this;
    if (!scene) return;
    pen.fillStyle = inkOf("paper");
    pen.fillRect(0, 0, view.width, view.height + ROW);
    pen.imageSmoothingEnabled = false;
    for (const mark of marksOf(scene, view)) this.drawMark(mark);
    const { x, y } = this.selected;
    const [side, left, top] = [view.zoom, view.left(x), view.top(y) + ROW].map((each) => {
      return `${each * letterScale()}px`;
    });
    const { style } = this.node;
    style.width = style.height = side;
    style.transform = `translate(${left}, ${top})`;
    this.element.dataset.zoom = String(view.zoom);
    // A finger scrolls the page over a model that is seen whole.
    this.element.classList.toggle("near", !view.isWhole);
  }

  reached(/** @type {boolean} */ clicks) {
    const { scene, view, at } = this;
    if (!scene || !clicks) return;
    const { left, top } = at;
    const token = tokenAt(scene, view, { left, top: top + ROW });
    const found = headAt(scene, view.key(left), view.query(top));
    if (token !== null) this.heard.asked(token);
    else if (found) this.heard.chosen(...found);
  }

  key(/** @type {KeyboardEvent} */ event) {
    const move = moveOf(event);
    const { zoom } = this.view;
    if (move) this.step(move);
    else if (event.key in ZOOM_KEYS) this.zoom(ZOOM_KEYS[event.key]);
    else return;
    if (event.key !== "Escape" || this.view.zoom !== zoom) event.preventDefault();
  }

  step(/** @type {[number, number]} */ [down, right]) {
    const { counts } = this.scene;
    const { layer, head } = this.selected;
    const next = within(layer + right, counts.length);
    this.heard.chosen(next, within(head + down, counts[next]));
  }

  reveal() {
    const { view } = this;
    const { x, y } = this.selected;
    const [left, top] = [view.left(x), view.top(y)];
    const isSeen = left >= 0 && top >= 0 && left + view.zoom <= view.width;
    if (isSeen && top + view.zoom <= view.height) return;
    view.go(y + 0.5, x + 0.5);
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
    const { x, y } = this.focus;
    const from = { ...view };
    const start = performance.now();
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const glide = () => {
      if (this.signal.aborted) return;
      const part = isStill ? 1 : Math.min(1, (performance.now() - start) / GLIDE);
      const zoom = from.zoom * (near / from.zoom) ** part;
      // Places move as their distance to the end, in pixels, shrinks.
      const rest = part === 1 ? 0 : ((1 - part) * from.zoom) / zoom;
      view.go(y + (from.y - y) * rest, x + (from.x - x) * rest, zoom);
      if (part === 1) this.changed();
      else this.renewed();
      if (part < 1) requestAnimationFrame(glide);
    };
    glide();
  }
}
