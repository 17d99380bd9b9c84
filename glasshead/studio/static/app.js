// The page: its views, its language, and what is asked for again.
import { beginAt, onGoing, readAddress, writeAddress } from "./address.js";
import { onPaper, usePalettes } from "./colors.js";
import { menu } from "./controls.js";
import { button, capitalized, element, fill, hasBox, scrolling, withCode } from "./dom.js";
import { localized } from "./numbers.js";
import { Reconnect } from "./reconnect.js";
import { Share } from "./share.js";
import { Refused, Unreachable, keep, kept } from "./source.js";
import { selectionOf, stateOf } from "./selection.js";
import { viewOf } from "./views/table.js";

/** @import { Selected } from "./selection.js" */
/** @import { Source } from "./source.js" */

// A word or sentence by its name, with its places filled in.
/** @typedef {(name: string, places?: Record<string, any>) => string} Translate */

/**
 * What the studio says of itself, or a report of itself.
 * @typedef {object} About
 * @property {string} version
 * @property {Record<"name" | "path" | "kind" | "problem", string | null>} subject
 * @property {string[]} models  Names of all models, where there are several
 * @property {Record<string, string | null>} views  In the order of their links: why a view is
 *   missing; null if none is missing
 * @property {string} first  The view that the page opens with
 * @property {Record<string, number>} limits @property {Record<string, string>} languages
 * @property {import("./colors.js").Palettes} palette
 * @property {Record<string, string[]>} [notes]  What a report leaves out of a view
 * @property {"built_in" | "own" | null} tour  Whether there is one, and it was given
 * @property {string} [icon]
 * @property {string} [place]  What a saved page opens with, as its address would say
 */

/** @typedef {{name: string | null, layers: number | null, decoder?: number | null,
 *   heads: number | null, parameters: number}} Model */

// The text that a view begins with, and where it is from.
/** @typedef {{text: string, origin: string, why: string}} Sample */

/**
 * What a view is given.
 * @typedef {object} Context
 * @property {Source} source @property {About} about @property {string} language
 * @property {Translate} t @property {() => Promise<Sample>} sample
 * @property {Record<string, string>} state  What the address holds of the view
 * @property {(changes: Record<string, any>) => void} remember  Puts names into the address; null
 *   takes one away
 * @property {AbortSignal} signal  Aborted when the view is left: for all listeners and requests
 * @property {(draw: (() => Picture) | null) => void} picture  Says what is saved
 * @property {(error: Error) => void} failed  Tells what went wrong; an abort is passed over
 */

/**
 * What of the page a picture shows.
 * @typedef {object} Picture
 * @property {string} [title]  What stands above it, if no part says it
 * @property {Element[]} parts  One below the other
 * @property {Element[]} [card]  What a card shows, if not the same
 * @property {string} [sentence]  What a card says of it, if not what the view reports
 */

/** Opens a view in a frame. @typedef {(frame: HTMLElement, context: Context) => Promise<void>} View */

// Milliseconds until a page asks again that found no studio, and for which a notice is shown.
const AGAIN_AFTER = 1000;
const NOTICE_FOR = 5000;

export class Page {
  constructor(/** @type {Source} */ source) {
    this.source = source;
    this.leaving = new AbortController();
    this.frame = element("main", { id: "view", tabindex: "-1" });
    this.notice = element("div.notice", { role: "status" });
    this.reconnect = new Reconnect(this);
    this.about = /** @type {About} */ (null);
    this.words = /** @type {Record<string, string>} */ ({});
    this.language = "en";
    this.links = /** @type {Record<string, HTMLAnchorElement>} */ ({});
    this.shown = /** @type {string} */ (null);
    this.draw = /** @type {(() => Picture) | null} */ (null);
    this.noticeTimer = 0;
    this.share = /** @type {Share} */ (null);
    this.selection = /** @type {Selected} */ ({});
    this.tour = /** @type {import("./tour.js").Tour} */ (null);
    this.presentation = /** @type {import("./present.js").Presentation} */ (null);
    this.guide = element("div");
    // What is loaded, in words.
    this.loaded = element("span");
  }

  async start() {
    this.about = await this.source.json("about");
    usePalettes(this.about.palette);
    beginAt(this.about.place);
    await this.speak(this.chosenLanguage());
    onGoing(() => this.go());
    onPaper(() => this.open());
    const search = new URLSearchParams(location.search);
    const isGiven = this.about.tour === "own" && !location.hash;
    if (search.has("present")) await this.present();
    await this.open();
    if (search.has("tour") || isGiven) {
      await this.beginTour(search.get("tour") ?? "", Number(search.get("stop")) || 0);
    }
  }

