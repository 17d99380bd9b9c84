// Where one looks: the query `y` and the key `x` in the middle, at `zoom` pixels a token.
import { clamped } from "../numbers.js";

/**
 * A head's map as the studio describes it.
 * @typedef {object} MapInfo
 * @property {number} queries @property {number} keys
 * @property {number} levels  Levels of blocks of 2^level tokens, from 0
 * @property {number} finest  The first level that there is
 * @property {number} coarse  The first level whose tiles come from the overview
 * @property {boolean} ready  Whether the overview has been computed
 * @property {number[]} tops  Upper ends of color scales
 * @property {number} floor  Lower end of logarithmic ones
 * @property {number | null} most  The largest mean weight in a block of the coarsest level
 */

/** @typedef {{level: number, row: number, column: number}} TilePlace */

// From how many pixels on a token is named beside its cell.
export const NAMED = 13;
const LARGEST_CELL = 96;
// Rounding leaves a map that is seen whole a little larger or smaller.
const TOLERANCE = 1.0001;

export class Viewport {
  constructor(/** @type {MapInfo} */ info) {
    this.info = info;
    this.width = 600;
    this.height = 600;
    this.zoom = 0;
    this.y = 0;
    this.x = 0;
    this.go(0, 0, 0);
  }

  /** The zoom at which all is seen. */
  get leastZoom() {
    const { keys, queries } = this.info;
    return Math.min(this.width / keys, this.height / queries, LARGEST_CELL);
  }

  get isWhole() {
    return this.zoom <= this.leastZoom * TOLERANCE;
  }

  /** The level at which a block is a pixel at least. */
  get level() {
    const { finest, levels } = this.info;
    const level = Math.ceil(-Math.log2(this.zoom) - 1e-9);
    return clamped(level, finest, levels - 1);
  }

  /** Tokens along a block of the level. */
  get block() {
    return 2 ** this.level;
  }

  top(/** @type {number} */ query) {
    return (query - this.y) * this.zoom + this.height / 2;
  }

  left(/** @type {number} */ key) {
    return (key - this.x) * this.zoom + this.width / 2;
  }

  query(/** @type {number} */ top) {
    return (top - this.height / 2) / this.zoom + this.y;
  }

  key(/** @type {number} */ left) {
    return (left - this.width / 2) / this.zoom + this.x;
  }

  /** Move by pixels. @param {number} right @param {number} down */
  pan(right, down) {
    this.go(this.y - down / this.zoom, this.x - right / this.zoom);
  }

  // Zoom, and leave in its place what is at a pixel.
  /** @param {number} factor @param {number} left @param {number} top */
  zoomBy(factor, left, top) {
    const query = this.query(top);
    const key = this.key(left);
    this.zoom = this.bounded(this.zoom * factor);
    this.go(this.y + query - this.query(top), this.x + key - this.key(left));
  }

  /** @param {number} y @param {number} x */
  go(y, x, zoom = this.zoom) {
    const { info, width, height } = this;
    this.zoom = this.bounded(zoom);
    this.y = this.inside(y, info.queries, height);
    this.x = this.inside(x, info.keys, width);
  }

  // The nearest middle at which no more is seen beside the map than where all of it is seen: so
  // what is under the pointer stays there from the first turn of the wheel on.
  /** @param {number} at @param {number} length @param {number} pixels */
  inside(at, length, pixels) {
    const beside = Math.max(0, (pixels - length * this.leastZoom) / 2);
    const least = Math.min(length / 2, (pixels / 2 - beside) / this.zoom);
    return clamped(at, least, length - least);
  }

  bounded(/** @type {number} */ zoom) {
    const largest = LARGEST_CELL / 2 ** this.info.finest;
    return clamped(zoom, this.leastZoom, largest);
  }

  // The rows and columns that are seen, of parts that are so many tokens long, and in a margin of
  // pixels around.
  seen(/** @type {number} */ length, margin = 0) {
    const { width, height, info } = this;
    /** @param {number} low @param {number} high @param {number} all */
    const parts = (low, high, all) => {
      return [Math.max(0, Math.floor(low / length)), Math.ceil(Math.min(all, high) / length)];
    };
    return {
      rows: parts(this.query(-margin), this.query(height + margin), info.queries),
      columns: parts(this.key(-margin), this.key(width + margin), info.keys),
    };
  }

  // The tiles that are seen, those in the middle first.
  /** @param {number} side  Blocks along a tile @param {number} [margin] @returns {TilePlace[]} */
  tiles(side, margin) {
    const { level, block, y, x } = this;
    const { rows, columns } = this.seen(side * block, margin);
    const found = [];
    for (let row = rows[0]; row < rows[1]; row += 1) {
      for (let column = columns[0]; column < columns[1]; column += 1) {
        found.push({ level, row, column });
      }
    }
    const middle = (/** @type {number} */ at) => (at + 0.5) * side * block;
    /** @param {TilePlace} place */
    const distance = ({ row, column }) => Math.hypot(middle(row) - y, middle(column) - x);
    return found.sort((one, other) => distance(one) - distance(other));
  }
}
