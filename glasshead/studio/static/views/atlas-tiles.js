// The tiles of an atlas: asked for while they are wanted, kept while there is room.
import { paint } from "../colors.js";
import { element } from "../dom.js";
import { range } from "../numbers.js";

/** @import { ColorScale } from "../colors.js" */
/** @import { Heard } from "./atlas-map.js" */
/** @import { MapInfo, TilePlace } from "../parts/viewport.js" */

/**
 * @typedef {{values: Float32Array, rows: number, columns: number, image?: HTMLCanvasElement,
 *   paintedBy?: ColorScale}} OwnTile
 */

/** @typedef {TilePlace & OwnTile} Tile */

// Blocks along a side of a tile.
export const SIDE = 256;
// Each takes 256 kB as numbers and as much as colors.
const MOST_KEPT = 160;

// The tile of a block, or of a place in it.
/** @param {number} level @param {number} row @param {number} column @returns {TilePlace} */
export function tileOf(level, row, column) {
  return { level, row: Math.floor(row / SIDE), column: Math.floor(column / SIDE) };
}

const nameOf = (/** @type {TilePlace} */ { level, row, column }) => `${level}/${row}/${column}`;

export class Tiles {
  /**
   * @param {MapInfo} info @param {Pick<Heard, "ask" | "failed">} heard
   * @param {() => void} came  Called with each tile that has come
   * @param {AbortSignal} signal
   */
  constructor(info, heard, came, signal) {
    this.info = info;
    this.heard = heard;
    this.came = came;
    // The least recently used come first.
    this.kept = /** @type {Map<string, Tile>} */ (new Map());
    this.underWay = /** @type {Map<string, AbortController>} */ (new Map());
    this.wanted = /** @type {Map<string, TilePlace>} */ (new Map());
    this.atOnce = 0;
    signal.addEventListener("abort", () => this.want([], 0));
  }

  // Ask for these tiles, in order, and no longer for others.
  /** @param {TilePlace[]} places @param {number} atOnce */
  want(places, atOnce) {
    this.wanted = new Map(places.map((place) => [nameOf(place), place]));
    this.atOnce = atOnce;
    for (const [name, leaving] of this.underWay) {
      if (this.wanted.has(name)) continue;
      leaving.abort();
      this.underWay.delete(name);
    }
    this.askForNext();
  }

  askForNext() {
    for (const [name, place] of this.wanted) {
      if (this.underWay.size >= this.atOnce) return;
      if (!this.underWay.has(name) && !this.kept.has(name)) this.fetch(name, place);
    }
  }

  /** @param {string} name @param {TilePlace} place */
  async fetch(name, place) {
    const leaving = new AbortController();
    this.underWay.set(name, leaving);
    try {
      const { values, shape } = await this.heard.ask(place, leaving.signal);
      if (leaving.signal.aborted) return;
      this.keep(name, { ...place, values, rows: shape[0], columns: shape[1] });
    } catch (error) {
      if (leaving.signal.aborted) return;
      this.underWay.delete(name);
      this.heard.failed(error);
    }
  }

  /** @param {string} name @param {Tile} tile */
  keep(name, tile) {
    this.underWay.delete(name);
    this.kept.set(name, tile);
    for (const [oldest, { level }] of this.kept) {
      if (this.kept.size <= MOST_KEPT) break;
      // The coarsest tile is what is seen wherever nothing else has come yet.
      if (level < this.info.levels - 1) this.kept.delete(oldest);
    }
    this.came();
    this.askForNext();
  }

  /** The tile of a place, or as long as it is not there the finest one that covers it. */
  nearest(/** @type {TilePlace} */ { level, row, column }) {
    for (let up = 0; level + up < this.info.levels; up += 1) {
      const name = nameOf({ level: level + up, row: row >> up, column: column >> up });
      const tile = this.kept.get(name);
      if (!tile) continue;
      this.kept.delete(name);
      this.kept.set(name, tile);
      return tile;
    }
    return null;
  }

  // The number of a block; undefined as long as it is not there.
  /** @param {number} level @param {number} row @param {number} column */
  value(level, row, column) {
    const tile = this.kept.get(nameOf(tileOf(level, row, column)));
    return tile?.values[(row % SIDE) * tile.columns + (column % SIDE)];
  }

  // A canvas of one pixel a block, colored by the mean weight of a single key in it: so a region
  // keeps its color while it is zoomed into. It is clear where all is hidden (−0).
  /** @param {Tile} tile @param {ColorScale} place */
  picture(tile, place) {
    if (tile.paintedBy === place) return tile.image;
    const { values, rows, columns } = tile;
    tile.paintedBy = place;
    tile.image ??= element("canvas", { width: columns, height: rows });
    const length = 2 ** tile.level;
    const keysLeft = this.info.keys - tile.column * SIDE * length;
    // The last block may have fewer keys.
    const shares = range(columns).map((at) => 1 / Math.min(length, keysLeft - at * length));
    paint(tile.image, (at) => {
      return Object.is(values[at], -0) ? null : place(values[at] * shares[at % columns]);
    });
    return tile.image;
  }
}
