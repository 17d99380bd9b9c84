// The map itself: a canvas that is moved by pointer, wheel and keys.
import { moveOf } from "../dom.js";
import { finer } from "../marks.js";
import { within } from "../numbers.js";
import { Viewport } from "../parts/viewport.js";
import { ZoomPane } from "../parts/zoom-pane.js";
import { atlasMarks, drawAtlas } from "./atlas-draw.js";
import { SIDE, Tiles, tileOf } from "./atlas-tiles.js";

/** @import { ColorScale } from "../colors.js" */
/** @import { MapInfo, TilePlace } from "../parts/viewport.js" */
/** @import { Selection } from "../selection.js" */
/** @import { Tensor } from "../source.js" */
/** @import { Tokens } from "./atlas-text.js" */

/** @typedef {"queries" | "keys"} Side */

/**
 * What the cross-hair is at: a block, from its first query and key to those behind its last, and
 * its number, undefined as long as it is not there.
 * @typedef {{level: number, queries: [number, number], keys: [number, number],
 *   value: number | undefined}} Seen
 */

/**
 * What a map asks for, and what it reports; it is drawn with whether all tiles were there.
 * @typedef {{ask: (place: TilePlace, signal: AbortSignal) => Promise<Tensor>,
 *   failed: (error: Error & {status?: number}) => void, moved: () => void,
 *   drawn: (isWhole: boolean) => void}} Heard
 */

// The ends of the colors, and the place of a weight among them.
/** @typedef {{floor: number, top: number, place: ColorScale}} Scale */

// What an arrow key moves the map by, in pixels.
const STEP = 80;
const [NEARER, FARTHER] = [Math.SQRT2, Math.SQRT1_2];
/** @type {Record<string, number>} */
const ZOOM_KEYS = { "+": NEARER, "=": NEARER, "-": FARTHER, _: FARTHER, Home: 0 };
// While the map moves what is seen is asked for some times a second; what is next to it, once it
// rests.
const WANT_EACH = 80;
const REST = 250;
const MARGIN = 128;
// Tiles at once: a server on the same machine, that computes more of them, leaves no time to draw a
// map that moves.
const WHILE_MOVING = 1;
const WHILE_RESTING = 4;
const NARROW = 600;

export class AtlasMap extends ZoomPane {
  /**
   * @param {HTMLCanvasElement} canvas @param {MapInfo} info
   * @param {Record<Side, Tokens>} tokens
   * @param {Record<Side, string>} titles  Of the axes
   * @param {Selection} selection  Whose query and key have the cross-hair
   * @param {Heard} heard @param {AbortSignal} signal
   */
  constructor(canvas, info, tokens, titles, selection, heard, signal) {
    super(canvas, new Viewport(info), signal);
    this.info = info;
    this.tokens = tokens;
    this.titles = titles;
    this.selection = selection;
    this.heard = heard;
    this.tiles = new Tiles(info, heard, () => this.draw(), signal);
    canvas.onpointerleave = () => selection.leave();
    canvas.onkeydown = (event) => this.key(event);
    /** @type {Scale} */
    this.scale = { floor: 0, top: 1, place: () => 0 };
    this.wanting = /** @type {number | null} */ (null);
    this.resting = /** @type {number | null} */ (null);
    finer.set(canvas, () => atlasMarks(this));
    this.resize();
  }

  fit() {
    return { left: this.size.width < NARROW ? 62 : 92, top: 0, bottom: 54 };
  }

  /** @returns {Record<Side, number>} */
  get cross() {
    const { query, key } = this.selection;
    return { queries: query, keys: key };
  }

  get focus() {
    const { queries: y, keys: x } = this.cross;
    return { y, x };
  }

  /** @returns {Seen} */
  seen() {
    const { view, tiles } = this;
    const { level, block } = view;
    const queries = this.blockOf("queries");
    const keys = this.blockOf("keys");
    const value = tiles.value(level, queries[0] / block, keys[0] / block);
    return { level, queries, keys, value };
  }

  // The tokens of the block that the cross-hair is at.
  /** @param {Side} side @returns {[number, number]} */
  blockOf(side) {
    const { block } = this.view;
    const start = Math.floor(this.cross[side] / block) * block;
    return [start, Math.min(start + block, this.info[side])];
  }

  // Move the cross-hair to the nearest place there is.
  /** @param {number} query @param {number} key @param {boolean} pins  Whether it stays there */
  point(query, key, pins = true) {
    const { info, selection } = this;
    const place = {
      query: within(Math.floor(query), info.queries),
      key: within(Math.floor(key), info.keys),
    };
    if (pins) selection.pin(place);
    else selection.point(place);
  }

  /** Ask for the tiles of what is seen, soon and once the map rests. */
  renewed() {
    this.wanting ??= setTimeout(() => this.want(0, WHILE_MOVING), WANT_EACH);
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.want(MARGIN, WHILE_RESTING), REST);
    this.heard.moved();
    this.draw();
  }

  /** @param {number} margin @param {number} atOnce */
  want(margin, atOnce) {
    this.wanting = null;
    if (this.signal.aborted) return;
    const { view, info, cross } = this;
    const { level, block } = view;
    const ofCross = tileOf(level, cross.queries / block, cross.keys / block);
    const coarsest = tileOf(info.levels - 1, 0, 0);
    const all = [...view.tiles(SIDE), ofCross, coarsest, ...view.tiles(SIDE, margin)];
    const wanted = all.filter((tile) => info.ready || tile.level < info.coarse);
    this.tiles.want(wanted, atOnce);
  }

  paint() {
    if (this.edges.left) this.heard.drawn(drawAtlas(this));
  }

  key(/** @type {KeyboardEvent} */ event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key in ZOOM_KEYS) this.zoom(ZOOM_KEYS[event.key]);
    else if (event.key.startsWith("Arrow")) {
      const [down, right] = moveOf(event);
      if (event.shiftKey) this.step(down, right);
      else this.view.pan(-right * STEP, -down * STEP);
      this.changed();
    } else return;
    event.preventDefault();
  }

  // Move the cross-hair by blocks, and the map where it would leave it.
  /** @param {number} down @param {number} right */
  step(down, right) {
    const { view } = this;
    this.point(this.nextBlock("queries", down), this.nextBlock("keys", right));
    const { queries, keys } = this.cross;
    const size = view.block * view.zoom;
    /** @param {number} from @param {number} room */
    const isSeen = (from, room) => from >= 0 && from + size <= room;
    const isAcross = isSeen(view.left(keys), view.width);
    if (!isAcross || !isSeen(view.top(queries), view.height)) view.go(queries, keys);
  }

  // The first token of a block next to that of the cross-hair.
  /** @param {Side} side @param {number} by */
  nextBlock(side, by) {
    const { block } = this.view;
    if (!by) return this.cross[side];
    const count = Math.ceil(this.info[side] / block);
    return within(Math.floor(this.cross[side] / block) + by, count) * block;
  }

  reached(/** @type {boolean} */ pins) {
    const { view, at } = this;
    if (at.left < 0 || at.top >= view.height) return;
    this.point(view.query(at.top), view.key(at.left), pins);
  }
}
