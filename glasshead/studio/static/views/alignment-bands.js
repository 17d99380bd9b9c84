// Two lines of words, or columns where there is no room, and between them lines as thick as their
// weights.
import { scale } from "../colors.js";
import { element, fill, moveOf, setAttributes } from "../dom.js";
import { svgNode } from "../marks.js";
import { decimal, largestFirst, range, sum, within } from "../numbers.js";

/** @import { Translate } from "../app.js" */

/** @typedef {"source" | "target"} Side */

/** A word, by its side and its place there. @typedef {{side: Side, at: number}} Word */

/**
 * A line from a word of the source to one of the target, with its ends along each side, in pixels.
 * @typedef {{path: SVGElement, ends: Record<Side, number>, weight?: number,
 *   width?: number}} OwnLine
 */

/** @typedef {OwnLine & Record<Side, number>} Line */

const SIDES = /** @type {Side[]} */ (["source", "target"]);
// Words that are named of those on the other side.
const NAMED = 3;
// What is weaker has no line.
const LEAST_SEEN = 0.03;
// In pixels: the weight 1, and the least that is seen.
const WHOLE = 20;
const LEAST = 0.75;
// Between the ends of lines and the ends of their word.
const INSIDE = 3;

export class Bands {
  /**
   * @param {string[]} source @param {string[]} target @param {Translate} t
   * @param {(word: Word | null) => void} marked  Called with the word that is set apart
   * @param {(name: string | null) => void} kept  Called with the one that stays so: "t3"
   */
  constructor(source, target, t, marked, kept) {
    this.t = t;
    this.marked = marked;
    this.kept = kept;
    this.words = { source, target };
    this.place = scale();
    this.matrix = /** @type {number[][]} */ ([]);
    this.held = /** @type {Word | null} */ (null);
    this.pointed = /** @type {Word | null} */ (null);
    this.columns = false;
    /** @type {Line[]} */
    this.lines = range(source.length * target.length).map((at) => ({
      source: Math.floor(at / target.length),
      target: at % target.length,
      path: svgNode("path", {}),
      ends: { source: 0, target: 0 },
    }));
    const paths = this.lines.map(({ path }) => path);
    this.svg = svgNode("svg", { "aria-hidden": "true" }, ...paths);
    this.lists = { source: this.list("source"), target: this.list("target") };
    this.stage = element("div.stage", this.lists.source, this.svg, this.lists.target);
    this.readout = element("p.readout", { "aria-live": "polite" });
    this.element = element("div.bands", { "data-panel": "" }, this.stage, this.readout);
    let size = "";
    const resized = () => {
      const { clientWidth, clientHeight } = this.stage;
      if (`${clientWidth} ${clientHeight}` === size) return;
      size = `${clientWidth} ${clientHeight}`;
      this.placeLines();
    };
    new ResizeObserver(resized).observe(this.stage);
  }

  list(/** @type {Side} */ side) {
    const items = this.words[side].map((word, at) => this.item(word, { side, at }));
    const label = this.t(`alignment.${side}`);
    return element(`ul.words.${side}`, { role: "listbox", "aria-label": label }, items);
  }

  /** @param {string} text @param {Word} word */
  item(text, word) {
    return element(
      "li",
      {
        role: "option",
        tabindex: word.at ? -1 : 0,
        "data-word": nameOf(word),
        onpointerenter: () => this.show(word),
        onpointerleave: () => this.show(null),
        onfocus: () => this.hold(word),
        onkeydown: (event) => this.walk(event, word),
      },
      element("bdi.word", text),
      element("span.weight"),
    );
  }

  items(/** @type {Side} */ side) {
    return /** @type {HTMLElement[]} */ ([...this.lists[side].children]);
  }

  /** Set a word apart for a while, as the pointer is at it. @param {Word | null} word */
  show(word) {
    this.pointed = word;
    this.mark();
  }

  /** Set a word apart until another is, by its name: "s0" or "t3". */
  keep(/** @type {string | undefined} */ name) {
    const side = SIDES.find((each) => each[0] === name?.[0]);
    const at = Number(name?.slice(1));
    this.hold(side && at in this.words[side] ? { side, at } : null);
  }

  hold(/** @type {Word | null} */ word) {
    this.held = word;
    if (word) {
      this.items(word.side).forEach((item, at) => {
        item.tabIndex = at === word.at ? 0 : -1;
      });
    }
    this.kept(word && nameOf(word));
    this.mark();
  }

  /** @param {KeyboardEvent} event @param {Word} word */
  walk(event, word) {
    const [down, right] = moveOf(event) ?? [0, 0];
    const along = Math.abs(right) > 1 || !this.columns ? right : down;
    const { side, at } = word;
    if (event.key === "Escape" && this.held) this.hold(null);
    else if (along) this.items(side)[within(at + along, this.words[side].length)].focus();
    else if (Math.abs(down || right) === 1) {
      // To the word of the other side that this one looks at most.
      this.items(otherSide(side))[this.ranked(word)[0].at].focus();
    } else return;
    event.preventDefault();
  }

  /** The weights between a word and those of the other side. @param {Word} word */
  weightsOf({ side, at }) {
    return side === "target" ? this.matrix[at] : this.matrix.map((row) => row[at]);
  }

