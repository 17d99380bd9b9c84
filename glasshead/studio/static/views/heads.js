// The view "heads": a text with the arcs of some heads, the small maps of all heads, and one of them
// whole; and all of it beside another text or model.
import { tellingQuery, whereItLooks } from "../arcs.js";
import { TextPicker, firstText, progress, scaleChoice, toggle } from "../controls.js";
import { element, fill } from "../dom.js";
import { grouped, largestAt, range, rowAt, within } from "../numbers.js";
import { html, render } from "../parts/html.js";
import { Selection } from "../selection.js";
import { Refused, newest } from "../source.js";
import { HeadArcs } from "./heads-arcs.js";
import { Compare } from "./heads-compare.js";
import { HeadsGrid, isThere } from "./heads-grid.js";
import { OneHead } from "./heads-one.js";
import { RoleBar } from "./heads-roles.js";
import { Why } from "./heads-why.js";

/** @import { Context, View } from "../app.js" */
/** @import { Look } from "../map.js" */
/** @import { Options, Progress, Tensor } from "../source.js" */
/** @import { Side } from "./heads-compare.js" */
/** @import { Summary } from "./heads-grid.js" */
/** @import { Head } from "../selection.js" */

// Heads of a layer whose small maps need much of the width.
const MANY = 16;

class Heads {
  /** @param {HTMLElement} frame @param {Context} context */
  constructor(frame, context) {
    this.frame = frame;
    this.context = context;
    this.shown = element("div");
    this.count = element("p.quiet.said");
    this.origin = element("p.quiet.origin");
    this.picker = context.source.offline ? null : this.textPicker();
    // The name of the text that is shown.
    this.text = "";
    // What is shown: of the text, of that which it is compared with, or of their difference.
    /** @type {Summary} */
    this.summary = null;
    this.grid = element("div");
    /** @type {Tensor} */
    this.maps = null;
    /** @type {OneHead} */
    this.one = null;
    /** @type {Why} */
    this.why = null;
    /** @type {Head} */
    this.opened = null;
    // The weights of the heads that are shown, by side and head.
    /** @type {Map<string, Promise<Tensor>>} */
    this.weights = new Map();
    this.newReading = newest(context.signal);
    this.newOpening = newest(context.signal);
    const turned = () => this.showSide().catch((error) => this.failed(error));
    this.compare = new Compare(context, () => this.read(this.text), turned);
    this.settings = this.controls();
    this.roles = new RoleBar(
      context,
      () => this.drawGrid(),
      turned,
      (layer, head) => this.choose(layer, head),
    );
    this.selection = new Selection(context.remember);
    this.arcs = new HeadArcs(context, this.selection, () => {
      this.showArcs().catch((error) => this.failed(error));
    });
    this.selection.on((isPinned) => this.moved(isPinned));
  }

  textPicker() {
    return new TextPicker(this.context, (place) => {
      this.context.remember({ ...place, layer: null, head: null, query: null, key: null });
      fill(this.origin);
      return this.read(place.text);
    });
  }

  async start() {
    const { compare, context } = this;
    const comparing = context.source.offline ? null : [compare.picker.element, compare.models];
    // What changes a picture comes with it.
    this.settings.hidden = true;
    const asking = [this.picker?.element, comparing];
    const top = element("div.top", asking, this.count, this.settings, this.origin);
    fill(this.frame, top, this.shown);
    fill(this.shown, progress(context.t("heads.opening")));
    const text = await firstText(context, this.origin);
    const reading = this.read(text).catch((error) => this.failed(error));
    await Promise.all([this.picker?.show(text), reading]);
  }

  /** @param {Error} error */
  failed(error) {
    if (error instanceof Refused) {
      fill(this.shown);
      this.shown.style.minHeight = "";
      this.frame.dataset.drawn = "";
    }
    (this.picker ?? this.context).failed(error);
  }

