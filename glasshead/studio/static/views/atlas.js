// The view "atlas": the attention of a long text as a map, from the whole of it to single weights.
import { ramp, scale } from "../colors.js";
import {
  TextPicker,
  firstText,
  menu,
  progress,
  scaleChoice,
  slider,
  zoomButtons,
} from "../controls.js";
import { element, fill, unique } from "../dom.js";
import { grouped, largestAt, range, weight } from "../numbers.js";
import { Selection } from "../selection.js";
import { Refused, newest } from "../source.js";
import { AtlasMap } from "./atlas-map.js";
import { Tokens, passage } from "./atlas-text.js";

/** @import { Context, View } from "../app.js" */
/** @import { Options, Parameters, Progress } from "../source.js" */
/** @import { Heard, Seen, Side } from "./atlas-map.js" */
/** @import { MapInfo } from "../parts/viewport.js" */

/**
 * What the studio says of a text, or of stored weights.
 * @typedef {object} Reading
 * @property {number | null} length  Tokens that are known
 * @property {number | null} of  Tokens of the whole text
 * @property {boolean} glued  Whether tokens contain their own spaces
 * @property {{name: string, heads: number}[]} layers
 * @property {Record<string, number[]>} heads  Heads that are to be had, by layer
 * @property {string | null} trouble  Why stored tokens could not be read
 */

/** A head of a text. @typedef {{text: string | null, layer: number, head: number}} Which */

const NOT_YET = 409;
const BUSY = 429;
const AGAIN_AFTER = 1000;
// Names of the titles of a passage: of one token, and of several.
/** @type {Record<Side, [string, string]>} */
const HEADINGS = {
  queries: ["atlas.query", "atlas.queries"],
  keys: ["atlas.key", "atlas.keys_at"],
};
// The text follows the cross-hair some times a second; it is laid out again, which a moving map has
// no time for.
const TELL_EACH = 50;

class Atlas {
  /** @param {HTMLElement} frame @param {Context} context */
  constructor(frame, context) {
    const { state, source, about } = context;
    this.frame = frame;
    this.context = context;
    this.t = context.t;
    this.source = source;
    this.isStored = about.subject.kind === "weights";
    this.isLogarithmic = state.scale !== "linear";
    // The weight of the last color, where one was chosen.
    this.top = Number(state.top) || null;
    this.newOpening = newest(context.signal);
    this.selection = new Selection(() => this.remember());
    this.selection.on(() => {
      this.map.heard.moved();
      this.map.draw();
    });
    this.text = /** @type {string | null} */ (null);
    this.layer = 0;
    this.head = 0;
    this.reading = /** @type {Reading} */ (null);
    this.tokens = /** @type {Tokens} */ (null);
    this.info = /** @type {MapInfo} */ (null);
    this.map = /** @type {AtlasMap} */ (null);
    // Whether all tiles that are seen were there, and what was shown last, as JSON.
    this.isWhole = false;
    this.told = /** @type {string | null} */ (null);
    this.telling = /** @type {number | null} */ (null);
    this.origin = element("p.quiet.origin");
    this.body = element("div.atlas-body");
    this.menus = element("div.controls");
    this.topFrame = element("div");
    this.mapFrame = element("div.canvas");
    this.bar = element("div.surveying");
    this.readout = element("output");
    // A presentation, which has no menus, names the head.
    this.which = element("p.which");
    this.legend = element("div.legend");
    const help = this.t("atlas.keys");
    this.help = element("p.quiet.help", { id: unique("help"), title: help }, help);
    this.passages = { queries: passage("queries"), keys: passage("keys") };
  }

  async start() {
    const { context, source } = this;
    const picker = this.isStored || source.offline ? null : this.textPicker();
    fill(this.frame, picker && element("div.top", picker.element, this.origin), this.body);
    if (!this.isStored) this.text = await firstText(context, this.origin);
    picker?.show(this.text);
    // A text that is refused may be changed: where one is chosen, it is said there.
    await this.read().catch((error) => {
      if (error instanceof Refused) this.frame.dataset.drawn = "";
      (picker ?? context).failed(error);
    });
  }

