// The view "atlas": the attention of a long text as a map, from the whole of it to single weights.
import { ramp, scale } from "../colors.js";
import { choice, menu, progress, slider, textChoice } from "../controls.js";
import { button, element, fill, unique } from "../dom.js";
import { count, weight } from "../numbers.js";
import { newest } from "../source.js";
import { atlasFigure } from "./atlas-draw.js";
import { AtlasMap } from "./atlas-map.js";
import { Names, Passage } from "./atlas-text.js";

const NOT_YET = 409;
const BUSY = 429;
const AGAIN_AFTER = 1000;
const HEADINGS = { queries: ["atlas.query", "atlas.queries"], keys: ["atlas.key", "atlas.keys_at"] };
// The text follows the cross-hair some times a second; it is laid out anew, which a moving map has no time for.
const TOLD_EACH = 50;

export const atlas = {
  async open(frame, context) { await new Atlas(frame, context).start(); },
};

class Atlas {
  constructor(frame, context) {
    const { state, source, t, about } = context;
    Object.assign(this, { frame, context, state, source, t, isStored: about.subject.kind === "weights" });
    this.isLogarithmic = state.scale !== "linear";
    this.top = Number(state.top) || null;
    this.opening = newest(context.signal);
  }

  async start() {
    const { state, source, context } = this;
    const entry = this.isStored || source.offline ? null : textChoice(context, (text) => {
      context.remember({ text, y: null, x: null, zoom: null, i: null, j: null });
      this.text = text;
      return this.read();
    });
    this.body = element("div.atlas-body");
    fill(this.frame, entry, this.body);
    this.text = entry && (state.text ?? await source.send(context.about.samples.atlas));
    entry?.show(this.text);
    // A text that is refused may be changed: where one is chosen, it is said there.
    await this.read().catch((error) => (entry ?? context).failed(error));
  }

  async ask(how, path, params, options) {
    for (;;) {
      try {
        return await this.source[how](`atlas/${path}`, params, options);
      } catch (error) { if (error.status !== BUSY) throw error; }
      await new Promise((over) => { setTimeout(over, AGAIN_AFTER); });
    }
  }

  work(frame, label, path, params, signal) {
    const bar = progress(label);
    fill(frame, bar);
    bar.show(null);
    const told = ({ stage, done, of }) => bar.show(done ? done / of : null, this.t(stage));
    return this.ask("stream", path, params, { signal, told }).finally(() => bar.remove());
  }

  async read() {
    const { text, t, context: { signal, failed } } = this;
    delete this.frame.dataset.drawn;
    this.reading = await this.work(this.body, t("atlas.reading"), "read", { text }, this.opening());
    const ask = (start, stop) => this.ask("json", "tokens", { text, start, stop }, { signal });
    this.names = new Names({ ...this.reading, ask, came: () => this.map?.draw(), failed });
    this.choose(this.state.layer, this.state.head);
    this.layOut();
    await this.openHead();
  }

  layOut() {
    const { t, reading: { length, of, trouble } } = this;
    const note = length < of ? t("atlas.part", { length: count(length), of: count(of) }) : trouble;
    const zoom = (sign, title, factor) =>
      Object.assign(button(sign, () => this.map.zoom(factor)), { ariaLabel: title, title });
    const scales = ["log", "linear"].map((each) => [each, t(`atlas.${each}`)]);
    this.menus = element("div.controls", this.headMenus());
    this.topFrame = element("div");
    this.help = element("p.quiet.help", { id: unique("help"), title: t("atlas.keys") }, t("atlas.keys"));
    this.mapFrame = element("div.canvas");
    this.bar = element("div.surveying");
    this.readout = element("output");
    this.legend = element("div.legend");
    this.passages = { queries: new Passage("queries"), keys: new Passage("keys") };
    fill(this.body,
      element("div.controls", this.menus,
        choice(t("atlas.scale"), scales, this.isLogarithmic ? "log" : "linear", (value) => {
          this.isLogarithmic = value === "log";
          this.top = null;
          this.rescale();
        }),
        this.topFrame,
        element("div.zooming", { role: "group", "aria-label": t("atlas.zoom") },
          zoom("+", t("atlas.closer"), 2), zoom("−", t("atlas.further"), 0.5),
          zoom(t("atlas.all"), t("atlas.whole"), 0))),
      note && element("p.quiet.part", note),
      element("div.layout", element("div.map", this.mapFrame, this.bar), this.passages.keys.frame,
        element("div.told", this.readout, this.legend), this.passages.queries.frame),
      this.help);
  }

  choose(layer, head) {
    const { heads } = this.reading;
    this.layer = Number(layer in heads ? layer : Object.keys(heads)[0]);
    this.head = heads[this.layer].includes(Number(head)) ? Number(head) : heads[this.layer][0];
  }

  headMenus() {
    const { t, isStored, layer, head, reading: { heads, layers } } = this;
    const change = (which, ...chosen) => {
      this.choose(...chosen);
      fill(this.menus, this.headMenus());
      this.menus.querySelectorAll("select")[which].focus();
      this.openHead().catch(this.context.failed);
    };
    const rows = Object.keys(heads).map((at) => [at, isStored ? at : `${at} · ${layers[at].name}`]);
    return [
      menu(t(isStored ? "atlas.matrix" : "atlas.layer"), rows, layer, (to) => change(0, to, head)),
      menu(t("atlas.head"), heads[layer].map((each) => [each, each]), head, (to) => change(1, layer, to)),
    ];
  }

