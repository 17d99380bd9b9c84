// A presentation: large letters and one panel at a time, which keys and buttons go through.
import { rememberInSearch } from "./address.js";
import { button, element, fill } from "./dom.js";
import { within } from "./numbers.js";
// @ts-expect-error - The bundler gives its text.
import css from "./present.css";

/** @import { Page } from "./app.js" */

const ARROWS = /** @type {Record<string, number>} */ ({ ArrowLeft: -1, ArrowRight: 1 });
// What a remote control sends.
const PAGES = /** @type {Record<string, number>} */ ({ PageUp: -1, PageDown: 1 });
const HANDLED = "input, select, textarea, [role='slider']";
// What is typed or set by the same keys after a click, too.
const TYPED = "textarea, select, input:not([type='radio'], [type='checkbox'])";
// The parts of a view of which one is seen; what holds nothing is no panel.
const PANELS = "[data-panel]:not(:empty, [hidden])";

// A page has it during a presentation alone.
const STYLE = new CSSStyleSheet();
STYLE.replaceSync(css);

export class Presentation {
  constructor(/** @type {Page} */ page) {
    this.page = page;
    // The panel that is chosen, which a view may not have yet; null: none.
    this.at = /** @type {number | null} */ (null);
    // What was last said of the keys.
    this.said = "";
    // Whether panels are hidden, to draw themselves when they are shown again.
    this.fitting = false;
    this.leaving = new AbortController();
    this.place = element("span", { role: "status" });
    this.back = button("←", () => this.go(-1), page.t("present.back"));
    this.on = button("→", () => this.go(1), page.t("present.on"));
    this.element = element(
      "section.presenting",
      { "aria-label": page.t("present.title") },
      this.back,
      this.place,
      this.on,
      button("×", () => this.end(), page.t("present.end")),
    );
    document.documentElement.dataset.present = "";
    document.adoptedStyleSheets.push(STYLE);
    rememberInSearch({ present: "" });
    const { signal } = this.leaving;
    // On the window: what a view handles itself is handled before, but for a remote control.
    const heard = (/** @type {KeyboardEvent} */ event) => {
      this.key(event, ARROWS);
      if (event.key === "Escape" && !event.defaultPrevented) this.end();
    };
    addEventListener("keydown", heard, { signal });
    // After a click, the arrow keys turn panels; after Tab they move within what has the focus.
    let isClicked = false;
    const before = (/** @type {any} */ event) => {
      if (event.key === "Tab") isClicked = false;
      const isTurning = isClicked && !event.target.closest?.(TYPED);
      this.key(event, isTurning ? { ...PAGES, ...ARROWS } : PAGES);
    };
    addEventListener("keydown", before, { signal, capture: true });
    addEventListener("pointerdown", () => (isClicked = true), { signal, capture: true });
    addEventListener("resize", () => this.fit(), { signal });
    // What is chosen may be shown in another panel.
    const turn = (/** @type {any} */ event) => {
      event.preventDefault();
      this.turn(this.panels().findIndex((panel) => panel.contains(event.target)));
    };
    page.frame.addEventListener("turnto", turn, { signal });
    // Panels come with what they show.
    const observer = new MutationObserver(() => this.show());
    observer.observe(page.frame, {
      childList: true,
      subtree: true,
      attributeFilter: ["hidden", "data-panel"],
    });
    signal.addEventListener("abort", () => observer.disconnect());
    this.begin();
  }

  panels() {
    return panelsOf(this.page.frame);
  }

  // Where the panel is that is chosen, or the nearest that there is, or else that with an answer.
  /** @param {HTMLElement[]} panels */
  placeIn(panels) {
    const asked = () => panels.findIndex((panel) => "asked" in panel.dataset);
    return within(this.at ?? asked(), panels.length);
  }

