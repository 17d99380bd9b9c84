// A presentation: large letters and one panel at a time, which the arrow keys go through.
import { rememberInSearch } from "./tour.js";

/** @import { Page } from "./app.js" */

// Also what a remote control sends.
/** @type {Record<string, number>} */
const KEYS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -1, PageDown: 1 };
const HANDLED = "input, select, textarea, [role='slider'], [role='grid'] *";

export class Presentation {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.at = 0;
    this.leaving = new AbortController();
    document.documentElement.dataset.present = "";
    rememberInSearch({ present: "" });
    const { signal } = this.leaving;
    // On the window: what a view handles itself is handled before.
    addEventListener("keydown", (event) => this.key(event), { signal });
    this.show(0);
    page.say("present.keys");
  }

  /** The panels of the view; one that is not marked is one panel. */
  panels() {
    return /** @type {HTMLElement[]} */ ([...this.page.frame.querySelectorAll("[data-panel]")]);
  }

  /**
   * Show one panel, the nearest that there is.
   * @param {number} at
   */
  show(at) {
    const panels = this.panels();
    this.at = Math.max(0, Math.min(panels.length - 1, at));
    panels.forEach((panel, each) => panel.classList.toggle("presented", each === this.at));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key === "Escape") this.end();
    const by = KEYS[event.key];
    const { target, altKey, ctrlKey, metaKey } = event;
    const isOther = event.defaultPrevented || altKey || ctrlKey || metaKey;
    if (!by || isOther || /** @type {Element} */ (target).closest?.(HANDLED)) return;
    event.preventDefault();
    const { tour } = this.page;
    if (tour?.stops.length) tour.go(tour.at + by);
    else this.show(this.at + by);
  }

  end() {
    this.leaving.abort();
    delete document.documentElement.dataset.present;
    rememberInSearch({ present: null });
    this.page.ended();
  }
}
