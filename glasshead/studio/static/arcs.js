// A text with the attention between its tokens as arcs: from a query to its keys above the words,
// and below them from the queries that look at it.
import { element, fill, letterScale, moveOf, tokenName } from "./dom.js";
import { svgNode, textNode, textWidth } from "./marks.js";
import { clamped, decimal, largestAt, range, rowAt, weight, within } from "./numbers.js";
import { walk } from "./parts/walk.js";
import { pointing } from "./selection.js";

/** @import { Translate } from "./app.js" */
/** @import { Children } from "./dom.js" */
/** @import { Selection } from "./selection.js" */

// A head whose arcs are shown: its color, and its weights by rows.
/** @typedef {{name: string, color: string, values: Float32Array}} ArcHead */

// Where a token stands in its frame, in pixels.
/** @typedef {{left: number, top: number, bottom: number, line: number}} Place */

// Weights that have an arc, and those that have one while they are not pointed at.
const LEAST = 0.02;
const TELLING = 0.3;
const WIDEST = 7;
// Half of a loop's handles, whose line is thinner.
const LOOP = 24;
const WIDEST_LOOP = 5;
// How far an arc may bend away from its words, in pixels.
const HIGHEST = 96;
// Distance of a key that is near.
const NEAR = 4;
// Of a longer text only the arcs of the token that is pointed at are drawn.
const ALL_OF = 96;

export class Arcs {
  /** @param {Translate} t @param {Selection} selection  Whose query is a token */
  constructor(t, selection) {
    this.colon = t("shell.colon");
    this.selection = selection;
    // The query whose arcs are drawn.
    this.query = 0;
    this.words = /** @type {string[]} */ ([]);
    this.heads = /** @type {ArcHead[]} */ ([]);
    this.tokens = /** @type {HTMLButtonElement[]} */ ([]);
    const listeners = pointing(selection);
    this.over = svgNode("svg", { class: "over", "aria-hidden": "true" });
    this.text = element("p.words", {
      role: "group",
      "aria-label": t("prompt.words"),
      ...listeners,
      onfocusin: listeners.onclick,
      onkeydown: (/** @type {any} */ event) => moveOf(event)?.[1] && walk(event, true),
    });
    this.element = element("div.arcs", this.over, this.text);
    // Where the tokens stand, until they are laid out again.
    this.measured = /** @type {Place[] | null} */ (null);
    const laidOut = () => {
      this.measured = null;
      this.draw();
    };
    new ResizeObserver(laidOut).observe(this.element);
    document.fonts.ready.then(laidOut);
  }

  // The last head is described; of no query, the most telling one is shown.
  /** @param {string[]} words @param {ArcHead[]} heads @param {number | null} query */
  show(words, heads, query) {
    this.heads = heads;
    if (JSON.stringify(words) !== JSON.stringify(this.words)) {
      this.words = words;
      this.tokens = words.map((word, at) => {
        const name = word.trim() ? null : tokenName(word);
        const place = { "data-at": at, "aria-label": name };
        return element("button.token", { type: "button", tabindex: -1, ...place }, word);
      });
      fill(this.text, this.inWords());
      // By which a presentation chooses the size of its letters.
      this.element.style.setProperty("--ems", String(textWidth(words.join(""), 1)));
      this.measured = null;
    }
    this.query = -1;
    for (const token of this.tokens) press(token, false);
    const begun = query ?? tellingQuery(heads.at(-1).values, words);
    this.selection.begin({ ...this.selection.pinned, query: within(begun, words.length) });
    this.turn();
  }

  /** The tokens in frames that no line breaks: one for each word. */
  inWords() {
    const frames = /** @type {HTMLElement[]} */ ([]);
    this.tokens.forEach((token, at) => {
      if (!at || /^\s/.test(this.words[at])) frames.push(element("span.word"));
      frames.at(-1).append(token);
    });
    return frames.flatMap((frame) => [frame, element("wbr")]);
  }

  /** Draw the arcs of the query that is selected. */
  turn() {
    const { query } = this.selection;
    if (query === this.query) return;
    if (this.query >= 0) press(this.tokens[this.query], false);
    press(this.tokens[query], true);
    this.query = query;
    this.draw();
  }

