// The map itself: a canvas that is moved by pointer, wheel and keys.
import { paperColor } from "../colors.js";
import { element, fill, moveOf } from "../dom.js";
import { within } from "../numbers.js";
import { draw } from "./atlas-draw.js";
import { Place } from "./atlas-place.js";
import { SIDE, Tiles, tileOf } from "./atlas-tiles.js";

// What an arrow key moves the map by, and how far a pointer may tremble in a click, in pixels.
const STEP = 80;
const STILL = 4;
const ZOOMS = { "+": Math.SQRT2, "=": Math.SQRT2, "-": Math.SQRT1_2, _: Math.SQRT1_2, Home: 0 };
// While the map moves what is seen is asked for some times a second; what is beside it, once it rests.
const WANT_EACH = 80;
const REST = 250;
const MARGIN = 128;
// Tiles at once: a server on the same machine, that computes more of them, leaves no time to draw a map that moves.
const MOVING = 1;
const RESTING = 4;
// A finer screen costs more pixels in each frame than anybody sees.
const FINEST = 2;

export class AtlasMap {
  constructor({ frame, told, names, ask, failed, moved, drawn, signal, label, describedby }) {
    const cross = { queries: Math.floor(told.queries / 2), keys: Math.floor(told.keys / 4) };
    Object.assign(this, { told, names, moved, drawn, signal, cross, place: new Place(told) });
    this.tiles = new Tiles({ ask, signal, told, failed, came: () => this.draw() });
    const said = { role: "application", "aria-label": label, "aria-describedby": describedby };
    this.canvas = element("canvas", { tabindex: 0, ...said });
    this.pen = this.canvas.getContext("2d", { alpha: false });
    this.ink = { font: getComputedStyle(document.body).fontFamily };
    for (const name of ["paper", "sunk", "ink", "quiet", "accent"]) this.ink[name] = paperColor(name);
    fill(frame, this.canvas);
    this.resize();
    for (const name of ["pointerdown", "pointermove", "pointerup", "pointercancel", "wheel", "keydown"]) {
      this.canvas.addEventListener(name, (event) => this[name](event), { signal, passive: false });
    }
    const watching = new ResizeObserver(() => this.resize());
    watching.observe(this.canvas);
    signal.addEventListener("abort", () => watching.disconnect());
  }

  resize() {
    const { place, canvas } = this;
    const { clientWidth: width, clientHeight: height } = canvas;
    if (!width || !height) return;
    const { isWhole } = place;
    this.fine = Math.min(devicePixelRatio, FINEST);
    [canvas.width, canvas.height] = [width, height].map((each) => Math.round(each * this.fine));
    this.gutter = { left: width < 600 ? 62 : 92, bottom: 54 };
    Object.assign(place, { width: width - this.gutter.left, height: height - this.gutter.bottom });
    place.go(place.y, place.x, isWhole ? 0 : place.zoom);
    this.changed();
  }

  seen() {
    const { place: { level, block }, cross, told } = this;
    const span = (side) => {
      const start = Math.floor(cross[side] / block) * block;
      return [start, Math.min(start + block, told[side])];
    };
    const [queries, keys] = [span("queries"), span("keys")];
    return { level, queries, keys, value: this.tiles.value(level, queries[0] / block, keys[0] / block) };
  }

  point(query, key) {
    const { told, cross } = this;
    this.cross = { queries: within(Math.floor(query), told.queries), keys: within(Math.floor(key), told.keys) };
    if (this.cross.queries === cross.queries && this.cross.keys === cross.keys) return;
    this.moved();
    this.draw();
  }

  changed() {
    this.wanting ??= setTimeout(() => this.want(), WANT_EACH);
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.want(MARGIN), REST);
    this.moved();
    this.draw();
  }

  want(margin = 0) {
    this.wanting = null;
    if (this.signal.aborted) return;
    const { place, told, cross: { queries, keys } } = this;
    const under = tileOf(place.level, Math.floor(queries / place.block), Math.floor(keys / place.block));
    const last = tileOf(told.levels - 1, 0, 0);
    const wanted = [...place.tiles(SIDE), under, last, ...place.tiles(SIDE, margin)]
      .filter(({ level }) => told.ready || level < told.coarse);
    this.tiles.want(wanted, margin ? RESTING : MOVING);
  }

  draw() {
    this.drawing ??= requestAnimationFrame(() => {
      this.drawing = null;
      if (this.signal.aborted || !this.gutter) return;
      this.pen.setTransform(this.fine, 0, 0, this.fine, 0, 0);
      this.drawn(draw(this.pen, this));
    });
  }

  pointerdown(event) {
    if (event.button !== 0) return;
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    const at = this.at(event);
    this.held = { ...at, from: at, pointer: event.pointerId, still: true };
  }

  pointermove(event) {
    const [at, { held }] = [this.at(event), this];
    if (!held && event.pointerType === "mouse" && event.buttons === 0) this.pointAt(at);
    if (held?.pointer !== event.pointerId) return;
    held.still &&= Math.hypot(at.left - held.from.left, at.top - held.from.top) < STILL;
    if (held.still) return;
    this.place.pan(at.left - held.left, at.top - held.top);
    Object.assign(held, at);
    this.changed();
  }

  pointerup() {
    if (this.held?.still) this.pointAt(this.held);
    this.held = null;
  }

  pointercancel() { this.held = null; }

  wheel(event) {
    event.preventDefault();
    const { left, top } = this.at(event);
    const pixels = event.deltaY * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 30 : 1);
    this.place.zoomBy(2 ** (-pixels * (event.ctrlKey ? 0.02 : 0.004)), left, top);
    this.changed();
  }

  keydown(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key in ZOOMS) this.zoom(ZOOMS[event.key]);
    else if (event.key.startsWith("Arrow")) this.go(moveOf(event), event.shiftKey);
    else return;
    event.preventDefault();
  }

  go([down, right], withCross) {
    if (withCross) return this.step(down, right);
    this.place.pan(-right * STEP, -down * STEP);
    this.changed();
  }

  zoom(factor) {
    const { place, cross } = this;
    place.zoomBy(factor, within(place.left(cross.keys), place.width), within(place.top(cross.queries), place.height));
    this.changed();
  }

  step(down, right) {
    const { place, cross, told } = this;
    const { block } = place;
    const next = (side, by) =>
      (by ? within(Math.floor(cross[side] / block) + by, Math.ceil(told[side] / block)) * block : cross[side]);
    this.point(next("queries", down), next("keys", right));
    const { queries, keys } = this.cross;
    const isSeen = (from, room) => from >= 0 && from + block * place.zoom <= room;
    if (!isSeen(place.left(keys), place.width) || !isSeen(place.top(queries), place.height)) place.go(queries, keys);
    this.changed();
  }

  pointAt({ left, top }) {
    if (left >= 0 && top < this.place.height) this.point(this.place.query(top), this.place.key(left));
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return { left: event.clientX - box.left - this.gutter.left, top: event.clientY - box.top };
  }
}
