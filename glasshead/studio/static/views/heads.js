// The view "heads": the small maps of all heads over a text, and one of them whole.
import { TextPicker, choice, firstText, progress, toggle } from "../controls.js";
import { element, fill } from "../dom.js";
import { colorBar } from "../figure.js";
import { grouped, range, within } from "../numbers.js";
import { Refused, newest } from "../source.js";
import { HeadsGrid } from "./heads-grid.js";
import { OneHead } from "./heads-one.js";

/**
 * @import { Context } from "../app.js"
 * @import { Look } from "../map.js"
 * @import { Progress, Tensor } from "../source.js"
 * @import { Summary } from "./heads-grid.js"
 */

class Heads {
  /**
   * @param {HTMLElement} frame
   * @param {Context} context
   */
  constructor(frame, context) {
    this.frame = frame;
    this.context = context;
    this.shown = element("div");
    this.count = element("p.quiet.said");
    this.origin = element("p.quiet.origin");
    this.picker = context.source.offline ? null : this.textPicker();
    // The name of the text that is shown.
    this.text = "";
    /** @type {Summary} */
    this.summary = null;
    /** @type {HeadsGrid} */
    this.grid = null;
    /** @type {OneHead} */
    this.one = null;
    this.newReading = newest(context.signal);
    this.newOpening = newest(context.signal);
  }

  textPicker() {
    return new TextPicker(this.context, (place) => {
      this.context.remember({ ...place, layer: null, head: null, query: null, key: null });
      fill(this.origin);
      return this.read(place.text);
    });
  }

  async start() {
    const top = element("div.top", this.picker?.element, this.count, this.controls());
    fill(this.frame, top, this.origin, this.shown);
    fill(this.shown, progress(this.context.t("heads.opening")));
    const text = await firstText(this.context, this.origin);
    const reading = this.read(text).catch((error) => this.failed(error));
    await Promise.all([this.picker?.show(text), reading]);
  }

  /** @param {Error} error */
  failed(error) {
    if (error instanceof Refused) {
      fill(this.shown);
      this.frame.dataset.drawn = "";
    }
    (this.picker ?? this.context).failed(error);
  }

  controls() {
    const { t, state, remember } = this.context;
    /** @param {Record<string, string | null>} changes */
    const change = (changes) => {
      remember(changes);
      this.grid?.show(this.look);
      if (this.one?.whole) this.one.recolor(this.look);
    };
    /** @type {[string, string][]} */
    const scales = [
      ["linear", t("heads.linear")],
      ["log", t("heads.log")],
    ];
    return element(
      "div.controls",
      choice(t("heads.scale"), scales, state.scale ?? "linear", (scale) => change({ scale })),
      toggle(t("heads.sink"), state.sink !== "off", (on) => change({ sink: on ? null : "off" })),
    );
  }

  /** @returns {Look} */
  get look() {
    const { scale, sink } = this.context.state;
    return { logarithmic: scale === "log", skip: sink === "off" ? 1 : 0 };
  }

  /**
   * Have the model read a text, and show its heads.
   * @param {string} text
   */
  async read(text) {
    const { source, t, state } = this.context;
    delete this.frame.dataset.drawn;
    // A head of the text before is not waited for.
    this.newOpening();
    const signal = this.newReading();
    const bar = progress(t("heads.opening"));
    fill(this.shown, bar);
    /** @param {Progress} reached */
    const onProgress = ({ stage, done, of }) => bar.show(of > 1 ? done / of : null, t(stage));
    this.summary = await source.stream("heads/reading", { text }, { signal, onProgress });
    this.text = text;
    this.layOut(await source.numbers("heads/maps", { text }, { signal }));
    const layer = Number(state.layer);
    const head = Number(state.head);
    const isThere = head < this.summary.heads[layer];
    await this.open(...(isThere ? /** @type {const} */ ([layer, head]) : this.summary.first));
  }

  /** @param {Tensor} maps */
  layOut(maps) {
    const { context, summary } = this;
    const { t, picture, remember } = context;
    this.tellCount(maps.shape[0]);
    this.grid = new HeadsGrid(summary, maps, t, (layer, head) => this.choose(layer, head));
    const isOnline = !context.source.offline;
    this.one = new OneHead(summary, t, (query, key) => remember({ query, key }), isOnline);
    const roles = element(
      "section.roles",
      element("h2", t("heads.roles")),
      element("p.quiet", t("heads.roles_told")),
      this.one.roles,
    );
    const all = element("div.all", this.grid.element, element("p.quiet", t("heads.under")));
    fill(this.shown, element("div.beside", all, this.one.element, roles));
    this.grid.show(this.look);
    picture(() => this.figure());
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
   * @param {number} layer
   * @param {number} head
   */
  async choose(layer, head) {
    await this.open(layer, head).catch((error) => this.context.failed(error));
    const { element: one } = this.one;
    if (one.getBoundingClientRect().top > innerHeight / 2) one.scrollIntoView();
  }

  /**
   * @param {number} layer
   * @param {number} head
   */
  async open(layer, head) {
    const { context, text, summary } = this;
    const { source, state, remember } = context;
    const { length } = summary.tokens;
    delete this.frame.dataset.drawn;
    const signal = this.newOpening();
    const params = { text, layer, head };
    const [weights, along] = await Promise.all([
      source.numbers("heads/weights", params, { signal }),
      source.numbers("heads/along", params, { signal }),
    ]);
    if (signal.aborted) return;
    const [entropy, distance, received] = range(3).map((at) => {
      return along.values.subarray(at * length, (at + 1) * length);
    });
    const query = within(Number(state.query ?? length - 1) || 0, length);
    const row = weights.values.subarray(query * length, (query + 1) * length);
    const key = within(Number(state.key ?? row.indexOf(Math.max(...row))) || 0, length);
    remember({ layer, head });
    const whole = { values: weights.values, entropy, distance, received };
    this.one.show(layer, head, whole, { query, key }, this.look);
    this.grid.mark(layer, head);
    this.frame.dataset.drawn = "";
  }

  figure() {
    const grid = this.grid.figure();
    const one = this.one.map.figure(this.one.name, grid.width);
    const [begin, end] = this.one.ends;
    const height = Math.max(grid.height, one.height) + 24;
    const bar = colorBar(grid.width + 20, height - 10, "", end, begin);
    const note = { y: height - 10, size: 12, fill: "quiet", text: this.context.t("shell.hidden") };
    const marks = [...grid.marks, ...one.marks, ...bar.marks];
    marks.push({ ...note, x: grid.width + 40 + bar.width });
    const width = grid.width + Math.max(one.width, bar.width + 260);
    return { width, height, marks };
  }
}

export const heads = {
  /**
   * @param {HTMLElement} frame
   * @param {Context} context
   */
  async open(frame, context) {
    await new Heads(frame, context).start();
  },
};