  async openHead() {
    const { t, state, names, text, layer, head, context: { failed, picture } } = this;
    delete this.frame.dataset.drawn;
    const signal = this.opening();
    const which = { text, layer, head };
    const told = this.told = await this.ask("json", "map", which, { signal });
    const { queries, keys } = told;
    const map = this.map = new AtlasMap({
      frame: this.mapFrame, told, signal, describedby: this.help.id,
      label: t("atlas.map", { queries: count(queries), keys: count(keys) }),
      // Stored tokens are those of the keys.
      names: { keys: names, queries: queries === keys ? names : new Names({}) },
      ask: (place, leaving) => this.ask("numbers", "tile", { ...which, ...place }, { signal: leaving }),
      failed: (error) => {
        if (error.status !== NOT_YET) failed(error);
        else if (told.ready) this.survey(which, signal); // a server that was started anew has no overview any more
      },
      moved: () => { delete this.frame.dataset.drawn; },
      drawn: (whole) => { this.isWhole = whole; this.telling ??= setTimeout(() => this.tell(), TOLD_EACH); },
    });
    const { y, x, zoom, i = map.cross.queries, j = map.cross.keys } = state;
    map.place.go(Number(y) || 0, Number(x) || 0, zoom ? 2 ** zoom : 0);
    map.point(Number(i) || 0, Number(j) || 0);
    this.now = null;
    this.rescale();
    picture(() => this.figure());
    if (!told.ready) await this.survey(which, signal);
  }

  async survey(which, signal) {
    const { told, map, t } = this;
    told.ready = false;
    try {
      Object.assign(told, await this.work(this.bar, t("atlas.surveying"), "overview", which, signal), { ready: true });
      map.changed();
      this.rescale();
    } catch (error) { this.context.failed(error); }
  }

  rescale() {
    const { isLogarithmic, told: { tops, most } } = this;
    const usual = isLogarithmic ? 1 : tops.findLast((each) => each >= (most ?? 1));
    const place = Math.max(0, tops.indexOf(this.top ?? usual));
    const moved = (at) => { this.top = tops[at]; this.color(this.top); };
    fill(this.topFrame, slider(this.t("atlas.top"), tops.length, place, (at) => tops[at], moved));
    this.color(tops[place]);
  }

  color(top) {
    const { map, isLogarithmic: logarithmic } = this;
    const floor = logarithmic ? Math.min(this.told.floor, top / 100) : 0;
    map.scale = { floor, top, place: scale({ top, floor: floor / top, logarithmic }) };
    const name = this.t("atlas.legend");
    const colors = element("span.ramp", { role: "img", "aria-label": name });
    colors.style.background = `linear-gradient(to right, ${ramp().join()})`;
    const ends = [floor, logarithmic ? Math.sqrt(floor * top) : top / 2, top];
    fill(this.legend, element("span", name), colors,
      element("span.ends", ends.map((each) => element("span", weight(each)))));
    map.moved();
    map.draw();
  }

  tell() {
    this.telling = null;
    const { t, map, told } = this;
    if (map.signal.aborted) return;
    this.remember();
    const seen = map.seen();
    const { value, level, queries, keys } = seen;
    const now = JSON.stringify(seen);
    if (now !== this.now) {
      const [rows, columns] = [queries[1] - queries[0], keys[1] - keys[0]];
      const meaning = rows * columns === 1
        ? t("atlas.single", { query: count(queries[0]), key: count(keys[0]) })
        : t("atlas.mean", { queries: count(rows), keys: count(columns) });
      fill(this.readout, element("b", value === undefined ? "…" : weight(value)), element("span", meaning));
      Object.assign(this.readout.dataset, { value: value ?? "", level });
      const there = Object.entries(this.passages).map(([side, passage]) => {
        const [start, stop] = seen[side];
        const title = t(HEADINGS[side][Number(stop - start > 1)], { from: count(start), to: count(stop - 1) });
        return passage.show(title, map.names[side], seen[side], told[side]);
      });
      this.now = there.every(Boolean) ? now : null;
    }
    if (this.isWhole && told.ready && this.now && value !== undefined) this.frame.dataset.drawn = "";
  }

  figure() {
    const { t, map, layer, head, passages: { queries, keys } } = this;
    const which = t(this.isStored ? "atlas.whose_stored" : "atlas.whose", { layer, head });
    return atlasFigure(map, {
      title: [this.context.about.subject.name, which].filter(Boolean).join(" · "),
      seen: `${queries.head.textContent}, ${keys.head.textContent}: ${weight(map.seen().value ?? NaN)}`,
      legend: t("atlas.legend"),
    });
  }

  remember() {
    const { text, layer, head, isLogarithmic, top, map: { place, cross } } = this;
    const rounded = (value, digits) => (place.isWhole ? null : Number(value.toFixed(digits)));
    this.context.remember({
      text, layer, head, y: rounded(place.y, 2), x: rounded(place.x, 2), zoom: rounded(Math.log2(place.zoom), 4),
      i: cross.queries, j: cross.keys, scale: isLogarithmic ? null : "linear", top,
    });
  }
}
