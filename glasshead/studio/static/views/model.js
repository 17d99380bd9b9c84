// The view "model": all heads of a model on one canvas, lit by what they write at one token.
import { Arcs, whereItLooks } from "../arcs.js";
import { categories, paint, scale } from "../colors.js";
import { element, fill, headingCell, table } from "../dom.js";
import { drawMap } from "../map.js";
import { decimal, largestFirst, range, rowAt, weight, wholeNumber } from "../numbers.js";
import { headAt, linkTo, numberOf, Selection } from "../selection.js";
import { newest } from "../source.js";
import { TypedText } from "../typed-text.js";
import { ModelCanvas } from "./model-canvas.js";

/** @import { Context, View } from "../app.js" */
/** @import { Head } from "../selection.js" */
/** @import { Tensor } from "../source.js" */
/** @import { Scene } from "./model-scene.js" */

/**
 * A model over a text, as the studio tells it.
 * @typedef {{tokens: string[], running: string[], of: number, layers: string[], heads: number[],
 *   first: [number, number], lit: "writes" | "context", mlps: string[][]}} Told
 */

// Keys that are named of a head.
const MOST_KEYS = 5;
const MAP_SIDE = 256;

class Model {
  /** @param {HTMLElement} frame @param {Context} context */
  constructor(frame, context) {
    const { t, signal, remember } = context;
    this.frame = frame;
    this.context = context;
    this.t = t;
    this.state = context.state;
    this.newQuery = newest(signal);
    this.newHead = newest(signal);
    this.told = /** @type {Told} */ (null);
    this.writes = /** @type {Tensor} */ (null);
    /** @type {Head} */
    this.place = null;
    /** @type {Scene} */
    this.scene = null;
    // A key is one of those that the query reads from.
    this.selection = new Selection(remember, false);
    this.text = new TypedText(frame, context, 1, () => this.typed());
    /** @type {import("./model-canvas.js").Heard} */
    const heard = {
      chosen: (layer, head) => this.select(layer, head),
      asked: (query) => this.selection.pin({ query }),
      wanted: (heads) => this.fetchMaps(heads),
      moved: () => this.rememberView(),
    };
    this.canvas = new ModelCanvas(t, heard, signal);
    this.arcs = new Arcs(t, this.selection);
    this.why = element("p.why");
    this.selection.on(() => {
      this.arcs.turn();
      fill(this.why, whereItLooks(t, this.place, this.arcs));
      if (this.selection.query === this.scene.query) this.show();
      else this.ask();
    });
    this.one = element("aside", { "data-panel": "" });
    this.legend = element("p.legend");
    this.note = element("p.quiet");
    this.table = element("div");
  }

  async start() {
    const { t } = this;
    const keyboard = element("span.help", t("model.keyboard"));
    const help = element("p.quiet", { id: "model-help" }, t("model.help"), " ", keyboard);
    fill(
      this.frame,
      this.text.element,
      element(
        "div.stage",
        element(
          "div",
          { "data-panel": "" },
          this.canvas.element,
          element("div.under", this.legend, this.canvas.zooming),
          this.note,
          help,
        ),
        this.one,
        element("div.sentence", { "data-panel": "" }, this.arcs.element, this.why),
      ),
      element("details", element("summary", t("model.as_table")), this.table),
    );
    await this.text.open();
    await this.read();
  }

  typed() {
    this.context.remember({ text: this.text.text, query: null, key: null });
    this.read();
  }

  read() {
    const { source } = this.context;
    // What was asked of the text before is not waited for.
    this.newHead();
    this.newQuery();
    return this.text.ask(async (signal) => {
      const text = this.text.words;
      // One after the other, as a text that is refused is so once.
      const told = await source.json("model", { text }, { signal });
      const writes = await source.numbers("model/writes", { text }, { signal });
      this.told = told;
      this.writes = writes;
      this.text.tell(null);
      this.layOut();
      await this.openHead(signal);
    });
  }

  layOut() {
    const { told, t, state } = this;
    const [layer, head] = [Number(state.layer), Number(state.head)];
    this.place = head < told.heads[layer] ? [layer, head] : told.first;
    fill(this.note, told.lit === "context" ? t("model.context_why") : null);
    this.scene = {
      counts: told.heads,
      named: (at, number) => t("heads.named", { layer: at, head: number }),
      layerOf: (at) => t("alignment.one.layer", { layer: at }),
      column: 0,
      words: told.running,
      query: 0,
      head: 0,
      key: null,
      norms: new Float32Array(),
      shares: new Float32Array(),
      reads: new Float32Array(),
      mlps: told.mlps.map((names) => names.length > 0),
      strips: [],
      maps: new Map(),
    };
  }

