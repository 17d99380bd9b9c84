// The view "heads": the small maps of all heads over a text, and one of them whole.
import { choice, progress, textChoice, toggle } from "../controls.js";
import { element, fill } from "../dom.js";
import { count, within } from "../numbers.js";
import { Refused, newest } from "../source.js";
import { HeadsGrid } from "./heads-grid.js";
import { OneHead } from "./heads-one.js";

export const heads = {
  async open(frame, context) { await new Heads(frame, context).start(); },
};

class Heads {
  constructor(frame, context) {
    Object.assign(this, { frame, context, shown: element("div") });
    this.reading = newest(context.signal);
    this.opening = newest(context.signal);
  }

  async start() {
    const { about, source, state } = this.context;
    this.entry = source.offline ? null : textChoice(this.context, (text) => {
      this.context.remember({ text, layer: null, head: null, query: null, key: null });
      return this.read(text);
    });
    this.said = element("p.quiet.said");
    fill(this.frame, element("div.top", this.entry, this.said, this.controls()), this.shown);
    const text = state.text ?? (await source.send(about.samples.heads));
    await Promise.all([this.entry?.show(text), this.read(text).catch((error) => this.failed(error))]);
  }

  failed(error) {
    if (error instanceof Refused) {
      fill(this.shown);
      this.frame.dataset.drawn = "";
    }
    (this.entry ?? this.context).failed(error);
  }

  controls() {
    const { t, state, remember } = this.context;
    const look = (changes) => {
      remember(changes);
      this.grid?.show(this.look);
      if (this.one?.whole) this.one.recolor(this.look);
    };
    const scales = ["linear", "log"].map((name) => [name, t(`heads.${name}`)]);
    return element("div.controls",
      choice(t("heads.scale"), scales, state.scale ?? "linear", (scale) => look({ scale })),
      toggle(t("heads.sink"), state.sink !== "off", (on) => look({ sink: on ? null : "off" })));
  }

  get look() {
    const { scale, sink } = this.context.state;
    return { logarithmic: scale === "log", skip: sink === "off" ? 1 : 0 };
  }

  async read(text) {
    const { source, t, state } = this.context;
    delete this.frame.dataset.drawn;
    this.opening();
    const signal = this.reading();
    const bar = progress(t("heads.opening"));
    fill(this.shown, bar);
    const told = ({ stage, done, of }) => bar.show(of > 1 ? done / of : null, t(stage));
    this.summary = await source.stream("heads/reading", { text }, { signal, told });
    this.text = text;
    this.layOut(await source.numbers("heads/maps", { text }, { signal }));
    const [layer, head] = [state.layer, state.head].map(Number);
    await this.open(...(head < this.summary.heads[layer] ? [layer, head] : this.summary.first));
  }

  layOut(maps) {
    const { context: { t, picture, remember }, summary: { tokens, of, layers } } = this;
    const all = { tokens: count(tokens.length), of: count(of), layers: layers.length, heads: count(maps.shape[0]) };
    fill(this.said, t("heads.said", all), of > tokens.length ? element("b", " ", t("heads.cut", all)) : null);
    this.grid = new HeadsGrid(this.summary, maps, t, (layer, head) => this.chosen(layer, head));
    this.one = new OneHead(this.summary, t, (query, key) => remember({ query, key }));
    fill(this.shown, element("div.beside",
      element("div.all", this.grid.element, element("p.quiet", t("heads.under"))), this.one.element,
      element("section.roles",
        element("h2", t("heads.roles")), element("p.quiet", t("heads.roles_told")), this.one.roles)));
    this.grid.show(this.look);
    picture(() => this.figure());
  }

  async chosen(layer, head) {
    await this.open(layer, head).catch((error) => this.context.failed(error));
    if (this.one.element.getBoundingClientRect().top > innerHeight / 2) this.one.element.scrollIntoView();
  }

  async open(layer, head) {
    const { context: { source, state, remember }, text, summary: { tokens: { length } } } = this;
    delete this.frame.dataset.drawn;
    const signal = this.opening();
    const ask = (path) => source.numbers(`heads/${path}`, { text, layer, head }, { signal });
    const [{ values }, along] = await Promise.all(["weights", "along"].map(ask));
    if (signal.aborted) return;
    const [entropy, distance, received] = [0, 1, 2].map((at) => along.values.subarray(at * length, (at + 1) * length));
    const [query, key] = [state.query ?? length - 1, state.key ?? 0].map((at) => within(Number(at) || 0, length));
    remember({ layer, head, query, key });
    this.one.show(layer, head, { values, entropy, distance, received }, { query, key }, this.look);
    this.grid.mark(layer, head);
    this.frame.dataset.drawn = "";
  }

  figure() {
    const grid = this.grid.figure();
    const one = this.one.map.figure(this.one.title.firstChild.data, grid.width);
    const height = Math.max(grid.height, one.height);
    return { width: grid.width + one.width, height, marks: [...grid.marks, ...one.marks] };
  }
}
