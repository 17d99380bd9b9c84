// The tiles of an atlas: asked for while they are wanted, kept while there is room.
import { paint } from "../colors.js";
import { element } from "../dom.js";
import { upTo } from "../numbers.js";

// Blocks along a side of a tile.
export const SIDE = 256;
// Each takes 256 kB as numbers and as much as colours.
const MOST = 160;

export function tileOf(level, row, column) {
  return { level, row: Math.floor(row / SIDE), column: Math.floor(column / SIDE) };
}

function nameOf({ level, row, column }) { return `${level}/${row}/${column}`; }

export class Tiles {
  constructor({ ask, came, failed, signal, told }) {
    Object.assign(this, { ask, came, failed, told, kept: new Map(), under: new Map() });
    signal.addEventListener("abort", () => this.want([], 0));
  }

  want(places, atOnce) {
    this.wanted = new Map(places.map((place) => [nameOf(place), place]));
    this.atOnce = atOnce;
    for (const [name, leaving] of this.under) {
      if (!this.wanted.has(name)) { leaving.abort(); this.under.delete(name); }
    }
    this.go();
  }

  go() {
    for (const [name, place] of this.wanted) {
      if (this.under.size >= this.atOnce) return;
      if (!this.under.has(name) && !this.kept.has(name)) this.fetch(name, place);
    }
  }

  async fetch(name, place) {
    const leaving = new AbortController();
    this.under.set(name, leaving);
    const answer = await this.ask(place, leaving.signal).catch((error) => ({ error }));
    if (leaving.signal.aborted) return;
    this.under.delete(name);
    if (answer.error) return this.failed(answer.error);
    const { values, shape: [rows, columns] } = answer;
    this.kept.set(name, { ...place, values, rows, columns });
    this.forget();
    this.came();
    this.go();
  }

  forget() {
    for (const [oldest, { level }] of this.kept) {
      if (this.kept.size <= MOST) return;
      if (level < this.told.levels - 1) this.kept.delete(oldest);
    }
  }

  nearest({ level, row, column }) {
    for (let up = 0; level + up < this.told.levels; up += 1) {
      const name = nameOf({ level: level + up, row: row >> up, column: column >> up });
      const tile = this.kept.get(name);
      if (!tile) continue;
      this.kept.delete(name);
      this.kept.set(name, tile);
      return tile;
    }
    return null;
  }

  value(level, row, column) {
    const tile = this.kept.get(nameOf(tileOf(level, row, column)));
    return tile?.values[(row % SIDE) * tile.columns + (column % SIDE)];
  }

  /** A canvas of one pixel a block, coloured by the mean weight of a single key in it: so a region keeps its colour
   * while it is zoomed into. */
  picture(tile, place) {
    if (tile.paint === place) return tile.image;
    const { values, rows, columns } = tile;
    tile.paint = place;
    tile.image ??= element("canvas", { width: columns, height: rows });
    const length = 2 ** tile.level;
    const left = this.told.keys - tile.column * SIDE * length;
    // The last block may have fewer keys.
    const share = upTo(columns).map((at) => 1 / Math.min(length, left - at * length));
    paint(tile.image, (at) => place(values[at] * share[at % columns]));
    return tile.image;
  }
}
