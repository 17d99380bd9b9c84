// The map of one head, with tokens in the margins, numbers along the axes, and a cross-hair.
import { element, fill, leadsToCells, letterScale } from "../dom.js";
import { markNode, svgNode, textWidth } from "../marks.js";
import { drawMap } from "../map.js";
import { grouped, range, ticks, within } from "../numbers.js";

/** @import { Translate } from "../app.js" */
/** @import { Mark } from "../marks.js" */
/** @import { Look } from "../map.js" */
/** @import { Selection } from "../selection.js" */

/**
 * The weights of a head, and its statistics of each query and key.
 * @typedef {Record<"values" | "entropy" | "distance" | "received", Float32Array>} WholeHead
 */

/**
 * Where the parts of a map are, in pixels of the page.
 * @typedef {object} Layout
 * @property {number} large  Pixels of the screen's letters by one of these
 * @property {number} given  Width of the frame
 * @property {number} letters  Letters of a token in a margin
 * @property {number} left
 * @property {number} top
 * @property {number} side  Of the map
 * @property {number} cell  Side of a cell
 * @property {number} pixels  Of the screen, along the map's side
 * @property {boolean} pooled  Whether a pixel shows several cells
 * @property {number} strip  Length of the longest bar
 * @property {number} width
 * @property {number} height
 */

const LARGEST_CELL = 56;
// Height of a token in a margin, at least.
const LINE = 12;
// Of so many tokens one is named at least, and numbers stand so many pixels apart.
const MOST_PASSED = 3;
const APART = 36;
const GAP = 6;
// Size of the letters of the bars' titles.
const TITLES = 11;
// Cells that PageUp and PageDown go by.
const PAGE = 10;
// Under the bars that are below a map, where it fits into the first screen.
const BELOW = 24;
// The same in a presentation, whose control bar stands there.
const UNDER = 90;
// What else of it is seen on a screen that it is scrolled to.
const ELSEWHERE = 440;
const SMALLEST_ROOM = 300;
const NARROW = 500;

export class HeadMap {
  /**
   * @param {string[]} words @param {Translate} t
   * @param {Selection} selection  Whose query and key are a cell
   */
  constructor(words, t, selection) {
    this.words = words;
    this.t = t;
    this.selection = selection;
    // Whether the cross-hair stays where it is while the pointer moves.
    this.held = false;
    this.largest = 0;
    /** @type {WholeHead} */
    this.whole = null;
    /** @type {Look} */
    this.look = null;
    /** @type {Layout} */
    this.layout = null;
    this.canvas = this.makeCanvas();
    this.margins = element("div", { "aria-hidden": "true" });
    this.cross = {
      across: crossPart("across"),
      down: crossPart("down"),
      cell: crossPart("cell"),
      query: crossPart("query"),
      key: crossPart("key"),
    };
    this.element = element("div.map", this.margins, this.canvas, Object.values(this.cross));
    let wasHidden = false;
    const resized = () => {
      const given = this.element.clientWidth / letterScale();
      // The window may have changed its height while the map was hidden.
      const isNew = given && (wasHidden || given !== this.layout?.given);
      wasHidden = !given;
      if (this.whole && isNew) this.show(this.whole, this.look);
    };
    new ResizeObserver(resized).observe(this.element);
  }

  makeCanvas() {
    const { selection, words } = this;
    const listeners = leadsToCells({
      size: () => [words.length, words.length],
      at: () => [selection.query, selection.key],
      page: PAGE,
      go: (query, key, isKept) => this.turn({ query, key }, isKept),
    });
    return element("canvas", {
      tabindex: "0",
      role: "application",
      "aria-label": this.t("heads.map"),
      "aria-describedby": "heads-readout",
      ...listeners,
      onpointerleave: () => selection.leave(),
      onclick: (event) => {
        this.held = !this.held;
        listeners.onclick(event);
      },
    });
  }