  /** Show the panel that is chosen. */
  show() {
    const { page } = this;
    const panels = this.panels();
    const shown = this.placeIn(panels);
    panels.forEach((panel, each) =>
      panel.classList.toggle("presented", each === shown && !this.fitting),
    );
    const place = { at: shown + 1, of: panels.length };
    const turns = [-1, 1].map((by) => this.isTaken("canturn", by));
    // A walk has its own number.
    const isWalk = turns.includes(true);
    fill(this.place, panels.length > 1 && !isWalk && page.t("present.panel", place));
    const leadsBack = shown > 0 || turns[0];
    const leadsOn = shown < panels.length - 1 || turns[1];
    this.back.hidden = this.on.hidden = panels.length < 2 && !leadsBack && !leadsOn;
    // A disabled button would lose the focus.
    this.back.ariaDisabled = String(!leadsBack);
    this.on.ariaDisabled = String(!leadsOn);
    this.sayKeys();
  }

  /** Say what the keys do, as long as that is read. */
  sayKeys() {
    const { page } = this;
    // A touch screen has none.
    if (!matchMedia("(any-pointer: fine)").matches) return;
    if (this.said && !page.notice.hasChildNodes()) return;
    const alone = this.on.hidden ? "present.alone" : "present.keys";
    const name = page.tour?.stops.length ? "present.stops" : alone;
    if (name !== this.said) page.say(name);
    this.said = name;
  }

  // Whether what is shown takes an event, as a walk that has another frame does.
  /** @param {"turn" | "canturn"} name  What happens, or is asked @param {number} by */
  isTaken(name, by) {
    const event = new CustomEvent(name, { detail: by, bubbles: true, cancelable: true });
    return !this.page.frame.dispatchEvent(event);
  }

  /** Redraw the panel for a window of another size: a panel draws itself when it is shown again. */
  fit() {
    const focused = /** @type {HTMLElement} */ (document.activeElement);
    this.fitting = true;
    this.show();
    const shown = () => {
      this.fitting = false;
      this.show();
      // A hidden element loses the focus.
      focused.focus({ preventScroll: true });
    };
    requestAnimationFrame(() => requestAnimationFrame(shown));
  }

  go(/** @type {number} */ by) {
    // Who goes on knows the keys.
    fill(this.page.notice);
    if (this.isTaken("turn", by)) return;
    this.turn(this.placeIn(this.panels()) + by);
  }

  turn(/** @type {number} */ at) {
    this.at = within(at, this.panels().length);
    this.show();
    scrollTo(0, 0);
  }

  /** Show the first panel of a view that is opened, or that of a tour's stop. */
  begin() {
    this.at = this.page.tour?.panel ?? null;
    this.show();
  }

  /** @param {KeyboardEvent} event @param {Record<string, number>} keys */
  key(event, keys) {
    const by = keys[event.key];
    const target = /** @type {Element} */ (event.target);
    const isHandled = event.defaultPrevented || (keys === ARROWS && target.closest?.(HANDLED));
    if (!by || isHandled || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    const { tour } = this.page;
    // After the last stop they go through what it shows.
    if (tour?.stops[tour.at + by]) tour.go(tour.at + by);
    else this.go(by);
  }

  end() {
    this.leaving.abort();
    this.element.remove();
    delete document.documentElement.dataset.present;
    const { adoptedStyleSheets: all } = document;
    document.adoptedStyleSheets = all.filter((sheet) => sheet !== STYLE);
    rememberInSearch({ present: null });
    this.page.ended();
  }
}

/** The panels of a view, in the order of a presentation. @param {HTMLElement} frame */
export function panelsOf(frame) {
  const found = /** @type {any[]} */ ([...frame.querySelectorAll(PANELS)]);
  // A view's style may hide panels for a while.
  const all = found.filter((panel) => !getComputedStyle(panel).getPropertyValue("--away"));
  // Those with a number come last.
  return all.sort((one, other) => one.dataset.panel - other.dataset.panel);
}
