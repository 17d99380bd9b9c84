// The map of one head, with tokens in the margins, numbers along the axes, and a cross-hair.
import { element, fill, leadsToCells, letterScale, setStyle } from "../dom.js";
import { markNode, svgNode, textWidth } from "../marks.js";
import { drawMap } from "../map.js";
import { grouped, range, significant, ticks, within } from "../numbers.js";

/** @import { Mark } from "../marks.js" */
/** @import { Look } from "../map.js" */
/** @import { HeadsView } from "./heads.js" */

// The weights of a head, and its statistics of each query and key.
/** @typedef {Record<"values" | "entropy" | "distance" | "received", Float32Array>} WholeHead */

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
const BELOW = 44;
// The same in a presentation, whose control bar stands there.
const UNDER = 90;
// What else of it is seen on a screen that it is scrolled to.
const ELSEWHERE = 440;
const SMALLEST_ROOM = 300;
const NARROW = 500;

// Bars to the right of the map, a line for each query.
const STRIPS = /** @type {const} */ (["entropy", "distance"]);

export class HeadMap {
  // The map of the head that is open, drawn again where its frame has another size.
  /** @param {HeadsView} heads @param {() => void} redraw */
  constructor({ context, selection, summary }, redraw) {
    this.t = context.t;
    this.words = summary.tokens;
    // Whose query and key are a cell.
    this.selection = selection;
    // Whether the cross-hair stays where it is while the pointer moves.
    this.held = false;
    this.largest = 0;
    this.whole = /** @type {WholeHead} */ (null);
    this.look = /** @type {Look} */ (null);
    this.layout = /** @type {ReturnType<HeadMap["measured"]>} */ (null);
    this.canvas = this.makeCanvas();
    this.margins = element("div", { "aria-hidden": "true" });
    this.query = element("span.query");
    this.key = element("span.key");
    const parts = ["across", "down", "cell"].map((name) => element(`span.${name}`));
    this.cross = element("div.cross", { "aria-hidden": "true" }, parts, this.query, this.key);
    this.element = element("div.map", this.margins, this.canvas, this.cross);
    let wasHidden = false;
    const resized = () => {
      const given = this.element.clientWidth / letterScale();
      // The window may have changed its height while the map was hidden.
      const isNew = given && (wasHidden || given !== this.layout?.given);
      wasHidden = !given;
      if (this.whole && isNew) redraw();
    };
    new ResizeObserver(resized).observe(this.element);
  }