  // Begin a tour, or tell above the view why there is none.
  /** @param {string} file  Its address; "" for the studio's own @param {number} [stop] */
  async beginTour(file, stop) {
    try {
      const { Tour } = await import("./tour.js").catch(unreached);
      this.tour = new Tour(this);
      fill(this.guide, this.tour.element);
      await this.tour.begin(file, stop);
    } catch (error) {
      if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
      const isRefused = error instanceof Refused;
      fill(this.guide, this.refused(isRefused ? error.message : this.t("shell.gone")));
    }
  }

  async present() {
    const { Presentation } = await import("./present.js").catch(unreached);
    // Another press was faster.
    if (this.presentation) return;
    this.presentation = new Presentation(this);
    this.frame.after(this.presentation.element);
  }

  ended() {
    this.presentation = null;
    fill(this.notice);
    // A telephone has no button.
    const begin = /** @type {HTMLElement} */ (document.querySelector("header > .present"));
    (hasBox(begin) ? begin : this.frame).focus({ preventScroll: true });
  }

  /** The language that was chosen before, or else the first of the browser's that the page has. */
  chosenLanguage() {
    const known = Object.keys(this.about.languages);
    if (this.source.offline) return known[0];
    const byScript = new Map(known.map((name) => [languageAndScript(name), name]));
    const wanted = [kept("localStorage", "language"), ...navigator.languages];
    return wanted.map((each) => byScript.get(languageAndScript(each))).find(Boolean) ?? "en";
  }

  async speak(/** @type {string} */ language) {
    this.words = await this.source.json("words", { lang: language });
    this.language = language;
    this.source.language = language;
    document.documentElement.lang = language;
    this.layOut();
  }

  /** @type {Translate} */
  t = (name, places = {}) => {
    const sentence = this.words[name] ?? name;
    return sentence.replace(/\{(\w+)\}/g, (whole, place) => places[place] ?? whole);
  };

  layOut() {
    const links = Object.keys(this.about.views).map((view) => {
      return [view, element("a", { href: `#${view}` }, this.t(`${view}.title`))];
    });
    this.links = Object.fromEntries(links);
    this.share = new Share(this);
    const skip = (/** @type {Event} */ event) => {
      event.preventDefault();
      this.frame.focus();
    };
    // Browsers do not scroll to a focused link that is partly visible.
    const onfocusin = (/** @type {FocusEvent} */ { target }) => {
      /** @type {Element} */ (target).scrollIntoView({ inline: "center", block: "nearest" });
    };
    const present = button(this.t("present.title"), () => this.present());
    present.className = "present";
    const header = element(
      "header",
      this.brand(),
      element("nav.scroll", { "aria-label": this.t("shell.views"), onfocusin }, this.intents()),
      this.about.tour && button(this.t("tour.title"), () => this.beginTour("")),
      present,
      this.share.element,
      !this.source.offline && this.languageMenu(),
    );
    const skipLink = element("a.skip", { href: "#view", onclick: skip }, this.t("shell.skip"));
    // A model that the page holds may still be arriving.
    const story = document.getElementById("story");
    const presenting = this.presentation?.element;
    fill(document.body, skipLink, header, this.guide, this.notice, this.frame, presenting, story);
    if (this.tour?.stops.length) this.tour.draw();
    this.tellModel();
  }

  /** The links to the views, by what one wants to do; of one thing they stand from near to far. */
  intents() {
    const learn = this.about.subject.kind === null ? ["prompt", "steps"] : ["steps"];
    const text = ["prompt", "heads", "atlas", "model", "alignment"];
    const views = { learn, text, picture: ["picture"], training: ["training"] };
    const left = new Set(Object.keys(this.links));
    return Object.entries(views).map(([name, all]) => {
      const links = all.filter((view) => left.delete(view)).map((view) => this.links[view]);
      const label = this.t(name === "picture" ? "picture.title" : `shell.intent.${name}`);
      const seen = element("span.name", { "aria-hidden": "true" }, label);
      return (
        links.length > 0 &&
        element(`div.intent.${name}`, { role: "group", "aria-label": label }, seen, links)
      );
    });
  }

  brand() {
    const src = this.about.icon ?? "static/icon.svg";
    return element(
      "a.brand",
      // It names no view, so that the first one is opened. Axe takes it for a link to a page, and
      // the views that a telephone has out of sight after it for no links to skip something.
      { href: "#!" },
      element("img", { src, alt: "", width: 22, height: 22 }),
      element("b", "glasshead"),
      this.loaded,
    );
  }

