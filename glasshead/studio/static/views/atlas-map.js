// The map itself: a canvas that is moved by pointer, wheel and keys.
import { paperColor } from "../colors.js";
import { element, fill, moveOf } from "../dom.js";
import { finer } from "../marks.js";
import { within } from "../numbers.js";
import { panZoom } from "../parts/pan-zoom.js";
import { atlasMarks, drawAtlas } from "./atlas-draw.js";
import { SIDE, Tiles, tileOf } from "./atlas-tiles.js";
import { Viewport } from "./atlas-viewport.js";

/**
 * @import { ColorScale } from "../colors.js"
 * @import { Point } from "../parts/pan-zoom.js"
 * @import { Tensor } from "../source.js"
 * @import { Tokens } from "./atlas-text.js"
 * @import { MapInfo, TilePlace } from "./atlas-viewport.js"
 */

/** @typedef {"queries" | "keys"} Side */

/**
 * What the cross-hair is at: a block, and its number.
 * @typedef {object} Seen
 * @property {number} level
 * @property {[number, number]} queries  Its first query, and the one behind its last
 * @property {[number, number]} keys
 * @property {number | undefined} value  Undefined as long as it is not there
 */

/**
 * The ends of the colors, and the place of a weight among them.
 * @typedef {{floor: number, top: number, place: ColorScale}} Scale
 */

// What an arrow key moves the map by, in pixels.
const STEP = 80;
/** @type {Record<string, number>} */
const ZOOM_KEYS = {
  "+": Math.SQRT2,
  "=": Math.SQRT2,
  "-": Math.SQRT1_2,
  _: Math.SQRT1_2,
  Home: 0,
};
// While the map moves what is seen is asked for some times a second; what is beside it, once it
// rests.
const WANT_EACH = 80;
const REST = 250;
const MARGIN = 128;
// Tiles at once: a server on the same machine, that computes more of them, leaves no time to draw a
// map that moves.
const WHILE_MOVING = 1;
const WHILE_RESTING = 4;
// A finer screen costs more pixels in each frame than anybody sees.
const FINEST = 2;
const NARROW = 600;

export class AtlasMap {
  /**
   * @param {object} given
   * @param {Element} given.frame
   * @param {MapInfo} given.info
   * @param {Record<Side, Tokens>} given.tokens
   * @param {(place: TilePlace, signal: AbortSignal) => Promise<Tensor>} given.ask
   * @param {(error: Error) => void} given.failed
   * @param {() => void} given.moved
   * @param {(isWhole: boolean) => void} given.drawn  Called with whether all tiles were there
   * @param {AbortSignal} given.signal
   * @param {string} given.label
   * @param {string} given.describedby
   */
  constructor({ frame, info, tokens, ask, failed, moved, drawn, signal, label, describedby }) {
    this.info = info;
    this.tokens = tokens;
    this.moved = moved;
    this.drawn = drawn;
    this.signal = signal;
    // Where the cross-hair is, and where it goes back to when the pointer leaves.
    this.cross = { queries: Math.floor(info.queries / 2), keys: Math.floor(info.keys / 4) };
    this.pinned = this.cross;
    this.viewport = new Viewport(info);
    this.tiles = new Tiles({ ask, signal, info, failed, came: () => this.draw() });
    /** @type {Scale} */
    this.scale = { floor: 0, top: 1, place: () => 0 };
    // Timers, and the frame that is asked for.
    /** @type {number | null} */
    this.wanting = null;
    /** @type {number | null} */
    this.resting = null;
    /** @type {number | null} */
    this.drawing = null;
    this.fine = 1;
    this.gutter = { left: 0, bottom: 0 };
    this.canvas = element("canvas", {
      tabindex: 0,
      role: "application",
      "aria-label": label,
      "aria-describedby": describedby,
    });
    finer.set(this.canvas, () => atlasMarks(this));
    this.pen = this.canvas.getContext("2d", { alpha: false });
    this.font = getComputedStyle(document.body).fontFamily;
    this.ink = inks();
    fill(frame, this.canvas);
    this.resize();
    this.listen();
  }

  listen() {
    const { canvas, signal } = this;
    const moves = {
      view: () => this.viewport,
      origin: () => ({ left: this.gutter.left, top: 0 }),
      changed: () => this.changed(),
      clicked: (/** @type {Point} */ point) => this.pointAt(point, true),
      hovered: (/** @type {Point} */ point) => this.pointAt(point, false),
    };
    panZoom(canvas, moves, signal);
    const leave = () => this.point(this.pinned.queries, this.pinned.keys, false);
    canvas.addEventListener("pointerleave", leave, { signal });
    canvas.addEventListener("keydown", (event) => this.key(event), { signal });
    const observer = new ResizeObserver(() => this.resize());
    observer.observe(canvas);
    signal.addEventListener("abort", () => observer.disconnect());
  }

  resize() {
    const { viewport, canvas } = this;
    const { clientWidth: width, clientHeight: height } = canvas;
    if (!width || !height) return;
    const { isWhole } = viewport;
    this.fine = Math.min(devicePixelRatio, FINEST);
    canvas.width = Math.round(width * this.fine);
    canvas.height = Math.round(height * this.fine);
    this.gutter = { left: width < NARROW ? 62 : 92, bottom: 54 };
    viewport.width = width - this.gutter.left;
    viewport.height = height - this.gutter.bottom;
    viewport.go(viewport.y, viewport.x, isWhole ? 0 : viewport.zoom);
    this.changed();
  }

