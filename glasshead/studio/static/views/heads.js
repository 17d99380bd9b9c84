// The view "heads": a text with the arcs of some heads, the small maps of all heads, and one of them
// whole; and all of it beside another text or model.
import { tellingQuery, whereItLooks } from "../arcs.js";
import { TextPicker, firstText, progress, scaleChoice, toggle } from "../controls.js";
import { element, fill, turnTo } from "../dom.js";
import { grouped, largestAt, range, rowAt, within } from "../numbers.js";
import { render } from "../parts/html.js";
import { Selection } from "../selection.js";
import { Refused, newest } from "../source.js";
import { HeadArcs } from "./heads-arcs.js";
import { Compare } from "./heads-compare.js";
import { headsGrid } from "./heads-grid.js";
import { OneHead } from "./heads-one.js";
import { RoleBar } from "./heads-roles.js";
import { Why } from "./heads-why.js";

/** @import { Context, View } from "../app.js" */
/** @import { Look } from "../map.js" */
/** @import { Head } from "../selection.js" */
/** @import { Options, Progress, Tensor } from "../source.js" */
/** @import { Side } from "./heads-compare.js" */
/** @import { Summary } from "./heads-grid.js" */

// Heads of a layer whose small maps need much of the width.
const MANY = 16;

/** @typedef {Heads} HeadsView  What its parts share */

class Heads {
  /** @param {HTMLElement} frame @param {Context} context */
  constructor(frame, context) {
    this.frame = frame;
    this.context = context;
    this.shown = element("div");
    this.count = element("p.quiet.said");
    this.origin = element("p.quiet.origin");
    this.picker = context.source.offline ? null : this.textPicker();
    this.text = "";
    // What is shown: of the text, of that which it is compared with, or of their difference.
    this.summary = /** @type {Summary} */ (null);
    this.grid = element("div");
    this.maps = /** @type {Tensor} */ (null);
    this.one = /** @type {OneHead} */ (null);
    this.opened = /** @type {Head} */ (null);
    // The weights of the heads that are shown, by side and head.
    this.weights = /** @type {Map<string, Promise<Tensor>>} */ (new Map());
    this.newReading = newest(context.signal);
    this.newOpening = newest(context.signal);
    this.selection = new Selection(context.remember);
    this.compare = new Compare(this);
    this.settings = this.controls();
    this.roles = new RoleBar(this);
    this.arcs = new HeadArcs(this);
    this.why = new Why(this);
    this.selection.on((isPinned) => {
      this.one.turn();
      this.compare.mark();
      if (isPinned) this.explain();
    });
  }

  textPicker() {
    return new TextPicker(this.context, (place) => {
      this.context.remember({ ...place, layer: null, head: null, query: null, key: null });
      fill(this.origin);
      return this.read(place.text);
    });
  }

  async start() {
    const { compare, context, picker, settings } = this;
    // What changes a picture comes with it.
    settings.hidden = true;
    const asking = picker && [picker.element, compare.picker.element, compare.models];
    const top = element("div.top", asking, this.count, settings, this.origin);
    fill(this.frame, top, this.shown);
    fill(this.shown, progress(context.t("heads.opening")));
    const text = await firstText(context, this.origin);
    await Promise.all([picker?.show(text), this.read(text).catch(this.failed)]);
  }

  /** @param {Error} error */
  failed = (error) => {
    if (error instanceof Refused) {
      fill(this.shown);
      this.shown.style.minHeight = "";
      this.frame.dataset.drawn = "";
    }
    (this.picker ?? this.context).failed(error);
  };

  controls() {
    const { t, state, remember } = this.context;
    const change = (/** @type {Record<string, string | null>} */ changes) => {
      remember(changes);
      this.drawGrid();
      this.one.recolor();
    };
    return element(
      "div.controls",
      scaleChoice(t, this.look.logarithmic, (isLogarithmic) => {
        change({ scale: isLogarithmic ? "log" : "linear" });
      }),
      toggle(t("heads.sink"), state.sink !== "off", (on) => change({ sink: on ? null : "off" })),
    );
  }

  /** @returns {Look} */
  get look() {
    const { scale, sink } = this.context.state;
    const diverging = this.compare.side === "d";
    return { logarithmic: scale === "log", skip: sink === "off" && !diverging ? 1 : 0, diverging };
  }

  /** Have the model read a text, and that which it is compared with, and show the heads. */
  async read(/** @type {string} */ text) {
    const { compare, shown } = this;
    const { source, t } = this.context;
    delete this.frame.dataset.drawn;
    // A head of the text before is not waited for.
    this.newOpening();
    const signal = this.newReading();
    const bar = progress(t("heads.opening"));
    // Nothing moves under the pointer meanwhile.
    shown.style.minHeight = `${shown.offsetHeight}px`;
    fill(shown, bar);
    const onProgress = (/** @type {Progress} */ { stage, done, of }) => {
      const isCounted = of > 1;
      const places = { stage: t(stage), done: done + 1, of };
      bar.show(isCounted ? done / of : null, isCounted ? t("heads.pass", places) : t(stage));
    };
    const params = { text, model: compare.model || null };
    const first = await source.stream("heads/reading", params, { signal, onProgress });
    this.text = text;
    await compare.load(first, { signal, onProgress });
    await this.showSide({ signal, onProgress });
  }

  turn() {
    this.showSide({ signal: this.newReading() }).catch(this.failed);
  }