  makeCanvas() {
    const { selection, words } = this;
    const listeners = leadsToCells({
      size: () => [words.length, words.length],
      at: () => [selection.query, selection.key],
      page: PAGE,
      go: (query, key, isKept) => {
        if (isKept) selection.pin({ query, key });
        else if (!this.held) selection.point({ query, key });
        // What is held is framed otherwise.
        this.placeCross();
      },
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

  show(/** @type {Look} */ look) {
    const { canvas, margins, whole, words } = this;
    this.look = look;
    this.layout = this.measured();
    const { large, left, top, side, cell, width, height, pixels } = this.layout;
    const { style } = this.element;
    for (const [name, length] of Object.entries({ left, top, side, cell, width, height })) {
      style.setProperty(`--${name}`, `${length * large}px`);
    }
    canvas.dataset.cell = String(cell);
    const size = { width: width * large, height: height * large };
    const frame = { ...size, viewBox: `0 0 ${width} ${height}` };
    fill(margins, svgNode("svg", frame, ...this.marks().map(markNode)));
    this.largest = drawMap(canvas, whole.values, words.length, look, pixels);
    this.placeCross();
  }

  /** Fit the map to its frame: cells of whole pixels, where there is room for them. */
  measured() {
    // Lengths are in pixels of the page, of which so many of the screen's letters are one.
    const large = letterScale();
    const given = this.element.clientWidth / large;
    const isNarrow = given < NARROW;
    const fine = devicePixelRatio * large;
    const seen = innerHeight / large;
    const count = this.words.length;
    const longest = Math.max(...this.words.map((word) => [...word].length));
    // Of a token in a margin.
    const letters = Math.min(isNarrow ? 8 : 12, longest);
    const left = letters * 7.2 + 12;
    // The titles of bars stand upright above them, in whichever language.
    const titles = STRIPS.map((name) => textWidth(this.t(`heads.${name}`), TITLES));
    const top = Math.max(left, 80, ...titles.map((width) => width + 2 * GAP));
    // The longest bar.
    const strip = isNarrow ? 18 : 32;
    const strips = 2 * (strip + GAP);
    const above = (this.element.getBoundingClientRect().top + scrollY) / large + top;
    const remains = seen - above - strip - GAP - (large > 1 ? UNDER : BELOW);
    // A map that begins below the first screen has most of a screen of its own.
    const fits = remains >= SMALLEST_ROOM;
    const screen = fits ? remains : Math.max(SMALLEST_ROOM, seen - ELSEWHERE);
    // A map that is hidden has no frame.
    const room = Math.max(1, Math.min(given - left - strips, screen));
    const whole = Math.min(Math.floor((room * fine) / count), LARGEST_CELL * fine);
    // A pixel of the screen shows several cells.
    const pooled = whole < 1;
    const pixels = pooled ? Math.floor(room * fine) : whole * count;
    const side = pixels / fine;
    const cell = side / count;
    const width = left + side + strips;
    const height = top + side + strip + GAP + 14;
    return { large, given, letters, left, top, side, cell, pixels, pooled, strip, width, height };
  }

  // What stands around the map: the tokens, and the bars of each query and key.
  /** @returns {Mark[]} */
  marks() {
    const { left, top, side, cell, strip } = this.layout;
    const below = top + side + GAP;
    const middle = (/** @type {number} */ at) => (at + 0.5) * cell;
    const under = { x: left, y: below + strip + 10 };
    return [
      ...this.tokenMarks(),
      ...STRIPS.flatMap((name, place) => {
        const x = left + side + GAP + place * (strip + GAP);
        const title = { x: x + 9, y: top - GAP, rotate: -90 };
        const foot = { x: x + strip, y: below + TITLES };
        return this.bars(name, title, foot, (at) => `M${x} ${top + middle(at)}h`);
      }),
      ...this.bars("received", under, { ...under, x: left + side }, (at) => {
        return `M${left + middle(at)} ${below}v`;
      }),
    ];
  }

  /** @returns {Mark[]} */
  tokenMarks() {
    const { left, top, cell } = this.layout;
    const size = Math.max(11, Math.min(13, cell * 0.62));
    // Where cells are lower than a line only some tokens are named; where these would be few of
    // many, which is arbitrary, numbers tell where one is.
    const each = Math.ceil(LINE / cell);
    const isNamed = each <= MOST_PASSED;
    const count = this.words.length;
    const all = range(count).filter((at) => at % each === 0);
    this.places = isNamed ? all : ticks(0, count - 1, (count * cell) / APART);
    return this.places.flatMap((at) => {
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
   * Bars, one a query or a key, and their title.
   * @param {"entropy" | "distance" | "received"} name
   * @param {Mark} title  Its place @param {Mark} foot  The place of how far the bars reach
   * @param {(at: number) => string} startOf  A path to where a bar begins, and its direction
   * @returns {Mark[]}
   */
  bars(name, title, foot, startOf) {
    const { cell, strip } = this.layout;
    // Keys that are grayed have no bars.
    const skip = name === "received" ? within(this.look.skip, this.words.length) : 0;
    // Of a difference the bars tell the size.
    const sizes = Array.from(this.whole[name].subarray(skip), Math.abs);
    const most = Math.max(...sizes) || 1;
    const bars = sizes.map((size, at) => `${startOf(at + skip)}${(size / most) * strip}`);
    const width = Math.max(0.8 * cell, 0.5);
    const look = { size: TITLES, fill: "quiet" };
    return [
      { d: bars.join(""), stroke: "quiet", width, opacity: 0.55 },
      { text: this.t(`heads.${name}`), ...look, ...title },
      // A narrow strip has room for the end of the scale alone.
      { text: (strip < 30 ? "" : "0–") + significant(most, 2), ...look, ...foot, anchor: "end" },
    ];
  }

  cut(/** @type {string} */ word) {
    const letters = [...word];
    const most = this.layout.letters;
    return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : word;
  }

  placeCross() {
    const { cross, held, words } = this;
    const { query, key } = this.selection;
    setStyle(cross, { "--query": query, "--key": key });
    cross.classList.toggle("held", held);
    this.query.textContent = this.cut(words[query]);
    this.key.textContent = this.cut(words[key]);
    // These names stand over those of other tokens.
    const names = this.margins.querySelectorAll("text");
    this.places.forEach((at, place) => {
      [query, key].forEach((each, side) => {
        const isNear = Math.abs(at - each) * this.layout.cell < LINE;
        setStyle(names[2 * place + side], { visibility: isNear ? "hidden" : "visible" });
      });
    });
  }
}