  /** @param {WholeHead} whole @param {Look} look */
  show(whole, look) {
    this.whole = whole;
    this.look = look;
    this.layout = this.measured();
    const { left, top, side, cell, width, height } = this.layout;
    this.put(this.canvas, left, top, side, side);
    this.canvas.dataset.cell = String(cell);
    const { large } = this.layout;
    this.element.style.height = `${height * large}px`;
    const size = { width: width * large, height: height * large };
    const frame = { ...size, viewBox: `0 0 ${width} ${height}` };
    fill(this.margins, svgNode("svg", frame, ...this.marks().map(markNode)));
    this.color(look);
    this.placeCross();
  }

  /** @param {Look} look */
  color(look) {
    const { values } = this.whole;
    this.look = look;
    this.largest = drawMap(this.canvas, values, this.words.length, look, this.layout.pixels);
  }

  /**
   * Fit the map to its frame: cells of whole pixels, where there is room for them.
   * @returns {Layout}
   */
  measured() {
    const large = letterScale();
    const given = this.element.clientWidth / large;
    const isNarrow = given < NARROW;
    const fine = devicePixelRatio * large;
    const seen = innerHeight / large;
    const count = this.words.length;
    const longest = Math.max(...this.words.map((word) => [...word].length));
    const letters = Math.min(isNarrow ? 8 : 12, longest);
    const left = letters * 7.2 + 12;
    // The titles of bars stand upright above them, in whichever language.
    const titles = ["entropy", "distance"].map((name) =>
      textWidth(this.t(`heads.${name}`), TITLES),
    );
    const top = Math.max(left, 80, ...titles.map((width) => width + 2 * GAP));
    const strip = isNarrow ? 18 : 32;
    const strips = 2 * (strip + GAP);
    const above = (this.element.getBoundingClientRect().top + scrollY) / large + top;
    const remains = seen - above - strip - GAP - (large > 1 ? UNDER : BELOW);
    // A map that begins below the first screen has most of a screen of its own.
    const fits = remains >= SMALLEST_ROOM;
    const screen = fits ? remains : Math.max(SMALLEST_ROOM, seen - ELSEWHERE);
    const room = Math.min(given - left - strips, screen);
    const whole = Math.min(Math.floor((room * fine) / count), LARGEST_CELL * fine);
    const pooled = whole < 1;
    const pixels = pooled ? Math.floor(room * fine) : whole * count;
    const side = pixels / fine;
    return {
      large,
      given,
      letters,
      left,
      top,
      side,
      cell: side / count,
      pixels,
      pooled,
      strip,
      width: left + side + strips,
      height: top + side + strip + GAP + 14,
    };
  }

  /**
   * What stands around the map: the tokens, and the bars of each query and key.
   * @returns {Mark[]}
   */
  marks() {
    const { left, top, side, strip } = this.layout;
    const right = left + side + GAP;
    const below = top + side + GAP;
    const skip = within(this.look.skip, this.words.length);
    return [
      ...this.tokenMarks(left, top),
      ...this.columnOfBars("entropy", right, top),
      ...this.columnOfBars("distance", right + strip + GAP, top),
      ...this.rowOfBars("received", skip, left, below),
    ];
  }

  /** @param {number} left @param {number} top @returns {Mark[]} */
  tokenMarks(left, top) {
    const { cell } = this.layout;
    const size = Math.max(11, Math.min(13, cell * 0.62));
    // Where cells are lower than a line only some tokens are named; where these would be few of
    // many, which is arbitrary, numbers tell where one is.
    const each = Math.ceil(LINE / cell);
    const isNamed = each <= MOST_PASSED;
    const count = this.words.length;
    const all = range(count).filter((at) => at % each === 0);
    const places = isNamed ? all : ticks(0, count - 1, (count * cell) / APART);
    return places.flatMap((at) => {
      const middle = (at + 0.5) * cell + size / 3;
      const text = isNamed ? this.cut(this.words[at]) : grouped(at);
      const shared = { text, size, fill: each === 1 ? "ink" : "quiet" };
      return [
        { ...shared, x: left - GAP, y: top + middle, anchor: "end" },
        { ...shared, x: left + middle, y: top - GAP, rotate: -90 },
      ];
    });
  }

