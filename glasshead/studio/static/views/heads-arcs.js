// The text above the maps, with arcs from a token to those that the open head, and others that are
// kept beside it, look at.
import { Arcs, keysOf } from "../arcs.js";
import { MOST_COLORS, categories } from "../colors.js";
import { button, element, fill } from "../dom.js";
import { headsOf, listed, placeOf, toggled } from "../selection.js";

/** @import { ArcHead } from "../arcs.js" */
/** @import { Context } from "../app.js" */
/** @import { Head, Selection } from "../selection.js" */

// Of a longer text a part is seen, and the rest scrolled to.
const LONG = 96;

export class HeadArcs {
  /**
   * @param {Context} context @param {Selection} selection
   * @param {() => void} changed  Other heads are kept
   */
  constructor({ t, state, remember }, selection, changed) {
    this.t = t;
    this.state = state;
    this.remember = remember;
    this.changed = changed;
    /** @type {number} */
    this.waiting = null;
    this.arcs = new Arcs(t, selection);
    selection.on(() => this.turn());
    this.legend = element("p.legend");
    this.frame = element("div.frame", this.arcs.element);
    this.element = element(
      "section.over-text",
      { "aria-label": t("heads.arcs"), "data-panel": "" },
      this.frame,
      this.legend,
    );
  }

  /** The heads that are kept, in the order of their colors. */
  get kept() {
    return headsOf(this.state.arcs).slice(0, MOST_COLORS - 1);
  }

  /**
   * The heads whose arcs are shown: those that are kept, and the open one.
   * @param {Head} open @param {(layer: number, head: number) => boolean} isThere
   */
  shown(open, isThere) {
    const kept = this.kept.filter((head) => isThere(...head));
    return placeOf(kept, open) < 0 ? [...kept, open] : kept;
  }

  /**
   * @param {string[]} words @param {Head[]} heads
   * @param {Omit<ArcHead, "color">[]} weights  Of each head
   * @param {Head | null} open  Null: the heads are those of two texts, and none is kept
   * @param {number} query
   */
  show(words, heads, weights, open, query) {
    const shown = weights.map((each, at) => ({ ...each, color: categories()[at] }));
    this.frame.classList.toggle("long", words.length > LONG);
    this.arcs.show(words, shown, query);
    fill(
      this.legend,
      keysOf(shown, (at) => open && this.keeping(heads[at], shown[at].name)),
    );
  }

  /**
   * The button that keeps the arcs of a head, or lets go of them.
   * @param {Head} head @param {string} name
   */
  keeping(head, name) {
    const { t, kept } = this;
    const isKept = placeOf(kept, head) >= 0;
    if (!isKept && kept.length >= MOST_COLORS - 1) return null;
    const made = button(t(isKept ? "heads.unpin" : "heads.pin"), () => {
      this.remember({ arcs: listed(toggled(kept, head)) });
      this.changed();
    });
    made.setAttribute("aria-label", `${made.textContent} (${name})`);
    return made;
  }

  /** Show the arcs of another query, once a frame. */
  turn() {
    cancelAnimationFrame(this.waiting);
    this.waiting = requestAnimationFrame(() => {
      const { frame, arcs } = this;
      // Where all of the text is seen, nothing is measured; what is, is before anything changes.
      const place = frame.matches(".long") && arcs.places()?.[arcs.selection.query];
      if (place) {
        const { scrollTop, clientHeight } = frame;
        const isSeen = place.top >= scrollTop && place.bottom <= scrollTop + clientHeight;
        if (!isSeen) frame.scrollTop = place.top - clientHeight / 2;
      }
      arcs.turn();
    });
  }
}