  /** @param {number} layer @param {number} head */
  async select(layer, head) {
    this.place = [layer, head];
    this.context.remember({ layer, head, query: this.scene.query, key: null });
    this.show();
    this.canvas.reveal();
    await this.openHead(this.newHead()).catch(this.context.failed);
  }

  /** Show the arcs of the head that is selected, and the canvas at their query. */
  async openHead(/** @type {AbortSignal} */ signal) {
    const { t, told, state, place } = this;
    const [layer, head] = place;
    const { values } = await this.mapOf(place, signal);
    if (signal.aborted) return;
    const { length } = told.tokens;
    const name = t("heads.named", { layer, head });
    const asked = wholeNumber(state.query, length - 1);
    const key = wholeNumber(state.key, null);
    this.selection.begin({ query: 0, key: key < length ? key : null });
    this.arcs.show(told.running, [{ name, color: categories()[0], values }], asked);
    fill(this.why, whereItLooks(t, place, this.arcs));
    await this.ask();
  }

  /** @param {Head} head @param {AbortSignal} signal */
  mapOf([layer, head], signal) {
    const params = { text: this.text.text, layer, head };
    return this.context.source.numbers("model/map", params, { signal });
  }

  /** Show what is written and read at the query. */
  async ask() {
    const { context, told, writes, scene } = this;
    const { query } = this.selection;
    const signal = this.newQuery();
    delete this.frame.dataset.drawn;
    try {
      const params = { text: this.text.text, query };
      const { values } = await context.source.numbers("model/reads", params, { signal });
      signal.throwIfAborted();
      const { length } = told.tokens;
      const heads = range(writes.shape[1]);
      scene.query = query;
      scene.norms = Float32Array.from(heads, (at) => writes.values[at * length + query]);
      const rest = writes.values.subarray(heads.length * length);
      scene.shares = Float32Array.from(heads, (at) => rest[at * length + query]);
      scene.reads = values;
      scene.strips = heads.map((at) => strip(rowAt(values, at, length)));
      this.show();
      this.frame.dataset.drawn = "";
    } catch (error) {
      context.failed(error);
    }
  }

  show() {
    const { scene, place, t, told } = this;
    const [layer, head] = place;
    if (!scene.norms.length) return;
    scene.head = numberOf(told.heads, place);
    scene.key = this.selection.key ?? null;
    const name = t("heads.named", { layer, head });
    const norm = decimal(scene.norms[scene.head]);
    this.canvas.show(scene, `${name}. ${t(`model.${told.lit}`)}${t("shell.colon")}${norm}`);
    if (!this.opened) this.openView();
    this.tell(name);
    this.drawTable();
    const title = `${name} · ${t("model.at", { query: told.tokens[scene.query] })}`;
    const parts = [this.legend, this.canvas.element, this.arcs.element];
    this.context.picture(() => ({ title, parts }));
  }

  /** Go to the part that the address names, once. */
  openView() {
    this.opened = true;
    const { x, y, zoom } = this.state;
    if (![x, y, zoom].every((each) => Number.isFinite(Number.parseFloat(each)))) return;
    this.canvas.view.go(Number(y), Number(x), Number(zoom));
    this.canvas.renewed();
  }

  rememberView() {
    const { x, y, zoom, isWhole } = this.canvas.view;
    const rounded = (/** @type {number} */ place) => (isWhole ? null : place.toFixed(2));
    this.context.remember({ x: rounded(x), y: rounded(y), zoom: rounded(zoom) });
  }