  async showSide(/** @type {Options} */ options) {
    const { compare, context, roles } = this;
    delete this.frame.dataset.drawn;
    await roles.load(options);
    const summary = roles.applied(compare.summary());
    this.maps = await context.source.numbers("heads/maps", compare.params(), options);
    this.summary = summary;
    this.weights.clear();
    this.layOut();
    const [layer, head] = [context.state.layer, context.state.head].map(Number);
    const { heads, first } = summary;
    await this.open(head < heads[layer] ? [layer, head] : first);
  }

  layOut() {
    const { arcs, compare, grid, roles, shown, summary } = this;
    const { t, picture } = this.context;
    this.tellCount();
    this.settings.hidden = false;
    this.opened = null;
    // What was answered is about another text.
    this.why.show();
    const one = new OneHead(this);
    this.one = one;
    roles.show();
    const scores = element(
      "section.roles.on-page",
      { "data-panel": "" },
      element("h2", t("heads.roles")),
      element("p.quiet.about", t("heads.roles_told")),
      one.roles,
    );
    const under = element(
      "p.quiet.under.on-page",
      t("heads.under"),
      " ",
      element("span.help", t("heads.keyboard")),
    );
    const told = element("p.quiet.on-page", t("heads.arcs_told"), " ", t("heads.maps_told"));
    const all = element("div.all", { "data-panel": "" }, roles.element, grid, under, told);
    const open = element("div.open", { "data-panel": "" }, compare.thumbs, one.element);
    const beside = element("div.beside", arcs.element, all, open, scores);
    // A grid of many heads has half of the width.
    beside.classList.toggle("many", Math.max(...summary.heads) > MANY);
    fill(shown, compare.bar, beside);
    shown.style.minHeight = "";
    this.drawGrid();
    // The text, all heads, and the open one, beside the other side.
    picture(() => {
      const { element: over } = arcs.arcs;
      const sentence = summary.differs ? undefined : whereItLooks(t, this.opened, arcs.arcs);
      return { parts: [compare.bar, beside], card: [over, one.map.element], sentence };
    });
  }

  /** Show the heads that are chosen by their roles, in the order that is chosen. */
  drawGrid() {
    render(headsGrid(this), this.grid);
  }

  /** Say why the open head gives the key its weight; a difference has no score. */
  explain() {
    if (!this.summary.differs) this.why.show();
  }

  // Open the head that wrote a part, at the token where it wrote it.
  /** @param {Head} head @param {number} query */
  follow(head, query) {
    this.context.remember({ query, key: null });
    return this.choose(head);
  }

  tellCount() {
    const { t } = this.context;
    const { tokens, of, layers } = this.summary;
    const counts = {
      tokens: grouped(tokens.length),
      of: grouped(of),
      layers: layers.length,
      heads: grouped(this.maps.shape[0]),
    };
    const cut = of > tokens.length && element("b", " ", t("heads.cut", counts));
    fill(this.count, t("heads.said", counts), cut);
  }

  /** Open a head that was chosen, and lead to it on a small screen. @param {Head} head */
  async choose(head) {
    await this.open(head).catch(this.context.failed);
    const { element: one } = this.one;
    if (turnTo(one)) return;
    if (one.getBoundingClientRect().top > innerHeight / 2) one.scrollIntoView();
  }

  async open(/** @type {Head} */ opened) {
    const { arcs, compare, context, one, selection, summary } = this;
    const { source, state, remember } = context;
    const { length } = summary.tokens;
    const [layer, head] = opened;
    delete this.frame.dataset.drawn;
    const signal = this.newOpening();
    const params = { ...compare.params(), layer, head };
    const [{ values }, along] = await Promise.all([
      this.weightsOf(compare.side, opened),
      source.numbers("heads/along", params, { signal }),
    ]);
    if (signal.aborted) return;
    const [entropy, distance, received] = range(3).map((at) => rowAt(along.values, at, length));
    const telling = tellingQuery(values, summary.tokens, summary.roles[layer][head]);
    const query = within(Number(state.query ?? telling) || 0, length);
    const row = rowAt(values, query, length);
    const key = within(Number(state.key ?? largestAt(row)) || 0, length);
    remember({ layer, head });
    // The arcs come first, as the map fits into what they leave of the screen.
    this.opened = opened;
    selection.begin({ query, key });
    await arcs.show(signal);
    await compare.showThumbs(opened);
    if (signal.aborted) return;
    one.show({ values, entropy, distance, received });
    compare.mark();
    this.explain();
    this.drawGrid();
    this.frame.dataset.drawn = "";
  }

  // The weights of a head on a side, which are asked for once while they are shown.
  /** @param {Side} side @param {Head} head */
  weightsOf(side, [layer, head]) {
    const name = `${side} ${layer}.${head}`;
    const { source, signal } = this.context;
    const params = { ...this.compare.params(side), layer, head };
    const asked = this.weights.get(name) ?? source.numbers("heads/weights", params, { signal });
    this.weights.set(name, asked);
    // What fails is asked for again.
    asked.catch(() => this.weights.delete(name));
    return asked;
  }

  forgetAllBut(/** @type {Head[]} */ heads) {
    const names = heads.map((head) => head.join("."));
    for (const name of this.weights.keys()) {
      if (!names.includes(name.split(" ")[1])) this.weights.delete(name);
    }
  }
}

/** @type {View} */
export const heads = (frame, context) => new Heads(frame, context).start();