  /** @returns {Seen} */
  seen() {
    const { viewport, tiles } = this;
    const { level, block } = viewport;
    const queries = this.blockOf("queries");
    const keys = this.blockOf("keys");
    const value = tiles.value(level, queries[0] / block, keys[0] / block);
    return { level, queries, keys, value };
  }

  /**
   * The tokens of the block that the cross-hair is at.
   * @param {Side} side
   * @returns {[number, number]}
   */
  blockOf(side) {
    const { block } = this.viewport;
    const start = Math.floor(this.cross[side] / block) * block;
    return [start, Math.min(start + block, this.info[side])];
  }

  /**
   * Move the cross-hair to the nearest place there is.
   * @param {number} query
   * @param {number} key
   * @param {boolean} pins  Whether it stays there
   */
  point(query, key, pins = true) {
    const { info, cross } = this;
    const queries = within(Math.floor(query), info.queries);
    const keys = within(Math.floor(key), info.keys);
    const isThere = queries === cross.queries && keys === cross.keys;
    const isPinned = queries === this.pinned.queries && keys === this.pinned.keys;
    if (pins) this.pinned = { queries, keys };
    if (isThere && (isPinned || !pins)) return;
    this.cross = { queries, keys };
    this.moved();
    this.draw();
  }

  /** Another part is seen: ask for its tiles, soon and once the map rests. */
  changed() {
    this.wanting ??= setTimeout(() => this.want(0, WHILE_MOVING), WANT_EACH);
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.want(MARGIN, WHILE_RESTING), REST);
    this.moved();
    this.draw();
  }

  /**
   * @param {number} margin
   * @param {number} atOnce
   */
  want(margin, atOnce) {
    this.wanting = null;
    if (this.signal.aborted) return;
    const { viewport, info, cross } = this;
    const { level, block } = viewport;
    const ofCross = tileOf(
      level,
      Math.floor(cross.queries / block),
      Math.floor(cross.keys / block),
    );
    const coarsest = tileOf(info.levels - 1, 0, 0);
    const beside = viewport.tiles(SIDE, margin);
    const all = [...viewport.tiles(SIDE), ofCross, coarsest, ...beside];
    const wanted = all.filter((tile) => info.ready || tile.level < info.coarse);
    this.tiles.want(wanted, atOnce);
  }

  /** Draw the map with the next frame of the screen. */
  draw() {
    this.drawing ??= requestAnimationFrame(() => {
      this.drawing = null;
      if (this.signal.aborted || !this.gutter.left) return;
      this.pen.setTransform(this.fine, 0, 0, this.fine, 0, 0);
      this.drawn(drawAtlas(this.pen, this));
    });
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key in ZOOM_KEYS) this.zoom(ZOOM_KEYS[event.key]);
    else if (event.key.startsWith("Arrow")) this.arrow(moveOf(event), event.shiftKey);
    else return;
    event.preventDefault();
  }

  /**
   * Move the cross-hair, or else the map.
   * @param {[number, number]} move
   * @param {boolean} withCross
   */
  arrow([down, right], withCross) {
    if (withCross) {
      this.step(down, right);
      return;
    }
    this.viewport.pan(-right * STEP, -down * STEP);
    this.changed();
  }

  /**
   * Zoom at the cross-hair; by 0, until all is seen.
   * @param {number} factor
   */
  zoom(factor) {
    const { viewport, cross } = this;
    const left = within(viewport.left(cross.keys), viewport.width);
    const top = within(viewport.top(cross.queries), viewport.height);
    viewport.zoomBy(factor, left, top);
    this.changed();
  }

  /**
   * Move the cross-hair by blocks, and the map where it would leave it.
   * @param {number} down
   * @param {number} right
   */
  step(down, right) {
    const { viewport } = this;
    this.point(this.nextBlock("queries", down), this.nextBlock("keys", right));
    const { queries, keys } = this.cross;
    const size = viewport.block * viewport.zoom;
    /**
     * @param {number} from
     * @param {number} room
     */
    const isSeen = (from, room) => from >= 0 && from + size <= room;
    const isAcross = isSeen(viewport.left(keys), viewport.width);
    if (!isAcross || !isSeen(viewport.top(queries), viewport.height)) viewport.go(queries, keys);
    this.changed();
  }

  /**
   * The first token of a block beside that of the cross-hair.
   * @param {Side} side
   * @param {number} by
   */
  nextBlock(side, by) {
    const { block } = this.viewport;
    if (!by) return this.cross[side];
    const count = Math.ceil(this.info[side] / block);
    return within(Math.floor(this.cross[side] / block) + by, count) * block;
  }

  /** @param {Point} point @param {boolean} pins */
  pointAt({ left, top }, pins) {
    const { viewport } = this;
    if (left < 0 || top >= viewport.height) return;
    this.point(viewport.query(top), viewport.key(left), pins);
  }
}

/** The page's colors, which a canvas does not know by name. */
function inks() {
  const names = ["paper", "sunk", "ink", "quiet", "accent"];
  return Object.fromEntries(names.map((name) => [name, paperColor(name)]));
}
