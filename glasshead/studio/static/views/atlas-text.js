// The text of an atlas: tokens by their places, and the passages around the cross-hair.
import { element, fill, unique } from "../dom.js";
import { count, upTo } from "../numbers.js";

const AT_ONCE = 512;
// Tokens before and behind a block, and of one that is long.
const AROUND = 120;
const LONG = 160;

export class Names {
  constructor({ length, glued, ask, came, failed }) {
    Object.assign(this, { length, glued, ask, came, failed, parts: new Map() });
  }

  at(place) {
    if (!this.length) return null;
    const part = Math.floor(place / AT_ONCE);
    if (!this.parts.has(part)) this.fetch(part);
    const there = this.parts.get(part);
    return there && (there[place % AT_ONCE] ?? null);
  }

  async fetch(part) {
    this.parts.set(part, undefined);
    const start = part * AT_ONCE;
    try {
      const { tokens } = await this.ask(start, Math.min(start + AT_ONCE, this.length));
      this.parts.set(part, tokens);
      this.came();
    } catch (error) { this.failed(error); }
  }

  short(place) {
    const token = this.at(place);
    if (token === null) return count(place);
    return token === undefined ? "" : token.trim() || token.replaceAll(" ", "␣");
  }

  between(start, stop) {
    const tokens = upTo(stop - start).map((at) => this.at(start + at));
    return tokens.includes(undefined) ? undefined : tokens.join(this.glued ? "" : " ");
  }
}

export class Passage {
  constructor(side) {
    const id = unique("passage");
    this.head = element("h2", { id });
    this.text = element("p", { tabindex: 0, role: "group", "aria-labelledby": id });
    this.frame = element(`section.${side}`, { "aria-labelledby": id }, this.head, this.text);
  }

  show(title, names, [start, stop], length) {
    const { head, text } = this;
    head.textContent = title;
    text.hidden = !names.length;
    const isLong = stop - start > LONG;
    const before = names.between(Math.max(0, start - AROUND), start);
    const block = names.between(start, isLong ? start + LONG : stop);
    const after = isLong ? "" : names.between(stop, Math.min(length, stop + AROUND));
    if ([before, block, after].includes(undefined)) return false;
    const gap = names.glued ? "" : " ";
    const mark = element("mark", block, isLong && " … ");
    const more = !isLong && stop + AROUND < length && " …";
    fill(text, start > AROUND && "… ", before, gap, mark, gap, after, more);
    // Not scrollIntoView, which moves the page as well.
    text.scrollTop = mark.offsetTop - Math.max(0, text.clientHeight - mark.offsetHeight) / 2;
    text.scrollLeft = mark.offsetLeft - Math.max(0, text.clientWidth - mark.offsetWidth) / 2;
    return true;
  }
}
