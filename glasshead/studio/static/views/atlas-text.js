// The text of an atlas: tokens by their places, and the passages around the cross-hair.
import { element, fill, tokenName, unique } from "../dom.js";
import { grouped, range } from "../numbers.js";

// Tokens that are asked for together, as many as the route gives.
const AT_ONCE = 512;
// Tokens before and behind a block, and of one that is long.
const AROUND = 120;
const LONG = 160;

export class Tokens {
  /**
   * @param {object} given
   * @param {number | null} [given.length]  None where the tokens are not known
   * @param {boolean} [given.glued]  Whether tokens contain their own spaces
   * @param {(start: number, stop: number) => Promise<{tokens: string[]}>} [given.ask]
   * @param {() => void} [given.came]  Called with each part that has come
   * @param {(error: Error) => void} [given.failed]
   */
  constructor({ length, glued, ask, came, failed }) {
    this.length = length;
    this.glued = glued;
    this.ask = ask;
    this.came = came;
    this.failed = failed;
    // A part that is under way is undefined.
    this.parts = /** @type {Map<number, string[] | undefined>} */ (new Map());
  }

  /** A token; null where none is known, undefined until it has come. @param {number} place */
  at(place) {
    if (!this.length) return null;
    const part = Math.floor(place / AT_ONCE);
    if (!this.parts.has(part)) this.fetch(part);
    const tokens = this.parts.get(part);
    return tokens && (tokens[place % AT_ONCE] ?? null);
  }

  async fetch(/** @type {number} */ part) {
    this.parts.set(part, undefined);
    const start = part * AT_ONCE;
    try {
      const { tokens } = await this.ask(start, Math.min(start + AT_ONCE, this.length));
      this.parts.set(part, tokens);
      this.came();
    } catch (error) {
      this.failed(error);
    }
  }

  /** A token on an axis: its letters, or its place if they are not known. @param {number} place */
  short(place) {
    const token = this.at(place);
    if (token === null) return grouped(place);
    return token === undefined ? "" : tokenName(token);
  }

  // The text of some tokens; undefined until all have come.
  /** @param {number} start @param {number} stop */
  between(start, stop) {
    const tokens = range(stop - start).map((at) => this.at(start + at));
    return tokens.includes(undefined) ? undefined : tokens.join(this.glued ? "" : " ");
  }
}

/** The text around the cross-hair, on the side of the queries or of the keys. @param {string} side */
export function passage(side) {
  const id = unique("passage");
  const head = element("h2", { id });
  const text = element("p", { tabindex: 0, role: "group", "aria-labelledby": id });
  /**
   * Show a block, marked, and what stands around it. Gives whether all of it was there.
   * @param {string} title @param {Tokens} tokens @param {[number, number]} block
   * @param {number} length  Of the whole text
   */
  const show = (title, tokens, [start, stop], length) => {
    head.textContent = title;
    text.hidden = !tokens.length;
    const isLong = stop - start > LONG;
    const before = tokens.between(Math.max(0, start - AROUND), start);
    const block = tokens.between(start, isLong ? start + LONG : stop);
    const after = isLong ? "" : tokens.between(stop, Math.min(length, stop + AROUND));
    if ([before, block, after].includes(undefined)) return false;
    const gap = tokens.glued ? "" : " ";
    const mark = element("mark", block, isLong && " … ");
    const more = !isLong && stop + AROUND < length && " …";
    fill(text, start > AROUND && "… ", before, gap, mark, gap, after, more);
    // To the middle of the mark. Not scrollIntoView, which moves the page as well.
    const above = Math.max(0, text.clientHeight - mark.offsetHeight) / 2;
    const beside = Math.max(0, text.clientWidth - mark.offsetWidth) / 2;
    text.scrollTo(mark.offsetLeft - beside, mark.offsetTop - above);
    const { scrollLeft } = text;
    if (scrollLeft) {
      // A text on one line begins with a whole word.
      const some = Math.ceil((before.length * scrollLeft) / mark.offsetLeft) + 2;
      const rest = before.slice(some).replace(/^\S*\s+/, "");
      fill(text, "… ", rest, gap, mark, gap, after, more);
      text.scrollLeft = 0;
    }
    return true;
  };
  const made = element(`section.${side}`, { "aria-labelledby": id }, head, text);
  return Object.assign(made, { show });
}
