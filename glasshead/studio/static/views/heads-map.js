// The map of one head, with tokens in the margins, numbers along the axes, and a cross-hair.
import { element, fill, moveOf } from "../dom.js";
import { drawing } from "../figure.js";
import { draw } from "../map.js";
import { within } from "../numbers.js";

const LARGEST_CELL = 56;
const LINE = 12; // of a token in a margin, at least
const GAP = 6;
const JUMP = 10;
// What stands over and under a map on the first screen.
const ABOVE_AND_BELOW = 440;

export class HeadMap {
  constructor(words, t, moved) {
    Object.assign(this, { words, t, moved, query: 0, key: 0, held: false });
    this.canvas = element("canvas", {
      tabindex: "0", role: "application", "aria-label": t("heads.map"), "aria-describedby": "heads-readout",
      onkeydown: (event) => {
        const [down, right] = moveOf(event, JUMP) ?? [];
        if (down === undefined) return;
        event.preventDefault();
        this.go(this.query + down, this.key + right);
      },
      onpointermove: (event) => { if (!this.held) this.pointed(event); },
      onclick: (event) => { this.held = !this.held; this.pointed(event); },
    });
    this.margins = element("div", { "aria-hidden": "true" });
    const parts = ["across", "down", "cell", "query", "key"];
    this.cross = Object.fromEntries(parts.map((part) => [part, element(`span.${part}`, { "aria-hidden": "true" })]));
    this.element = element("div.map", this.margins, this.canvas, Object.values(this.cross));
    new ResizeObserver(() => {
      if (this.whole && ![0, this.given].includes(this.element.clientWidth)) this.show(this.whole, this.look);
    }).observe(this.element);
  }

  show(whole, look) {
    Object.assign(this, { whole, look });
    this.measure();
    put(this.canvas, this.left, this.top, this.side, this.side);
    this.canvas.dataset.cell = this.cell;
    this.element.style.height = `${this.height}px`;
    fill(this.margins, drawing({ width: this.width, height: this.height, marks: this.marks() }));
    this.color(look);
    this.place();
  }

  color(look) {
    this.look = look;
    this.largest = draw(this.canvas, this.whole.values, this.words.length, { ...look, most: this.pixels });
  }

  measure() {
    this.given = this.element.clientWidth;
    const narrow = this.given < 500;
    const fine = devicePixelRatio;
    const count = this.words.length;
    this.letters = Math.min(narrow ? 8 : 12, Math.max(...this.words.map((word) => [...word].length)));
    this.left = this.letters * 7.2 + 12;
    this.top = Math.max(this.left, 80);
    this.strip = narrow ? 18 : 32;
    const strips = 2 * (this.strip + GAP);
    const room = Math.min(this.given - this.left - strips, Math.max(300, innerHeight - ABOVE_AND_BELOW));
    const cell = Math.min(Math.floor((room * fine) / count), LARGEST_CELL * fine);
    this.pooled = cell < 1;
    this.pixels = this.pooled ? Math.floor(room * fine) : cell * count;
    this.side = this.pixels / fine;
    this.cell = this.side / count;
    this.width = this.left + this.side + strips;
    this.height = this.top + this.side + this.strip + GAP + 14;
  }

  marks(x = 0, y = 0) {
    const { cell, strip, whole, words } = this;
    const [left, top] = [x + this.left, y + this.top];
    const [right, below] = [left + this.side + GAP, top + this.side + GAP];
    const each = Math.ceil(LINE / cell);
    const size = Math.max(10, Math.min(13, cell * 0.62));
    const marks = words.flatMap((word, at) => {
      if (at % each) return [];
      const middle = (at + 0.5) * cell + size / 3;
      const shared = { text: this.cut(word), size, fill: each > 1 ? "quiet" : null };
      return [{ ...shared, x: left - GAP, y: top + middle, anchor: "end" },
        { ...shared, x: left + middle, y: top - GAP, rotate: -90 }];
    });
    const skip = within(this.look.skip, words.length);
    const strips = [["entropy", 0, right], ["distance", 0, right + strip + GAP], ["received", skip, below]];
    for (const [name, first, from] of strips) {
      const most = whole[name].subarray(first).reduce((one, other) => Math.max(one, other), 0) || 1;
      const ofKeys = name === "received";
      const bar = (middle, high) => (ofKeys ? `M${left + middle} ${from}v${high}` : `M${from} ${top + middle}h${high}`);
      const long = (value) => (value / most) * strip;
      const bars = Array.from(whole[name], (value, at) => (at < first ? "" : bar((at + 0.5) * cell, long(value))));
      const place = ofKeys ? { x: left, y: below + strip + 10 } : { x: from + 9, y: top - GAP, rotate: -90 };
      marks.push({ d: bars.join(""), stroke: "quiet", width: Math.max(0.8 * cell, 0.5), opacity: 0.55 },
        { text: this.t(`heads.${name}`), size: 10, fill: "quiet", ...place });
    }
    return marks;
  }

  cut(word) {
    const letters = [...word];
    return letters.length > this.letters ? `${letters.slice(0, this.letters - 1).join("")}…` : word;
  }

  place() {
    const { cross, left, top, cell, query, key } = this;
    const [x, y, wide] = [left + key * cell, top + query * cell, Math.max(cell, 5)];
    const inner = (cell - wide) / 2;
    put(cross.across, left, y, this.width - left, cell);
    put(cross.down, x, top, cell, this.height - top - 14);
    put(cross.cell, x + inner, y + inner, wide, wide);
    put(cross.query, 0, y + cell / 2 - 9, left - 2, 18);
    put(cross.key, x + cell / 2 - 9, 0, 18, top - 2);
    cross.query.textContent = this.cut(this.words[query]);
    cross.key.textContent = this.cut(this.words[key]);
    cross.cell.classList.toggle("held", this.held);
  }

  pointed(event) { this.go(Math.floor(event.offsetY / this.cell), Math.floor(event.offsetX / this.cell)); }

  go(query, key) {
    const [row, column] = [query, key].map((at) => within(at, this.words.length));
    const moved = row !== this.query || column !== this.key;
    Object.assign(this, { query: row, key: column });
    this.place();
    if (moved) this.moved(row, column);
  }

  figure(title, x) {
    const { side } = this;
    const square = { x: x + this.left, y: 50 + this.top, width: side, height: side };
    const marks = [
      { x: square.x, y: 26, text: title, size: 15, weight: 600 }, { ...square, fill: "sunk" },
      { ...square, href: this.canvas.toDataURL() }, ...this.marks(x, 50),
    ];
    return { width: this.width + 24, height: this.height + 70, marks };
  }
}

function put(part, left, top, width, height) {
  for (const [name, value] of Object.entries({ left, top, width, height })) part.style[name] = `${value}px`;
}
