// The page: its views, its language, and what is asked for again.
import { onGoing, read, withoutToken, write } from "./address.js";
import { button, element, fill, scrolling } from "./dom.js";
import { menu } from "./controls.js";
import { onPaper, usePalette } from "./colors.js";
import { png, save, svg } from "./figure.js";
import { Refused, Unreachable, served, stored } from "./source.js";
import { Waiting } from "./waiting.js";
import { steps } from "./views/steps.js";
import { heads } from "./views/heads.js";
import { alignment } from "./views/alignment.js";
import { atlas } from "./views/atlas.js";
import { training } from "./views/training.js";

const VIEWS = { steps, heads, alignment, atlas, training };
const AGAIN_AFTER = 1000;
const SAY_FOR = 5000;

/** A view is {open(frame, context)}; the context has `source` (source.js), `about` (about.py), `language` and
 *   t(name, {…})  a word or sentence, its places filled in
 *   state         what the address holds of the view: strings by name
 *   remember({})  put names into the address; null takes one away
 *   signal        aborted when the view is left: for all listeners and requests
 *   picture(f)    what is saved: f() returns a figure (figure.js); null: nothing
 *   failed(error) tell what went wrong; an abort is passed over */
class Page {
  constructor(source) {
    this.source = source;
    this.leaving = new AbortController();
    this.frame = element("main", { id: "view", tabindex: "-1" });
    this.notice = element("div.notice", { role: "status" });
    this.waiting = new Waiting(this);
  }

  async start() {
    this.about = await this.source.json("about");
    usePalette(this.about.palette);
    await this.speak(this.chosenLanguage());
    onGoing(() => this.go());
    onPaper(() => this.open());
    await this.open();
  }

  chosenLanguage() {
    const known = Object.keys(this.about.languages);
    if (this.source.offline) return known[0];
    const named = new Map(known.map((name) => [written(name), name]));
    return [keptLanguage(), ...navigator.languages].map((each) => named.get(written(each))).find(Boolean) ?? "en";
  }

  async speak(language) {
    this.words = await this.source.json("words", { lang: language });
    this.language = language;
    document.documentElement.lang = language;
    this.layOut();
  }

  t(name, places = {}) {
    return (this.words[name] ?? name).replace(/\{(\w+)\}/g, (whole, place) => places[place] ?? whole);
  }

  layOut() {
    const { subject, languages } = this.about;
    const there = Object.keys(VIEWS).filter((view) => view in this.about.views);
    const link = (view) => element("a", { href: `#${view}` }, this.t(`${view}.title`));
    this.links = Object.fromEntries(there.map((view) => [view, link(view)]));
    this.saving = element("div.saving", { role: "group", "aria-label": this.t("shell.save") },
      element("span", { "aria-hidden": "true" }, this.t("shell.save")),
      ["png", "svg"].map((kind) => button(this.t(`shell.${kind}`), () => this.save(kind))));
    const language = menu(this.t("shell.language"), Object.entries(languages), this.language, async (chosen) => {
      try { localStorage.setItem("language", chosen); } catch { /* it is not kept */ }
      await this.speak(chosen);
      document.querySelector("header select").focus();
      await this.open();
    });
    const skip = (event) => { event.preventDefault(); this.frame.focus(); };
    const src = this.source.offline ? this.about.icon : "static/icon.svg";
    fill(document.body,
      element("a.skip", { href: "#view", onclick: skip }, this.t("shell.skip")),
      element("header",
        element("a.brand", { href: "#steps" }, element("img", { src, alt: "", width: 22, height: 22 }),
          element("b", "glasshead"), element("span", subject.name ?? this.t("shell.nothing"))),
        element("nav", { "aria-label": this.t("shell.views") }, Object.values(this.links)),
        this.saving, this.source.offline ? null : language),
      this.notice, this.frame);
  }

  async go() {
    const before = this.shown;
    const opened = this.open();
    if (this.shown !== before) {
      scrollTo(0, 0);
      document.getElementById("title").focus({ preventScroll: true });
    }
    await opened;
  }