  textPicker() {
    return new TextPicker(this.context, (place) => {
      this.context.remember({ ...place, y: null, x: null, zoom: null, i: null, j: null });
      fill(this.origin);
      this.text = place.text;
      return this.read();
    });
  }

  /**
   * Ask the studio, and again while it is busy with other texts.
   * @param {"json" | "numbers" | "stream"} kind @param {string} path @param {Parameters} params
   * @param {Options} options @returns {Promise<any>}
   */
  async ask(kind, path, params, options) {
    for (;;) {
      try {
        return await this.source[kind](`atlas/${path}`, params, options);
      } catch (error) {
        if (error.status !== BUSY) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, AGAIN_AFTER));
    }
  }

  /**
   * Have long work done, with a bar of its progress in a frame.
   * @param {HTMLElement} frame @param {string} label @param {string} path
   * @param {Parameters} params @param {AbortSignal} signal
   */
  async work(frame, label, path, params, signal) {
    const bar = progress(label);
    fill(frame, bar);
    bar.show(null);
    /** @param {Progress} reached */
    const onProgress = ({ stage, done, of }) => bar.show(done ? done / of : null, this.t(stage));
    try {
      return await this.ask("stream", path, params, { signal, onProgress });
    } finally {
      bar.remove();
    }
  }

  async read() {
    const { text, t, context } = this;
    const { signal, failed, state } = context;
    delete this.frame.dataset.drawn;
    const label = t("atlas.reading");
    this.reading = await this.work(this.body, label, "read", { text }, this.newOpening());
    const { length, glued } = this.reading;
    /** @param {number} start @param {number} stop */
    const ask = (start, stop) => this.ask("json", "tokens", { text, start, stop }, { signal });
    this.tokens = new Tokens({ length, glued, ask, came: () => this.map?.draw(), failed });
    this.choose(state.layer, state.head);
    this.layOut();
    await this.openHead();
  }

  // Choose a head, or the first one where there is none of that name.
  /** @param {string | number} layer @param {string | number} head */
  choose(layer, head) {
    const { heads } = this.reading;
    this.layer = Number(layer in heads ? layer : Object.keys(heads)[0]);
    const [first] = heads[this.layer];
    this.head = heads[this.layer].includes(Number(head)) ? Number(head) : first;
  }

  layOut() {
    const { t, reading, passages } = this;
    const { length, of, trouble } = reading;
    const isCut = length < of;
    const note = isCut ? t("atlas.part", { length: grouped(length), of: grouped(of) }) : trouble;
    fill(this.menus, this.headMenus());
    fill(
      this.body,
      element(
        "div.controls",
        this.menus,
        scaleChoice(t, this.isLogarithmic, (isLogarithmic) => {
          this.isLogarithmic = isLogarithmic;
          this.top = null;
          this.rescale();
        }),
        this.topFrame,
        zoomButtons(t, (factor) => this.map.zoom(factor)),
      ),
      note && element("p.quiet.part", note),
      element(
        "div.layout",
        { "data-panel": "" },
        element("div.map", this.mapFrame, this.bar),
        passages.keys,
        element("div.told", this.which, this.readout, this.legend),
        passages.queries,
      ),
      this.help,
    );
  }

  headMenus() {
    const { t, isStored, layer, head, reading } = this;
    const { heads, layers } = reading;
    const rows = Object.keys(heads).map((at) => {
      return [at, isStored ? at : `${at} · ${layers[Number(at)].name}`];
    });
    return [
      menu(t(isStored ? "atlas.matrix" : "atlas.layer"), rows, layer, (to) => {
        this.change(0, to, head);
      }),
      menu(t("atlas.head"), heads[layer], head, (to) => this.change(1, layer, to)),
    ];
  }

  // Open another head, and leave the focus on the one of the menus that it was chosen in.
  /** @param {number} which @param {string | number} layer @param {string | number} head */
  change(which, layer, head) {
    this.choose(layer, head);
    fill(this.menus, this.headMenus());
    this.menus.querySelectorAll("select")[which].focus();
    this.openHead().catch(this.context.failed);
  }

  async openHead() {
    const { text, layer, head, context } = this;
    delete this.frame.dataset.drawn;
    const signal = this.newOpening();
    const which = { text, layer, head };
    fill(this.which, context.t("heads.named", which));
    this.info = await this.ask("json", "map", which, { signal });
    this.map = this.newMap(which, signal);
    this.goWhere(context.state);
    this.told = null;
    this.rescale();
    context.picture(() => this.picture());
    if (!this.info.ready) await this.survey(which, signal);
  }

  /** @param {Which} which @param {AbortSignal} signal */
  newMap(which, signal) {
    const { t, tokens, info, context, selection } = this;
    const { queries, keys } = info;
    const canvas = element("canvas", {
      tabindex: 0,
      role: "application",
      "aria-label": t("atlas.map", { queries: grouped(queries), keys: grouped(keys) }),
      "aria-describedby": this.help.id,
    });
    fill(this.mapFrame, canvas);
    // Stored tokens are those of the keys.
    const sides = { keys: tokens, queries: queries === keys ? tokens : new Tokens({}) };
    const titles = { queries: t("heads.query"), keys: t("heads.key") };
    /** @type {Heard} */
    const heard = {
      ask: (place, leaving) => {
        return this.ask("numbers", "tile", { ...which, ...place }, { signal: leaving });
      },
      failed: (error) => {
        if (error.status !== NOT_YET) context.failed(error);
        // A server that was started again has no overview any more.
        else if (info.ready) this.survey(which, signal);
      },
      moved: () => {
        delete this.frame.dataset.drawn;
      },
      drawn: (isWhole) => {
        this.isWhole = isWhole;
        if (isWhole) this.aim();
        this.telling ??= setTimeout(() => this.tell(), TELL_EACH);
      },
    };
    return new AtlasMap(canvas, info, sides, titles, selection, heard, signal);
  }

  // Go where the address says: to the query `y` and the key `x`, with the cross-hair at `i`, `j`.
  goWhere(/** @type {Record<string, string>} */ { y, x, zoom, i: query, j: key }) {
    const { map, info } = this;
    map.view.go(Number(y) || 0, Number(x) || 0, zoom ? 2 ** Number(zoom) : 0);
    map.point(Number(query ?? info.queries / 2) || 0, Number(key ?? info.keys / 4) || 0);
    this.isAimed = key !== undefined;
  }

  /** Where the address names no key, go to the one that the query gives most, once it is known. */
  aim() {
    const { map, info } = this;
    if (this.isAimed || !info.ready) return;
    this.isAimed = true;
    const { level, block } = map.view;
    const query = map.cross.queries;
    const row = range(Math.ceil(info.keys / block)).map((at) => {
      return map.tiles.value(level, Math.floor(query / block), at) || 0;
    });
    map.point(query, block * largestAt(row));
  }

  // Have the overview computed, from which the coarse tiles come.
  /** @param {Which} which @param {AbortSignal} signal */
  async survey(which, signal) {
    const { info, map } = this;
    info.ready = false;
    try {
      const label = this.t("atlas.surveying");
      const overview = await this.work(this.bar, label, "overview", which, signal);
      Object.assign(info, overview, { ready: true });
      map.changed();
      this.rescale();
    } catch (error) {
      this.context.failed(error);
    }
  }

  /** Offer the ends of the scale, and color by one of them. */
  rescale() {
    const { isLogarithmic } = this;
    const { tops, most } = this.info;
    const usual = isLogarithmic ? 1 : tops.findLast((each) => each >= (most ?? 1));
    const place = Math.max(0, tops.indexOf(this.top ?? usual));
    const moved = (/** @type {number} */ at) => {
      this.top = tops[at];
      this.color(this.top);
    };
    const textOf = (/** @type {number} */ at) => tops[at];
    fill(this.topFrame, slider(this.t("atlas.top"), tops.length, place, textOf, moved));
    this.color(tops[place]);
  }

  color(/** @type {number} */ top) {
    const { map, isLogarithmic: logarithmic } = this;
    const floor = logarithmic ? Math.min(this.info.floor, top / 100) : 0;
    map.scale = { floor, top, place: scale({ top, floor: floor / top, logarithmic }) };
    const label = this.t("atlas.legend");
    const style = { background: `linear-gradient(to right, ${ramp().join()})` };
    const colors = element("span.ramp", { role: "img", "aria-label": label, style });
    const middle = logarithmic ? Math.sqrt(floor * top) : top / 2;
    // Beyond its ends, weights have the colors of the ends; none is above 1.
    const [least, most] = [floor > 0 && "≤ ", top < 1 && "≥ "];
    const ends = [
      element("span", least, weight(floor)),
      element("span", weight(middle)),
      element("span", most, weight(top)),
    ];
    const hidden = element("span", this.t("shell.hidden"));
    fill(this.legend, element("span", label), colors, element("span.ends", ends), hidden);
    map.heard.moved();
    map.draw();
  }

  /** Tell what the cross-hair is at, where that has changed. */
  tell() {
    this.telling = null;
    const { map, info } = this;
    if (map.signal.aborted) return;
    this.remember();
    const seen = map.seen();
    const now = JSON.stringify(seen);
    if (now !== this.told) {
      this.tellNumber(seen);
      // What has not come yet is shown once more.
      this.told = this.tellPassages(seen) ? now : null;
    }
    if (this.isWhole && info.ready && this.told && seen.value !== undefined) {
      this.frame.dataset.drawn = "";
    }
  }

  tellNumber(/** @type {Seen} */ { value, level, queries, keys }) {
    const { t } = this;
    const rows = queries[1] - queries[0];
    const columns = keys[1] - keys[0];
    const single = { query: grouped(queries[0]), key: grouped(keys[0]) };
    const meaning =
      rows * columns === 1
        ? t("atlas.single", single)
        : t("atlas.mean", { queries: grouped(rows), keys: grouped(columns) });
    const number = value === undefined ? "…" : weight(value);
    fill(this.readout, element("b", number), element("span", meaning));
    this.readout.dataset.value = String(value ?? "");
    this.readout.dataset.level = String(level);
  }

  /** Show the text on both sides; gives whether all of it was there. @param {Seen} seen */
  tellPassages(seen) {
    const { t, map, info, passages } = this;
    const show = (/** @type {Side} */ side) => {
      const [start, stop] = seen[side];
      const name = HEADINGS[side][Number(stop - start > 1)];
      const title = t(name, { from: grouped(start), to: grouped(stop - 1) });
      return passages[side].show(title, map.tokens[side], seen[side], info[side]);
    };
    return [show("queries"), show("keys")].every(Boolean);
  }

  picture() {
    const { t, layer, head, mapFrame, body } = this;
    const which = t(this.isStored ? "atlas.whose_stored" : "atlas.whose", { layer, head });
    const title = [this.context.about.subject.name, which].filter(Boolean).join(" · ");
    return { title, parts: [body.querySelector(".told"), mapFrame], card: [mapFrame] };
  }

  /** Put into the address what is open, and where one looks unless all is seen. */
  remember() {
    const { text, layer, head, isLogarithmic, top } = this;
    const { isWhole, y, x, zoom } = this.map.view;
    const { query, key } = this.selection.pinned;
    /** @param {number} value @param {number} digits */
    const rounded = (value, digits) => (isWhole ? null : Number(value.toFixed(digits)));
    this.context.remember({
      text,
      layer,
      head,
      y: rounded(y, 2),
      x: rounded(x, 2),
      zoom: rounded(Math.log2(zoom), 4),
      i: query,
      j: key,
      scale: isLogarithmic ? null : "linear",
      top,
    });
  }
}

/** @type {View} */
export const atlas = (frame, context) => new Atlas(frame, context).start();