  /** The key to which the query gives most by the last head, and its weight. */
  strongest() {
    const row = this.row(this.heads.at(-1), this.query);
    const key = largestAt(row);
    return { key, weight: row[key] };
  }

  /** @param {ArcHead} head @param {number} query */
  row({ values }, query) {
    return rowAt(values, query, this.words.length);
  }

  /** Where the tokens stand; null where nothing is laid out. */
  places() {
    return (this.measured ??= this.measure());
  }

  /** @returns {Place[] | null} */
  measure() {
    const { clientWidth, clientHeight } = this.element;
    if (!clientWidth) return null;
    this.width = clientWidth;
    let line = 0;
    let last = this.tokens[0];
    const above = last.offsetTop;
    let gap = Infinity;
    const places = this.tokens.map((token) => {
      const { offsetLeft, offsetTop, offsetWidth, offsetHeight } = token;
      if (offsetTop > last.offsetTop + 2) {
        line += 1;
        gap = offsetTop - last.offsetTop - last.offsetHeight;
      }
      last = token;
      // Its own space before a word is not under an arc.
      const left = offsetLeft + offsetWidth / 2 + 2;
      return { left, top: offsetTop, bottom: offsetTop + offsetHeight, line };
    });
    const below = Math.min(gap, clientHeight - last.offsetTop - last.offsetHeight);
    const highest = HIGHEST * letterScale();
    // Room for a wide arc of each head: above the first line, between lines, and below the last.
    const [first, between, under] = [above, gap, below].map((room) => {
      return clamped((room - WIDEST - 1) / 0.75, 8, highest);
    });
    this.bows = { first, between, under };
    return places;
  }

  draw() {
    if (this.heads.length && this.places()) fill(this.over, this.paths());
  }

  /** The arcs, the faintest first. */
  paths() {
    const { heads, words, query } = this;
    const all = range(words.length);
    const others = all.filter((at) => at !== query);
    const telling = words.length > ALL_OF ? [] : others;
    // The strong arcs of all other queries.
    const faint = heads.flatMap((head) => {
      return telling.flatMap((other) => {
        const row = this.row(head, other);
        const key = largestAt(row);
        if (key === other || row[key] < TELLING) return [];
        return [this.path(head, row[key], other, key, "other")];
      });
    });
    const own = heads.flatMap((head, number) => {
      const shift = (number - (heads.length - 1) / 2) * 3;
      /** @param {number} from @param {number} to @param {"row" | "column"} kind */
      const path = (from, to, kind) => {
        const value = this.row(head, from)[to];
        return value >= LEAST ? [this.path(head, value, from, to, kind, shift)] : [];
      };
      return [
        ...others.flatMap((other) => path(other, query, "column")),
        ...all.flatMap((key) => path(query, key, "row")),
      ];
    });
    return [...faint, ...own];
  }

  /**
   * @param {ArcHead} head @param {number} value @param {number} query @param {number} key
   * @param {"row" | "column" | "other"} kind
   * @param {number} [shift]  Pixels to the right
   */
  path({ name, color }, value, query, key, kind, shift = 0) {
    const places = this.places();
    const [from, to] = [query, key].map((at) => tokenName(this.words[at]));
    const look = {
      d: this.arc(places[query], places[key], shift, kind !== "column"),
      fill: "none",
      stroke: color,
      "stroke-width": 0.8 + (query === key ? WIDEST_LOOP : WIDEST) * value,
      "stroke-opacity": kind === "other" ? 0.16 : 0.3 + 0.6 * value,
      "stroke-dasharray": kind === "column" ? "5 3" : null,
      "data-kind": kind,
      "data-query": query,
      "data-key": key,
      "data-value": value,
    };
    const told = `${name}${this.colon}${from} → ${to} ${weight(value)}`;
    return svgNode("path", look, textNode("title", {}, told));
  }