  /** Say what is loaded: of which kind it is at first, and more once the model is there. */
  async tellModel() {
    const { name, path, kind, problem } = this.about.subject;
    const isOpen = kind !== null && problem === null && !this.source.offline;
    const own = isOpen ? this.t(`shell.kind.${kind}`) : (name ?? this.t("shell.nothing"));
    fill(this.loaded, own, kind === "weights" ? [this.t("shell.comma"), name] : null);
    this.loaded.title = path ?? "";
    if (!isOpen || kind === "weights") return;
    try {
      fill(this.loaded, this.described(own, await this.source.json("prompt/model")));
    } catch {
      // The view reports what cannot be opened.
    }
  }

  /** @param {string} kind @param {Model | null} model */
  described(kind, model) {
    if (model === null) return this.t("shell.model.none", { name: kind });
    const parameters = short(model.parameters, this.language);
    const counted = model.decoder ? "shell.model.both" : "shell.model";
    const sentence = model.layers && model.heads ? counted : "shell.model.plain";
    return this.t(sentence, { ...model, name: model.name ?? kind, parameters });
  }

  languageMenu() {
    const speak = async (/** @type {string} */ chosen) => {
      keep("localStorage", "language", chosen);
      await this.speak(chosen);
      /** @type {HTMLElement} */ (document.querySelector("header select")).focus();
      await this.open();
    };
    const languages = Object.entries(this.about.languages);
    return menu(this.t("shell.language"), languages, this.language, speak);
  }

  /** Show what the address names, from the top where it is another view. */
  async go() {
    const before = this.shown;
    const opened = this.open();
    if (this.shown !== before) {
      scrollTo(0, 0);
      document.getElementById("title").focus({ preventScroll: true });
    }
    await opened;
    this.tour?.arrive();
  }

  /** Leave the view that is shown, and open the one that the address names. */
  async open() {
    this.leaving.abort();
    this.leaving = new AbortController();
    this.source.forget?.();
    const { signal } = this.leaving;
    const { name, state } = this.place();
    this.selection = selectionOf(name, state) ?? this.selection;
    // A link to a view alone becomes one to what is selected in it.
    writeAddress(name, state);
    this.mark(name);
    const frame = this.layOutView(name);
    this.presentation?.begin();
    const { problem } = this.about.subject;
    if (problem !== null) this.reconnect.forSubject();
    if (this.about.views[name] !== null) {
      fill(frame, problem === null ? this.absence(name) : this.refusal(capitalized(problem)));
      frame.dataset.drawn = "";
      return;
    }
    try {
      const view = await viewOf(name);
      if (!signal.aborted) await view(frame, this.context(name, frame, state, signal));
    } catch (error) {
      this.failed(error, frame, signal);
    }
  }

  /** The view that the address names, and what it or else the view before has selected. */
  place() {
    const { view, state: asked } = readAddress();
    const isThere = view in this.links;
    const name = isThere ? view : this.about.first;
    const state = isThere ? asked : {};
    if (!Object.keys(state).length) Object.assign(state, stateOf(name, this.selection));
    const { kind } = this.about.subject;
    // The view "steps" works out the heads of a model.
    const hasCells = !this.source.offline && kind !== null && kind !== "weights";
    const isCell = name === "steps" && state.layer !== undefined;
    return { name, state: isCell && !hasCells ? {} : state };
  }

  mark(/** @type {string} */ name) {
    for (const [view, link] of Object.entries(this.links)) {
      link.ariaCurrent = view === name ? "page" : null;
      link.classList.toggle("absent", this.about.views[view] !== null);
      // What a model of another kind would have is no place to go.
      const never = this.about.subject.kind !== null && this.about.views[view] === `${view}.none`;
      link.hidden = never && view !== name;
    }
    // On a telephone, the open one is in sight.
    const { offsetLeft, offsetWidth, offsetParent: row } = this.links[name];
    if (row) row.scrollLeft = offsetLeft - (row.clientWidth - offsetWidth) / 2;
    this.shown = name;
    this.draw = null;
    this.share.show(false);
  }

  /** Fill the page with a view's title and an empty frame. @param {string} name */
  layOutView(name) {
    const { name: subject } = this.about.subject;
    const title = this.t(`${name}.title`);
    document.title = `${title} · ${subject ? `${subject} · glasshead` : this.t("shell.title")}`;
    const isExample = name === "prompt" && this.about.subject.kind === null;
    const frame = element("div.body");
    const section = element(
      `section.view.${name}`,
      { "aria-labelledby": "title" },
      element("h1", { id: "title", tabindex: "-1" }, title),
      element("p.quiet.what", this.t(isExample ? "example.what" : `${name}.what`)),
      this.about.notes?.[name]?.map((note) => element("p.quiet.cut", note)),
      frame,
    );
    fill(this.frame, section);
    return frame;
  }

