// The text above the maps, with arcs from a token to those that the open head, and others that are
// kept beside it, look at.
import { Arcs, keysOf, whereItLooks } from "../arcs.js";
import { MOST_COLORS, categories } from "../colors.js";
import { button, element, fill } from "../dom.js";
import { headsOf, listed, placeOf, toggled } from "../selection.js";
import { isThere } from "./heads-grid.js";

/** @import { Head } from "../selection.js" */
/** @import { HeadsView } from "./heads.js" */

// Of a longer text a part is seen, and the rest scrolled to.
const LONG = 96;

export class HeadArcs {
  constructor(/** @type {HeadsView} */ heads) {
    const { t } = heads.context;
    this.heads = heads;
    this.t = t;
    this.waiting = /** @type {number} */ (null);
    this.arcs = new Arcs(t, heads.selection);
    heads.selection.on(() => this.turn());
    this.legend = element("p.legend");
    this.frame = element("div.frame", this.arcs.element);
    const look = { "aria-label": t("heads.arcs"), "data-panel": "" };
    this.looks = element("p.looks");
    this.element = element("section.over-text", look, this.frame, this.looks, this.legend);
  }

  /** The heads that are kept, in the order of their colors. */
  get kept() {
    return headsOf(this.heads.context.state.arcs).slice(0, MOST_COLORS - 1);
  }

  // Show the arcs of the open head and of those that are kept; of a difference, those of both texts.
  /** @param {AbortSignal} [signal] */
  async show(signal = this.heads.context.signal) {
    const { heads, t } = this;
    const { opened, summary } = heads;
    const { running, differs } = summary;
    const kept = this.kept.filter((head) => isThere(summary, head));
    const all = placeOf(kept, opened) < 0 ? [...kept, opened] : kept;
    const shown = differs ? [opened, opened] : all;
    const asked = shown.map((head, at) => {
      return heads.weightsOf(differs ? (at ? "b" : "a") : heads.compare.side, head);
    });
    const weights = await Promise.all(asked);
    if (signal.aborted || heads.opened !== opened) return;
    heads.forgetAllBut(shown);
    const drawn = weights.map(({ values }, at) => {
      const [layer, head] = shown[at];
      const name = t("heads.named", { layer, head });
      return { name: differs ? `${"AB"[at]} · ${name}` : name, values, color: categories()[at] };
    });
    this.frame.classList.toggle("long", running.length > LONG);
    this.arcs.show(running, drawn, heads.selection.pinned.query);
    const keys = keysOf(drawn, (at) => !differs && this.keeping(shown[at], drawn[at].name));
    fill(this.legend, keys);
    this.tell();
  }

  /** Say where the open head looks; of a difference, nothing. */
  tell() {
    const { opened, summary } = this.heads;
    fill(this.looks, !summary.differs && whereItLooks(this.t, opened, this.arcs));
  }

  // The button that keeps the arcs of a head, or lets go of them.
  /** @param {Head} head @param {string} name */
  keeping(head, name) {
    const { heads, kept, t } = this;
    const isKept = placeOf(kept, head) >= 0;
    if (!isKept && kept.length >= MOST_COLORS - 1) return null;
    const made = button(t(isKept ? "heads.unpin" : "heads.pin"), () => {
      heads.context.remember({ arcs: listed(toggled(kept, head)) });
      this.show().catch(heads.failed);
    });
    made.ariaLabel = `${made.textContent} (${name})`;
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
      this.tell();
    });
  }
}