  // A curve between two tokens, above the words of a line or below, shifted by pixels. Between lines,
  // it leaves the upper one by the right margin, and comes into the lower one by the left margin.
  /** @param {Place} from @param {Place} to @param {number} shift @param {boolean} isAbove */
  arc(from, to, shift, isAbove) {
    const { first, between, under } = this.bows;
    const start = from.left + shift;
    const end = to.left + shift;
    const edgeOf = (/** @type {Place} */ { top, bottom }) => (isAbove ? top : bottom);
    /** How far a curve bends away. @param {Place} place @param {number} across */
    const bend = ({ line }, across) => {
      const most = isAbove ? (line ? between : first) : under;
      return (isAbove ? -1 : 1) * Math.min(most, 16 + 0.42 * Math.abs(across));
    };
    if (from.line === to.line) {
      const edge = edgeOf(from);
      const wide = LOOP * letterScale();
      const bow = edge + bend(from, from === to ? 1.25 * wide : end - start);
      // A token that looks at itself has a loop.
      if (from === to) {
        const loop = `${start - wide} ${bow} ${start + wide} ${bow} ${start + 4} ${edge}`;
        return `M${start - 4} ${edge}C${loop}`;
      }
      return `M${start} ${edge}C${start} ${bow} ${end} ${bow} ${end} ${edge}`;
    }
    const [upper, lower] = from.line < to.line ? [from, to] : [to, from];
    /** @param {Place} place @param {number} margin */
    const half = (place, margin) => {
      const x = place.left + shift;
      const edge = edgeOf(place);
      // It goes all the way to where a whole curve only bends to.
      const bow = edge + 0.75 * bend(place, margin - x) + shift;
      return `M${x} ${edge}C${x} ${bow} ${x} ${bow} ${margin} ${bow}`;
    };
    return half(upper, this.width) + half(lower, 0);
  }
}

/** @param {HTMLButtonElement} token @param {boolean} isQuery  The only one that Tab leads to */
function press(token, isQuery) {
  token.tabIndex = isQuery ? 0 : -1;
  token.ariaPressed = String(isQuery);
}

// Whether a head of a role looks at a key.
/** @type {Record<string, (query: number, key: number, tokens: unknown[]) => unknown>} */
export const ROLES = {
  previous: (query, key) => query - key === 1,
  first: (_, key) => !key,
  local: (query, key) => Math.abs(query - key) <= NEAR,
  duplicate: (query, key, tokens) => tokens[key] === tokens[query],
  induction: (query, key, tokens) => tokens[key - 1] === tokens[query],
};

// The query that shows a role best: it looks most sharply, and furthest, at one of its keys.
/** @param {Float32Array} values  Weights by rows @param {unknown[]} tokens @param {string} [role] */
export function tellingQuery(values, tokens, role) {
  const { length } = tokens;
  const telling = values.map((value, at) => {
    const query = Math.floor(at / length);
    const key = at % length;
    // The first token tells little of other roles.
    const belongs = ROLES[role]?.(query, key, tokens) ?? true;
    const isTelling = belongs && (key || role === "first");
    return value * Math.log2(1 + Math.abs(query - key)) * (isTelling ? 1 : 1e-6);
  });
  return Math.floor(largestAt(telling) / length);
}

// The names of heads with their colors, and what else belongs to each.
/** @param {ArcHead[]} heads @param {(at: number) => Children} [more] */
export function keysOf(heads, more) {
  return heads.map(({ name, color }, at) => {
    const look = { "aria-hidden": "true", style: { background: color } };
    return element("span.key", element("span.swatch", look), name, more?.(at));
  });
}

// The sentence about the key that a query looks at most; the head may be ablated. The same words
// have their places.
/** @param {Translate} t @param {number[]} head @param {Arcs} arcs @param {boolean} [isAway] */
export function whereItLooks(t, [layer, head], arcs, isAway) {
  const { words, query } = arcs;
  const { key, weight: most } = arcs.strongest();
  const isSame = words[query] === words[key];
  const name = (/** @type {number} */ at) => `${tokenName(words[at])}${isSame ? ` ${at}` : ""}`;
  const places = { layer, head, query: name(query), key: name(key), weight: decimal(most) };
  return t(isAway ? "prompt.why.away" : "prompt.why", places);
}