  /**
   * @param {string} name @param {HTMLElement} frame @param {Record<string, string>} state
   * @param {AbortSignal} signal @returns {Context}
   */
  context(name, frame, state, signal) {
    return {
      source: this.source,
      about: this.about,
      language: this.language,
      sample: () => this.source.json("sample", {}, { signal }),
      state,
      signal,
      t: this.t,
      remember: (changes) => {
        if (signal.aborted) return;
        for (const [key, value] of Object.entries(changes)) {
          if (value === null || value === undefined) delete state[key];
          else state[key] = String(value);
        }
        writeAddress(name, state);
        this.selection = selectionOf(name, state) ?? this.selection;
      },
      picture: (draw) => {
        if (signal.aborted) return;
        this.draw = draw;
        this.share.show(Boolean(draw));
      },
      failed: (error) => this.failed(error, frame, signal),
    };
  }

  // Tell what went wrong: wait for a studio that is away, show a refusal, and throw a fault.
  /** @param {Error} error @param {HTMLElement} frame @param {AbortSignal} signal */
  failed(error, frame, signal) {
    if (signal.aborted || error.name === "AbortError") return;
    if (error instanceof Unreachable) {
      this.reconnect.forStudio();
      return;
    }
    const isRefused = error instanceof Refused;
    const fault = this.t("shell.fault", { error: String(error) });
    fill(frame, this.refusal(isRefused ? error.message : fault));
    frame.dataset.drawn = "";
    if (!isRefused) throw error;
    this.reconnect.forSubject();
  }

  /** Why a view is missing, and how to have it where nothing is open. @param {string} name */
  absence(name) {
    const label = this.t("shell.how");
    const commands = "glasshead demo\nglasshead studio demo/translator";
    const how = [element("p", label), scrolling(label, element("pre.formula", commands))];
    const isOpen = this.about.subject.name !== null || this.source.offline;
    const example = element("a.example", { href: "#steps" }, this.t("cell.example"));
    const others = isOpen ? null : [how, element("p", example)];
    return [element("p.note", withCode(this.t(this.about.views[name]))), others];
  }

  refusal(/** @type {string} */ sentence) {
    const again = async () => {
      await this.renew().catch((error) => this.failed(error, this.frame, this.leaving.signal));
    };
    return this.refused(sentence, !this.source.offline && button(this.t("shell.again"), again));
  }

  /** @param {string} sentence @param {HTMLElement | false} [again] */
  refused(sentence, again) {
    return element("div.refused", { role: "alert" }, element("p", sentence), again);
  }

  /** Show a refusal in place of any view. @param {Error} error */
  refuse(error) {
    fill(this.notice);
    fill(this.frame, this.refusal(error.message));
  }

  /** Show what the studio is now; a page of another version is loaded again. */
  async renew() {
    const about = await this.source.json("about");
    if (about.version !== this.about.version) {
      location.reload();
      return;
    }
    this.about = about;
    this.layOut();
    await this.open();
  }

  /** @param {string} name  Of the notice */
  say(name) {
    clearTimeout(this.noticeTimer);
    fill(this.notice, element("p", this.t(name)));
    // These notices disappear by themselves.
    if (name !== "shell.back" && !name.startsWith("present.")) return;
    this.noticeTimer = setTimeout(() => fill(this.notice), NOTICE_FOR);
  }
}

/** Report code that did not arrive as a studio that is away. @returns {never} */
function unreached() {
  throw new Unreachable("");
}

/** A number in few letters, such as 260K. @param {number} count @param {string} language */
function short(count, language) {
  return localized(count, language, {
    notation: "compact",
    maximumSignificantDigits: 3,
    // The letter of a thousand is that of a billion elsewhere.
    compactDisplay: language === "tr" ? "long" : "short",
  });
}

/** A language and its script, zh-Hant of zh-TW; null of what is no name. @param {string} name */
function languageAndScript(name) {
  try {
    const { language, script } = new Intl.Locale(name).maximize();
    return `${language}-${script}`;
  } catch {
    return null;
  }
}

/** Start a page, again until its data are there. @param {Page} page */
export function start(page) {
  page.start().catch((error) => {
    const sentence = String(error.message || error);
    fill(document.body, element("p.refused", { role: "alert" }, sentence));
    if (!(error instanceof Unreachable)) throw error;
    setTimeout(() => start(page), AGAIN_AFTER);
  });
}
