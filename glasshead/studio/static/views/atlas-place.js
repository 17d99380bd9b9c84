// Where one looks: the query `y` and the key `x` in the middle, at `zoom` pixels a token.

// From how many pixels on a token is named beside its cell.
export const NAMED = 13;
const LARGEST = 96;

export class Place {
  constructor(told) {
    Object.assign(this, { told, width: 600, height: 600 });
    this.go(0, 0, 0);
  }

  get least() { return Math.min(this.width / this.told.keys, this.height / this.told.queries, LARGEST); }
  get isWhole() { return this.zoom <= this.least * 1.0001; }

  get level() {
    const { finest, levels } = this.told;
    return Math.max(finest, Math.min(levels - 1, Math.ceil(-Math.log2(this.zoom) - 1e-9)));
  }

  get block() { return 2 ** this.level; }

  top(query) { return (query - this.y) * this.zoom + this.height / 2; }
  left(key) { return (key - this.x) * this.zoom + this.width / 2; }
  query(top) { return (top - this.height / 2) / this.zoom + this.y; }
  key(left) { return (left - this.width / 2) / this.zoom + this.x; }

  pan(right, down) { this.go(this.y - down / this.zoom, this.x - right / this.zoom); }

  zoomBy(factor, left, top) {
    const [query, key] = [this.query(top), this.key(left)];
    this.zoom = this.bounded(this.zoom * factor);
    this.go(this.y + query - this.query(top), this.x + key - this.key(left));
  }

  go(y, x, zoom = this.zoom) {
    this.zoom = this.bounded(zoom);
    this.y = inside(y, this.told.queries, this.height / this.zoom);
    this.x = inside(x, this.told.keys, this.width / this.zoom);
  }

  bounded(zoom) { return Math.max(this.least, Math.min(LARGEST / 2 ** this.told.finest, zoom)); }

  seen(length, margin = 0) {
    const { width, height, told: { queries, keys } } = this;
    const range = (low, high, all) =>
      [Math.max(0, Math.floor(low / length)), Math.ceil(Math.min(all, high) / length)];
    return {
      rows: range(this.query(-margin), this.query(height + margin), queries),
      columns: range(this.key(-margin), this.key(width + margin), keys),
    };
  }

  tiles(side, margin) {
    const { level, block, y, x } = this;
    const { rows: [top, bottom], columns: [left, right] } = this.seen(side * block, margin);
    const found = [];
    for (let row = top; row < bottom; row += 1) {
      for (let column = left; column < right; column += 1) found.push({ level, row, column });
    }
    const middle = (at) => (at + 0.5) * side * block;
    const away = ({ row, column }) => Math.hypot(middle(row) - y, middle(column) - x);
    return found.sort((a, b) => away(a) - away(b));
  }
}

function inside(at, length, seen) {
  return seen >= length ? length / 2 : Math.max(seen / 2, Math.min(length - seen / 2, at));
}