  /** Tell what the head reads and writes. @param {string} name */
  tell(name) {
    const { scene, told, t, place } = this;
    const [layer, head] = place;
    const { norms, shares, reads, query } = scene;
    const norm = norms[scene.head];
    const share = shares[scene.head];
    const rank = 1 + norms.filter((each) => each > norm).length;
    const { length } = told.tokens;
    const row = rowAt(reads, scene.head, length);
    const keys = largestFirst(range(length), (at) => row[at]).slice(0, MOST_KEYS);
    const items = keys.filter((key) => row[key] > 0).map((key) => this.keyItem(key, row[key]));
    const rows = [
      [t(`model.${told.lit}`), "norm", norm, decimal(norm)],
      [
        t("model.share"),
        "share",
        share,
        Number.isNaN(share) ? "–" : t("model.percent", { share: decimal(100 * share, 1) }),
      ],
      [t("model.rank"), "rank", rank, t("model.of", { rank, count: norms.length })],
    ];
    const text = this.text.text;
    const taken = `${layer}.${head}`;
    const map = linkTo("heads", { said: text, layer, head, query, key: scene.key });
    const change = linkTo("prompt", { text, heads: taken, without: taken, query });
    fill(
      this.one,
      element("h2", name, " ", element("code", told.layers[layer])),
      element("p.quiet.at", t("model.at", { query: told.tokens[query] })),
      element(
        "dl",
        rows.map(([label, role, value, shown]) => [
          element("dt", label),
          element("dd", { "data-role": role, "data-value": value }, shown),
        ]),
      ),
      element("h3", t("model.reads")),
      element("ol.keys", items),
      element(
        "p.links",
        element("a.more", { href: map }, t("prompt.map")),
        element("a.more", { href: change }, t("model.take")),
      ),
    );
    this.drawLegend(Math.max(...norms));
  }

  /** @param {number} key @param {number} value */
  keyItem(key, value) {
    const isKey = key === this.scene.key;
    const choose = () => {
      this.selection.pin({ key: isKey ? null : key });
      /** @type {HTMLElement} */ (this.one.querySelector(`[data-key="${key}"]`)).focus();
    };
    const { tokens } = this.told;
    const isAlone = tokens.indexOf(tokens[key]) === tokens.lastIndexOf(tokens[key]);
    const name = element("span", tokens[key], !isAlone && ` ${key}`);
    const words = [name, element("b", weight(value))];
    const look = { "data-key": key, "data-value": value, "aria-pressed": String(isKey) };
    const style = { "--share": value };
    const made = element("button", { type: "button", onclick: choose, ...look, style }, words);
    return element("li", made);
  }

  drawLegend(/** @type {number} */ top) {
    const { t, told } = this;
    const hasMlps = told.mlps.flat().length > 0;
    fill(
      this.legend,
      element("span", t(`model.${told.lit}`), t("shell.colon"), "0"),
      element("span.ramp", { "aria-hidden": "true" }),
      element("span", { "data-value": top }, decimal(top, 2)),
      element(
        "span",
        t("model.lines"),
        " ",
        t("model.stream"),
        " ",
        hasMlps && t("model.stream.mlp"),
      ),
    );
  }

  drawTable() {
    const { told, scene, t } = this;
    const most = range(Math.max(...told.heads));
    const headings = [element("td"), most.map((head) => t("model.head", { head })), t("model.mlp")];
    const rows = told.heads.map((count, layer) => {
      const cells = most.map((head) => {
        const value = head < count ? scene.norms[numberOf(told.heads, [layer, head])] : NaN;
        return element("td", { "data-value": value }, head < count ? decimal(value) : "");
      });
      const heading = headingCell("row", t("model.layer", { layer }));
      return [heading, cells, element("td", told.mlps[layer].join(", "))];
    });
    const query = told.tokens[scene.query];
    fill(this.table, table("table", t(`model.table.${told.lit}`, { query }), headings, rows));
  }

  async fetchMaps(/** @type {number[]} */ heads) {
    const { scene, told, context } = this;
    for (const at of heads) scene.maps.set(at, null);
    try {
      for (const at of heads) {
        const { values } = await this.mapOf(headAt(told.heads, at), context.signal);
        const canvas = element("canvas");
        drawMap(canvas, values, told.tokens.length, {}, MAP_SIDE);
        scene.maps.set(at, canvas);
        if (scene === this.scene) this.canvas.draw();
      }
    } catch (error) {
      context.failed(error);
    }
  }
}

/** A row of weights as a picture of one line. @param {Float32Array} row */
function strip(row) {
  const canvas = element("canvas", { width: row.length, height: 1 });
  const level = scale({ top: Math.max(...row) });
  paint(canvas, (at) => level(row[at]));
  return canvas;
}

/** @type {View} */
export const model = (frame, context) => new Model(frame, context).start();