  /**
   * Bars to the right of the map, one a query.
   * @param {"entropy" | "distance"} name @param {number} left @param {number} top @returns {Mark[]}
   */
  columnOfBars(name, left, top) {
    const lengths = this.barLengths(name, 0);
    const { cell } = this.layout;
    const bars = lengths.map((length, at) => `M${left} ${top + (at + 0.5) * cell}h${length}`);
    return [this.bars(bars), this.barsTitle(name, { x: left + 9, y: top - GAP, rotate: -90 })];
  }

  /**
   * Bars below the map, one a key.
   * @param {"received"} name
   * @param {number} skip  First keys that have none
   * @param {number} left @param {number} top @returns {Mark[]}
   */
  rowOfBars(name, skip, left, top) {
    const lengths = this.barLengths(name, skip);
    const { cell, strip } = this.layout;
    const bars = lengths.map((length, at) => {
      return at < skip ? "" : `M${left + (at + 0.5) * cell} ${top}v${length}`;
    });
    return [this.bars(bars), this.barsTitle(name, { x: left, y: top + strip + 10 })];
  }

  /** @param {"entropy" | "distance" | "received"} name @param {number} skip */
  barLengths(name, skip) {
    const values = this.whole[name];
    // Of a difference the bars tell the size.
    const sizes = values.map(Math.abs);
    const most = sizes.subarray(skip).reduce((one, other) => Math.max(one, other), 0) || 1;
    return Array.from(sizes, (size) => (size / most) * this.layout.strip);
  }

  /** @param {string[]} bars @returns {Mark} */
  bars(bars) {
    const width = Math.max(0.8 * this.layout.cell, 0.5);
    return { d: bars.join(""), stroke: "quiet", width, opacity: 0.55 };
  }

  /** @param {string} name @param {Mark} place @returns {Mark} */
  barsTitle(name, place) {
    return { text: this.t(`heads.${name}`), size: TITLES, fill: "quiet", ...place };
  }

  /** @param {string} word */
  cut(word) {
    const letters = [...word];
    const most = this.layout.letters;
    return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : word;
  }

  placeCross() {
    const { cross } = this;
    const { query, key } = this.selection;
    const { large, left, top, cell, width, height } = this.layout;
    const x = left + key * cell;
    const y = top + query * cell;
    // A small cell has a larger frame.
    const wide = Math.max(cell, 5);
    const inner = (cell - wide) / 2;
    this.put(cross.across, left, y, width - left, cell);
    this.put(cross.down, x, top, cell, height - top - 14);
    this.put(cross.cell, x + inner, y + inner, wide, wide);
    // The name has the height of its neighbors' names.
    const line = Math.max(LINE, Math.min(18, cell));
    this.put(cross.query, 0, y + (cell - line) / 2, left - 2, line);
    this.put(cross.key, x + (cell - line) / 2, 0, line, top - 2);
    this.element.style.setProperty("--line", `${line * large}px`);
    cross.query.textContent = this.cut(this.words[query]);
    cross.key.textContent = this.cut(this.words[key]);
    cross.cell.classList.toggle("held", this.held);
  }

  /**
   * Place a part: where it stands changes without another layout.
   * @param {HTMLElement} part @param {number} left @param {number} top @param {number} width
   * @param {number} height
   */
  put({ style }, left, top, width, height) {
    const [across, down, wide, high] = [left, top, width, height].map((pixels) => {
      return `${pixels * this.layout.large}px`;
    });
    style.translate = `${across} ${down}`;
    style.width = wide;
    style.height = high;
  }

  /**
   * Move the cross-hair.
   * @param {{query: number, key: number}} place
   * @param {boolean} pins  Whether it stays there
   */
  turn(place, pins) {
    if (pins) this.selection.pin(place);
    else if (!this.held) this.selection.point(place);
    // What is held is framed otherwise.
    this.placeCross();
  }
}

/** @param {string} name */
function crossPart(name) {
  return element(`span.${name}`, { "aria-hidden": "true" });
}