  async open() {
    this.leaving.abort();
    this.leaving = new AbortController();
    const { signal } = this.leaving;
    const { view: asked, state } = read();
    const name = asked in this.links ? asked : Object.keys(this.links)[0];
    for (const [view, link] of Object.entries(this.links)) {
      link.ariaCurrent = view === name ? "page" : null;
      link.classList.toggle("absent", this.about.views[view] !== null);
    }
    this.shown = name;
    this.drawing = null;
    this.saving.hidden = true;
    const { problem, name: subject } = this.about.subject;
    document.title = `${this.t(`${name}.title`)} · ${subject ? `${subject} · glasshead` : this.t("shell.title")}`;
    const frame = element("div.body");
    fill(this.frame, element(`section.view.${name}`, { "aria-labelledby": "title" },
      element("h1", { id: "title", tabindex: "-1" }, this.t(`${name}.title`)),
      this.about.notes?.[name]?.map((note) => element("p.quiet.cut", note)), frame));
    if (problem !== null) this.waiting.forSubject();
    if (this.about.views[name] !== null) {
      fill(frame, problem === null ? this.absent(name, subject) : this.refused(problem));
      frame.dataset.drawn = "";
      return;
    }
    const context = {
      source: this.source, about: this.about, language: this.language, state, signal,
      t: (word, places) => this.t(word, places),
      remember: (changes) => this.remember(name, state, changes, signal),
      picture: (draw) => {
        if (signal.aborted) return;
        this.drawing = draw && { name, draw };
        this.saving.hidden = !draw;
      },
      failed: (error) => this.failed(error, frame, signal),
    };
    try {
      await VIEWS[name].open(frame, context);
    } catch (error) {
      this.failed(error, frame, signal);
    }
  }

  remember(name, state, changes, signal) {
    if (signal.aborted) return;
    for (const [key, value] of Object.entries(changes)) {
      if (value === null || value === undefined) delete state[key]; else state[key] = String(value);
    }
    write(name, state);
  }

  failed(error, frame, signal) {
    if (signal.aborted || error.name === "AbortError") return;
    if (error instanceof Unreachable) {
      this.waiting.forStudio();
    } else {
      const refused = error instanceof Refused;
      fill(frame, this.refused(refused ? error.message : this.t("shell.fault", { error: String(error) })));
      if (!refused) throw error;
      this.waiting.forSubject();
    }
  }

  absent(name, subject) {
    const commands = element("pre.formula", "glasshead demo\nglasshead studio demo/translator");
    const label = this.t("shell.how");
    const how = [element("p", label), scrolling(label, commands)];
    return [element("p.note", this.t(this.about.views[name])), subject || this.source.offline ? null : how];
  }

  refused(sentence) {
    return element("div.refused", { role: "alert" }, element("p", sentence),
      this.source.offline ? null : button(this.t("shell.again"), () => this.again()));
  }

  refuse(error) {
    fill(this.notice);
    fill(this.frame, this.refused(error.message));
  }

  async renew() {
    const about = await this.source.json("about");
    if (about.version !== this.about.version) return location.reload();
    this.about = about;
    this.layOut();
    await this.open();
  }

  async again() {
    try {
      await this.renew();
    } catch (error) {
      this.failed(error, this.frame, this.leaving.signal);
    }
  }

  say(name) {
    clearTimeout(this.unsaying);
    fill(this.notice, element("p", this.t(name)));
    if (name === "shell.back") this.unsaying = setTimeout(() => fill(this.notice), SAY_FOR);
  }

  async save(kind) {
    if (!this.drawing) return;
    const figure = { title: document.title, ...this.drawing.draw() };
    save(kind === "png" ? await png(figure) : svg(figure), `glasshead-${this.drawing.name}.${kind}`);
  }
}

function keptLanguage() {
  try { return localStorage.getItem("language"); } catch { return null; }
}

/** A language and its script, zh-Hant of zh-TW; null of what is no name. */
function written(name) {
  try {
    const { language, script } = new Intl.Locale(name).maximize();
    return `${language}-${script}`;
  } catch { return null; }
}

const held = document.getElementById("answers");
if (!held) withoutToken();
const page = new Page(held ? stored(JSON.parse(held.textContent)) : served());
start();

function start() {
  page.start().catch((error) => {
    fill(document.body, element("p.refused", { role: "alert" }, String(error.message || error)));
    if (error instanceof Unreachable) setTimeout(start, AGAIN_AFTER); else throw error;
  });
}