  /** The words of the other side, the largest weight first. @param {Word} word */
  ranked(word) {
    const weights = this.weightsOf(word).map((weight, at) => ({ weight, at }));
    return largestFirst(weights, ({ weight }) => weight);
  }

  /** Mark the word that is set apart, its lines, and the words of the other side. */
  mark() {
    const word = this.pointed ?? this.held;
    this.stage.classList.toggle("pointing", word !== null);
    for (const line of this.lines) {
      line.path.classList.toggle("on", word !== null && line[word.side] === word.at);
    }
    for (const side of SIDES) this.markSide(side, word);
    const { t } = this;
    const hint = [
      t("alignment.hint", { least: LEAST_SEEN }),
      " ",
      element("span.help", t("alignment.keyboard")),
    ];
    fill(this.readout, word ? this.sentenceOf(word) : hint);
    this.marked(word);
  }

  /** @param {Side} side @param {Word | null} word */
  markSide(side, word) {
    const weights = word && word.side !== side ? this.weightsOf(word) : null;
    this.items(side).forEach((item, at) => {
      const number = /** @type {HTMLElement} */ (item.lastChild);
      item.setAttribute("aria-selected", String(word?.side === side && word.at === at));
      item.className = weights ? `w${this.place(weights[at])}` : "";
      number.textContent = weights ? decimal(weights[at], 2) : "";
      if (weights) number.dataset.value = String(weights[at]);
    });
  }

  sentenceOf(/** @type {Word} */ word) {
    const { t } = this;
    const { side, at } = word;
    const [whole, part] = side === "target" ? ["gave", "to"] : ["took", "from"];
    const words = this.words[otherSide(side)];
    const ranked = this.ranked(word);
    // One that is left is named as well.
    const count = ranked.length > NAMED + 1 ? NAMED : ranked.length;
    const said = ranked.slice(0, count).map(({ weight, at: other }) => {
      return t(`alignment.${part}`, { weight: decimal(weight), word: words[other] });
    });
    const rest = ranked.slice(count);
    if (rest.length) {
      const weight = decimal(sum(rest.map((each) => each.weight)));
      said.push(t(`alignment.rest.${part}`, { weight, count: rest.length }));
    }
    const places = { word: this.words[side][at], weights: said.join(t("shell.comma")) };
    return t(`alignment.${whole}`, places);
  }

  /** Draw other weights. @param {number[][]} matrix  A row for each word of the target */
  redraw(matrix) {
    this.matrix = matrix;
    for (const line of this.lines) line.weight = matrix[line.target][line.source];
    this.placeLines();
  }

  placeLines() {
    const { lists, stage, lines } = this;
    stage.classList.remove("columns");
    this.columns = SIDES.some((side) => lists[side].scrollWidth > stage.clientWidth);
    stage.classList.toggle("columns", this.columns);
    const orientation = this.columns ? "vertical" : "horizontal";
    for (const side of SIDES) lists[side].setAttribute("aria-orientation", orientation);
    const frame = this.svg.getBoundingClientRect();
    const shown = lines.filter(({ weight }) => weight >= LEAST_SEEN);
    for (const line of shown) line.width = Math.max(LEAST, WHOLE * Math.min(1, line.weight));
    for (const side of SIDES) {
      this.items(side).forEach((item, at) => {
        const box = item.getBoundingClientRect();
        const begin = this.columns ? box.top - frame.top : box.left - frame.left;
        const own = shown.filter((line) => line[side] === at);
        spread(own, begin, this.columns ? box.height : box.width, side);
      });
    }
    const length = this.columns ? frame.width : frame.height;
    for (const { path } of lines) path.classList.add("out");
    for (const line of shown) {
      setAttributes(line.path, {
        d: curve(line, length, this.columns),
        class: "",
        "stroke-width": line.width.toFixed(2),
        "data-weight": line.weight,
      });
      line.path.style.setProperty("--weight", String(line.weight));
    }
    this.mark();
  }
}

const otherSide = (/** @type {Side} */ side) => (side === "source" ? "target" : "source");

const nameOf = (/** @type {Word} */ { side, at }) => `${side[0]}${at}`;

// Give the lines of a word their ends within it. They lie in the order of their other ends, and
// closer where there is no room.
/** @param {Line[]} lines @param {number} begin @param {number} length @param {Side} side */
function spread(lines, begin, length, side) {
  const total = sum(lines.map(({ width }) => width));
  const closer = Math.min(1, (length - 2 * INSIDE) / total);
  let at = begin + (length - total * closer) / 2;
  for (const { ends, width } of lines) {
    ends[side] = at + (width * closer) / 2;
    at += width * closer;
  }
}

// The data of a path from the source to the target.
/** @param {Line} line @param {number} length @param {boolean} columns */
function curve({ ends: { source, target } }, length, columns) {
  /** @param {number} along @param {number} across */
  const point = (along, across) => {
    const [x, y] = [along, across].map((each) => each.toFixed(1));
    return columns ? `${y} ${x}` : `${x} ${y}`;
  };
  const middle = length / 2;
  const bow = `C${point(source, middle)} ${point(target, middle)} ${point(target, length)}`;
  return `M${point(source, 0)}${bow}`;
}
