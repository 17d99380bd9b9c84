// A tour: stops of the page, each a place and a sentence, that are gone through one by one.
import { rememberInSearch } from "./address.js";
import { button, element, fill } from "./dom.js";
import { Refused } from "./source.js";

/** @import { Page } from "./app.js" */

/**
 * A stop; its sentence is one for all languages, or one for each. The panel of a presentation counts
 * from 1, and is the first one where none is named.
 * @typedef {{place: string, says: string | Record<string, string>, panel?: number}} Stop
 */

const BAD_REQUEST = 400;

export class Tour {
  constructor(/** @type {Page} */ page) {
    this.page = page;
    this.stops = /** @type {Stop[]} */ ([]);
    this.at = 0;
    // Whether the place of a stop is not drawn yet.
    this.isGoing = false;
    this.element = element("section.tour");
    // What is scrolled into sight comes below it.
    const { style } = document.documentElement;
    const cover = () => style.setProperty("--guide", `${this.element.offsetHeight}px`);
    new ResizeObserver(cover).observe(this.element);
  }

  // Load a tour, and go to one of its stops.
  /** @param {string} file  Its address from the page's; "" for the studio's own */
  async begin(file, stop = 0) {
    const { page } = this;
    const tour = file ? await this.load(file) : await page.source.json("tour");
    const part = faultOf(tour);
    if (part) throw new Refused(page.t("tour.bad", { file, part }), BAD_REQUEST);
    const all = /** @type {Stop[]} */ (tour.stops);
    // What another model has, or no report, is passed over.
    this.stops = all.filter((each) => page.about.views[viewOf(each)] === null);
    if (!this.stops.length) {
      const none = { file: file || "JSON", part: "stops" };
      throw new Refused(page.t("tour.bad", none), BAD_REQUEST);
    }
    this.file = file;
    document.documentElement.dataset.tour = "";
    this.go(Math.min(stop, this.stops.length - 1));
  }

  /** A tour next to the page, from nowhere else. @param {string} file */
  async load(file) {
    const url = new URL(file, location.href);
    try {
      if (url.origin !== location.origin) throw new Error(url.origin);
      const answer = await fetch(url);
      if (!answer.ok) throw new Error(answer.statusText);
      // What is no JSON is no tour.
      return await answer.json().catch(() => /** @type {any} */ (null));
    } catch {
      throw new Refused(this.page.t("tour.away", { file }), BAD_REQUEST);
    }
  }

  /** The place of the stop's panel in a presentation; undefined without a tour. */
  get panel() {
    const stop = this.stops[this.at];
    return stop && (stop.panel ?? 1) - 1;
  }

  go(/** @type {number} */ stop) {
    if (!(stop in this.stops)) return;
    this.at = stop;
    rememberInSearch({ tour: this.file, stop: stop || null });
    this.draw();
    scrollTo(0, 0);
    this.isGoing = true;
    /** @type {HTMLElement} */ (this.element.querySelector("a")).click();
    this.page.presentation?.begin();
  }

  /** Scroll to the panel of a stop, which a small screen may have out of sight. */
  async arrive() {
    if (!this.isGoing) return;
    const { page, panel } = this;
    // What the stop before shows may be drawn last.
    if (!page.frame.querySelector(`.${viewOf(this.stops[this.at])} > [data-drawn]`)) return;
    this.isGoing = false;
    if (!panel || page.presentation) return;
    const { panelsOf } = await import("./present.js");
    panelsOf(page.frame)[panel]?.scrollIntoView({ block: "nearest" });
  }

  draw() {
    const { page, stops, at } = this;
    const { place, says } = stops[at];
    const said = typeof says === "string" ? says : (says[page.language] ?? says.en);
    const on = page.t("tour.on");
    // Arrows alone are those of what the page shows.
    const next = button(`${on} →`, () => this.go(at + 1));
    next.ariaLabel = on;
    next.disabled = !(at + 1 in stops);
    const previous = button("←", () => this.go(at - 1), page.t("tour.back"));
    previous.disabled = !at;
    const focused = [...this.element.querySelectorAll("button")].indexOf(
      /** @type {HTMLButtonElement} */ (document.activeElement),
    );
    this.element.ariaLabel = page.t("tour.title");
    fill(
      this.element,
      element("p", { role: "status" }, said ?? Object.values(says)[0]),
      element("a", { href: place, hidden: true }),
      element(
        "div.row",
        element("span.quiet", page.t("tour.stop", { stop: at + 1, of: stops.length })),
        previous,
        next,
        button(page.t("tour.end"), () => this.end()),
      ),
    );
    this.element.querySelectorAll("button")[focused]?.focus();
  }

  end() {
    delete document.documentElement.dataset.tour;
    rememberInSearch({ tour: null, stop: null });
    this.stops = [];
    this.isGoing = false;
    this.element.replaceChildren();
    this.page.frame.focus();
  }
}

/** The name of the view that a stop shows. @param {Stop} stop */
const viewOf = ({ place }) => place.slice(1).split("?")[0];

/** The first part of a tour that is missing or wrong; null where there is none. */
function faultOf(/** @type {any} */ tour) {
  const stops = tour?.stops;
  if (!Array.isArray(stops) || !stops.length) return "stops";
  for (const [at, stop] of stops.entries()) {
    const part = partOf(stop);
    if (part) return `stops[${at}].${part}`;
  }
  return null;
}

/** The first part of a stop that is missing or wrong. @param {any} stop */
function partOf(stop) {
  if (typeof stop?.place !== "string" || !stop.place.startsWith("#")) return "place";
  const { says, panel = 1 } = stop;
  if (!Number.isInteger(panel) || panel < 1) return "panel";
  const said = Object.values(typeof says === "string" ? [says] : (says ?? {}));
  const isSaid = said.every((each) => typeof each === "string" && each.trim());
  return said.length && isSaid ? null : "says";
}