  controls() {
    const { t, state, remember } = this.context;
    /** @param {Record<string, string | null>} changes */
    const change = (changes) => {
      remember(changes);
      this.drawGrid();
      if (this.one?.whole) this.one.recolor(this.look);
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

  /**
   * Have the model read a text, and that which it is compared with, and show the heads.
   * @param {string} text
   */
  async read(text) {
    const { context, compare } = this;
    const { source, t } = context;
    delete this.frame.dataset.drawn;
    // A head of the text before is not waited for.
    this.newOpening();
    const signal = this.newReading();
    const bar = progress(t("heads.opening"));
    // Nothing moves under the pointer meanwhile.
    this.shown.style.minHeight = `${this.shown.offsetHeight}px`;
    fill(this.shown, bar);
    /** @param {Progress} reached */
    const onProgress = ({ stage, done, of }) => {
      const isCounted = of > 1;
      const places = { stage: t(stage), done: done + 1, of };
      bar.show(isCounted ? done / of : null, isCounted ? t("heads.pass", places) : t(stage));
    };
    const params = { text, model: compare.model || null };
    const first = await source.stream("heads/reading", params, { signal, onProgress });
    await compare.load(text, first, { signal, onProgress });
    this.text = text;
    await this.showSide({ signal, onProgress });
  }

  /** Show the heads of the side that is chosen. @param {Options} options */
  async showSide({ signal, onProgress } = { signal: this.newReading() }) {
    const { compare, context, roles, text } = this;
    const { source, state } = context;
    delete this.frame.dataset.drawn;
    const model = compare.modelShown(text);
    await roles.load(model, { signal, onProgress });
    this.summary = roles.applied(compare.summary(), model);
    this.weights.clear();
    const asked = compare.params(text, compare.side);
    this.layOut(await source.numbers("heads/maps", asked, { signal }));
    const layer = Number(state.layer);
    const head = Number(state.head);
    const isAsked = head < this.summary.heads[layer];
    await this.open(...(isAsked ? /** @type {const} */ ([layer, head]) : this.summary.first));
  }

  /** @param {Tensor} maps */
  layOut(maps) {
    const { context, summary, compare, roles } = this;
    const { t, picture } = context;
    this.tellCount(maps.shape[0]);
    this.settings.hidden = false;
    this.maps = maps;
    this.opened = null;
    // The other models and texts are not those of the view "steps".
    const hasSteps = !context.source.offline && compare.side === "a" && !compare.model;
    // A difference has no score.
    const hasScores = compare.side !== "d";
    const go = this.follow.bind(this);
    this.why = hasScores ? new Why(context, summary.tokens, go) : null;
    this.one = new OneHead(summary, t, this.selection, hasSteps, this.why?.element);
    roles.show(summary, compare.modelShown(this.text));
    const scores = element(
      "section.roles.on-page",
      { "data-panel": "" },
      element("h2", t("heads.roles")),
      element("p.quiet", t("heads.roles_told")),
      this.one.roles,
    );
    const under = element("p.quiet.under.on-page", t("heads.under"));
    const howArcs = element("p.quiet.on-page", t("heads.arcs_told"));
    const all = element("div.all", { "data-panel": "" }, roles.element, this.grid, under, howArcs);
    const one = element("div.open", { "data-panel": "" }, compare.thumbs, this.one.element);
    const beside = element("div.beside", this.arcs.element, all, one, scores);
    // A grid of many heads has half of the width.
    beside.classList.toggle("many", Math.max(...summary.heads) > MANY);
    fill(this.shown, compare.bar, beside);
    this.shown.style.minHeight = "";
    this.drawGrid();
    picture(() => this.picture());
  }

  /** Show the heads that are chosen by their roles, in the order that is chosen. */
  drawGrid() {
    const { summary, maps, look, opened, roles, grid } = this;
    const { t } = this.context;
    if (!maps) return;
    const some = roles.arrangement();
    /** @param {number} layer @param {number} head */
    const chosen = (layer, head) => this.choose(layer, head);
    const props = { t, summary, maps, look, some, open: opened, chosen };
    render(html`<${HeadsGrid} ...${props} />`, grid);
  }

  /** Show another query or key. @param {boolean} isPinned */
  moved(isPinned) {
    this.one.turn();
    this.compare.mark(this.selection.query, this.selection.key);
    if (isPinned) this.explain();
  }

  /** Say why the open head gives the key its weight. */
  explain() {
    const { compare, opened, text, why } = this;
    const { query, key } = this.selection;
    const [layer, head] = opened;
    const asked = { ...compare.params(text, compare.side), layer, head, query, key };
    why?.show(asked).catch((error) => this.context.failed(error));
  }

  /**
   * Open the head that wrote a part, at the token where it wrote it.
   * @param {number} layer @param {number} head @param {number} query
   */
  async follow(layer, head, query) {
    this.context.remember({ query, key: null });
    await this.choose(layer, head);
  }

  /** @param {number} heads */
  tellCount(heads) {
    const { t } = this.context;
    const { tokens, of, layers } = this.summary;
    const counts = {
      tokens: grouped(tokens.length),
      of: grouped(of),
      layers: layers.length,
      heads: grouped(heads),
    };
    const cut = of > tokens.length ? element("b", " ", t("heads.cut", counts)) : null;
    fill(this.count, t("heads.said", counts), cut);
  }

  /**
   * Open a head that was chosen in the grid, and scroll to it on a small screen.
   * @param {number} layer @param {number} head
   */
  async choose(layer, head) {
    await this.open(layer, head).catch((error) => this.context.failed(error));
    const { element: one } = this.one;
    if (one.getBoundingClientRect().top > innerHeight / 2) one.scrollIntoView();
  }

  /** @param {number} layer @param {number} head */
  async open(layer, head) {
    const { compare, context, summary, text } = this;
    const { source, state, remember } = context;
    const { length } = summary.tokens;
    delete this.frame.dataset.drawn;
    const signal = this.newOpening();
    const params = { ...compare.params(text, compare.side), layer, head };
    const [weights, along] = await Promise.all([
      this.weightsOf(compare.side, [layer, head]),
      source.numbers("heads/along", params, { signal }),
    ]);
    if (signal.aborted) return;
    const [entropy, distance, received] = range(3).map((at) => {
      return rowAt(along.values, at, length);
    });
    const telling = tellingQuery(weights.values, length);
    const query = within(Number(state.query ?? telling) || 0, length);
    const row = rowAt(weights.values, query, length);
    const key = within(Number(state.key ?? largestAt(row)) || 0, length);
    remember({ layer, head });
    const whole = { values: weights.values, entropy, distance, received };
    // The arcs come first, as the map fits into what they leave of the screen.
    this.opened = /** @type {Head} */ ([layer, head]);
    this.selection.begin({ query, key });
    await this.showArcs(signal);
    await compare.showThumbs(layer, head, (side) => {
      return this.weightsOf(side, [layer, head]);
    });
    if (signal.aborted) return;
    this.one.show(layer, head, whole, this.look);
    compare.mark(query, key);
    this.explain();
    this.drawGrid();
    this.frame.dataset.drawn = "";
  }

  /**
   * The weights of a head on a side, which are asked for once while they are shown.
   * @param {Side} side @param {Head} head
   */
  weightsOf(side, [layer, head]) {
    const name = `${side} ${layer}.${head}`;
    const { source, signal } = this.context;
    const params = { ...this.compare.params(this.text, side), layer, head };
    const asked = this.weights.get(name) ?? source.numbers("heads/weights", params, { signal });
    this.weights.set(name, asked);
    // What fails is asked for again.
    asked.catch(() => this.weights.delete(name));
    return asked;
  }

  /**
   * Show the arcs of the open head and of those that are kept; of a difference, those of both texts.
   * @param {AbortSignal} signal
   */
  async showArcs(signal = this.context.signal) {
    const { arcs, compare, opened, summary } = this;
    const { t } = this.context;
    const isBoth = compare.side === "d";
    /** @param {number} layer @param {number} head */
    const isKnown = (layer, head) => isThere(summary, layer, head);
    const heads = isBoth ? [opened, opened] : arcs.shown(opened, isKnown);
    const asked = heads.map((head, at) => {
      const side = isBoth ? /** @type {const} */ (["a", "b"])[at] : compare.side;
      return this.weightsOf(side, head);
    });
    const all = await Promise.all(asked);
    if (signal.aborted || this.opened !== opened) return;
    // Those of other heads are not kept in memory.
    const names = heads.map((head) => head.join("."));
    for (const name of this.weights.keys()) {
      if (!names.includes(name.split(" ")[1])) this.weights.delete(name);
    }
    const weights = all.map(({ values }, at) => {
      const [layer, head] = heads[at];
      const name = t("heads.named", { layer, head });
      return { name: isBoth ? `${"AB"[at]} · ${name}` : name, values };
    });
    arcs.show(summary.running, heads, weights, isBoth ? null : opened, this.selection.pinned.query);
  }

  /** The text, all heads, and the open one, beside the other side. */
  picture() {
    const { arcs, compare, context, look, one, opened } = this;
    const { element: over } = arcs.arcs;
    const sentence = look.diverging ? undefined : whereItLooks(context.t, opened, arcs.arcs);
    const beside = this.shown.lastElementChild;
    return { parts: [compare.bar, beside], card: [over, one.map.element], sentence };
  }
}

/** @type {View} */
export const heads = (frame, context) => new Heads(frame, context).start();
