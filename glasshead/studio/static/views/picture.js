// The view "picture": where the heads of a vision model look in a picture, from a patch or a token.
import { scale } from "../colors.js";
import { fileButton, menu } from "../controls.js";
import { element, fill, headingCell, leadsToCells, setStyle, showNearby, table } from "../dom.js";
import { decimal, grouped, range, rowAt, weight, wholeNumber, within } from "../numbers.js";
import { headAt, numberOf } from "../selection.js";
import { walk } from "../parts/walk.js";
import { Refused, newest } from "../source.js";

/** @import { Context, View } from "../app.js" */
/** @import { Tensor } from "../source.js" */

/**
 * A pass over a picture, as the studio tells it: the token of the first patch, and others by what
 * they are.
 * @typedef {{layers: string[], heads: number[], grid: [number, number], first: number,
 *   others: Record<string, number[]>}} Told
 */

// As the library paints a map over a picture.
const DIMMED = 0.45;
const PAINTED = 0.8;
const SIDE = 672;
const SMALL = 168;

class Picture {
  /** @param {HTMLElement} frame @param {Context} context */
  constructor(frame, context) {
    const { t } = context;
    this.frame = frame;
    this.context = context;
    this.t = t;
    this.newPicture = newest(context.signal);
    this.newQuery = newest(context.signal);
    this.told = /** @type {Told} */ (null);
    this.photo = /** @type {HTMLCanvasElement} */ (null);
    this.maps = /** @type {Tensor} */ (null);
    this.sums = /** @type {Record<string, number[]>} */ ({});
    // Of the patches, by the head that is shown.
    this.weights = /** @type {Float32Array} */ (null);
    this.query = 0;
    this.refusal = element("div", { role: "alert" });
    this.canvas = element("canvas", {
      tabindex: 0,
      // As long as there is no picture, nothing leads into it.
      hidden: true,
      role: "application",
      "aria-label": t("picture.canvas"),
      ...leadsToCells({
        size: () => this.told.grid,
        at: () => this.patchOf(this.query),
        go: (row, column, isKept) => {
          const place = row * this.told.grid[1] + column;
          if (isKept) this.ask(this.told.first + place);
          else this.read(place);
        },
      }),
    });
    this.controls = element("div.controls");
    this.name = element("h2");
    this.bars = element("div.bars", { role: "status" });
    this.legend = element("p.legend");
    this.reading = element("output");
    const reach = (/** @type {any} */ { target }) => {
      const at = this.buttons.indexOf(target.closest("button"));
      if (at >= 0 && this.maps) this.show(at);
    };
    this.grid = element("div.all.pictures", {
      // A head is shown when its button gets the focus.
      onkeydown: (/** @type {any} */ event) => walk(event),
      onfocusin: reach,
      // Safari does not focus a button that is clicked.
      onclick: (/** @type {any} */ event) => {
        reach(event);
        showNearby(this.canvas);
      },
    });
    this.table = element("div");
    this.buttons = /** @type {HTMLButtonElement[]} */ ([]);
  }

  async start() {
    const { t } = this;
    fill(
      this.frame,
      fileButton(t("picture.file"), "image/*", (file) => this.send(file)),
      this.refusal,
      element(
        "div.beside",
        { "data-panel": "" },
        element("section.photo", this.controls, this.canvas, this.legend),
        element(
          "section.told",
          this.name,
          element("p", t("picture.sums")),
          this.bars,
          element("p.quiet.about", t("picture.about")),
        ),
        this.grid,
      ),
      element("details", element("summary", t("model.as_table")), this.table),
    );
    await this.open();
  }

  async send(/** @type {File | undefined} */ file) {
    if (!file) return;
    const { about, remember } = this.context;
    if (file.size > about.limits.text) {
      const sizes = { size: grouped(file.size), most: grouped(about.limits.text) };
      this.refuse(this.t("picture.large", sizes));
      return;
    }
    try {
      remember({ image: await this.context.source.sendPicture(file), query: null });
      await this.open();
    } catch (error) {
      this.failed(error);
    }
  }

  failed(/** @type {Error} */ error) {
    if (error instanceof Refused) this.refuse(error.message);
    else this.context.failed(error);
  }

  refuse(/** @type {string | null} */ sentence) {
    fill(this.refusal, sentence && element("p.refused", sentence));
    if (sentence) this.frame.dataset.drawn = "";
  }

  async open() {
    const { source, state } = this.context;
    const signal = this.newPicture();
    delete this.frame.dataset.drawn;
    const params = { image: state.image };
    try {
      const [told, pixels] = await Promise.all([
        source.json("picture", params, { signal }),
        source.numbers("picture/pixels", params, { signal }),
      ]);
      signal.throwIfAborted();
      this.told = told;
      this.photo = photoOf(pixels);
      this.refuse(null);
      this.layOut();
      const keys = told.first + told.grid[0] * told.grid[1];
      await this.ask(within(wholeNumber(state.query, 0), keys));
    } catch (error) {
      this.failed(error);
    }
  }

  /** The heads as buttons, and the rollout as another. */
  layOut() {
    const { t, told } = this;
    const small = (/** @type {string} */ name, caption = "") => {
      const look = { type: "button", "aria-label": name, tabindex: -1 };
      return element("button.small", look, element("canvas"), caption);
    };
    const rows = told.heads.map((count, layer) => [
      headingCell("row", layer),
      range(count).map((head) => element("td", small(t("heads.named", { layer, head })))),
    ]);
    const rollout = t("picture.rollout");
    const reached = small(rollout, rollout);
    const most = Math.max(...told.heads);
    const corner = element("td", t("heads.head"), " →", element("br"), t("heads.layer"), " ↓");
    const heads = table("table", t("picture.all"), [corner, range(most)], rows);
    fill(this.grid, reached, heads);
    setStyle(heads, { "--heads": most, "--layers": rows.length });
    this.buttons = [...heads.querySelectorAll("button"), reached];
  }

  /** Show where the model looks from a token. @param {number} query */
  async ask(query) {
    const { context, told, t } = this;
    const { source, state } = context;
    const signal = this.newQuery();
    delete this.frame.dataset.drawn;
    this.query = query;
    const tokens = /** @type {[number, string][]} */ ([]);
    for (const [kind, keys] of Object.entries(told.others)) {
      const name = this.kindName(kind);
      for (const key of keys) tokens.push([key, keys.length > 1 ? `${name} ${key}` : name]);
    }
    const patch = Math.max(query, told.first);
    tokens.push([patch, this.patchName(patch)]);
    const choose = (/** @type {string} */ value) => this.ask(Number(value));
    fill(this.controls, menu(t("picture.query"), tokens, query, choose));
    try {
      const params = { image: state.image, query };
      const [maps, sums] = await Promise.all([
        source.numbers("picture/maps", params, { signal }),
        source.json("picture/sums", params, { signal }),
      ]);
      signal.throwIfAborted();
      context.remember({ query: query || null });
      this.maps = maps;
      this.sums = sums;
      this.buttons.forEach((button, at) => {
        this.paint(button.querySelector("canvas"), SMALL, this.weightsOf(at));
      });
      this.show(this.shownFirst());
      this.frame.dataset.drawn = "";
    } catch (error) {
      this.failed(error);
    }
  }

  /** What the address names: a head, or the rollout. */
  shownFirst() {
    const { layer, head } = this.context.state;
    const { heads } = this.told;
    const isHead = Number(head) < heads[Number(layer)];
    return isHead ? numberOf(heads, [Number(layer), Number(head)]) : this.buttons.length - 1;
  }

  /** What tokens are, in words; of a kind that the page does not know, as the library says. @param {string} kind */
  kindName(kind) {
    const name = `picture.kind.${kind}`;
    const known = this.t(name);
    return known === name ? kind : known;
  }

  // The row and the column of a patch; of another token, those of the first patch.
  /** @param {number} query @returns {[number, number]} */
  patchOf(query) {
    const [, columns] = this.told.grid;
    const place = Math.max(0, query - this.told.first);
    return [Math.floor(place / columns), place % columns];
  }

  patchName(/** @type {number} */ query) {
    const [row, column] = this.patchOf(query);
    return this.t("picture.patch", { row, column });
  }

  /** Say the weight of a patch. @param {number} place  Among the patches */
  read(place) {
    if (!this.weights) return;
    const name = this.patchName(this.told.first + place);
    fill(this.reading, name, this.t("shell.colon"), weight(this.weights[place]));
  }

  weightsOf(/** @type {number} */ at) {
    const [, rows, columns] = this.maps.shape;
    return rowAt(this.maps.values, at, rows * columns);
  }

  // Paint weights over the picture: the brighter a patch, the more weight it has.
  /** @param {HTMLCanvasElement} canvas @param {number} width @param {Float32Array} weights */
  paint(canvas, width, weights) {
    const height = Math.round((width * this.photo.height) / this.photo.width);
    Object.assign(canvas, { width, height });
    const [rows, columns] = this.told.grid;
    const colors = this.context.about.palette.dark;
    const level = scale({ top: Math.max(...weights) });
    const pen = canvas.getContext("2d");
    pen.fillRect(0, 0, width, height);
    pen.globalAlpha = DIMMED;
    pen.drawImage(this.photo, 0, 0, width, height);
    weights.forEach((value, at) => {
      const place = level(value);
      const [row, column] = [Math.floor(at / columns), at % columns];
      const [x, y] = [Math.round((column * width) / columns), Math.round((row * height) / rows)];
      pen.globalAlpha = (PAINTED * place) / (colors.length - 1);
      pen.fillStyle = colors[place];
      pen.fillRect(x, y, Math.ceil(width / columns), Math.ceil(height / rows));
    });
    pen.globalAlpha = 1;
  }

  /** Show a head, or the rollout, over the picture. @param {number} at */
  show(at) {
    const { told, context, canvas, query, t } = this;
    const weights = this.weightsOf(at);
    canvas.hidden = false;
    this.paint(canvas, SIDE, weights);
    this.markQuery();
    this.buttons.forEach((button, other) => {
      button.ariaPressed = String(other === at);
      button.tabIndex = other === at ? 0 : -1;
    });
    const [layer, head] = headAt(told.heads, at);
    const isHead = layer < told.heads.length;
    context.remember(isHead ? { layer, head } : { layer: null, head: null });
    const name = isHead ? t("heads.named", { layer, head }) : t("picture.rollout");
    const from = query < told.first ? "" : ` · ${this.patchName(query)}`;
    const title = name + from;
    fill(this.name, title, isHead && element("code", told.layers[layer]));
    this.tell(at, weights);
    const parts = [canvas, this.legend];
    context.picture(() => ({ title, parts, card: [canvas], sentence: title }));
  }

  markQuery() {
    const { canvas, told, query } = this;
    if (query < told.first) return;
    const [rows, columns] = told.grid;
    const [row, column] = this.patchOf(query);
    const [wide, high] = [canvas.width / columns, canvas.height / rows];
    const pen = canvas.getContext("2d");
    pen.rect(column * wide + 1, row * high + 1, wide - 2, high - 2);
    for (const [strokeStyle, lineWidth] of Object.entries({ "#000": 7, "#fff": 3 })) {
      Object.assign(pen, { strokeStyle, lineWidth }).stroke();
    }
  }

  /** @param {number} at @param {Float32Array} weights */
  tell(at, weights) {
    const { t, told } = this;
    const bars = Object.entries(this.sums).map(([kind, values]) => {
      const bar = element("i", { style: { "--share": values[at] } });
      const name = element("span", this.kindName(kind));
      return [name, element("span.bar", bar), element("b", decimal(values[at]))];
    });
    fill(this.bars, bars);
    const largest = Math.max(...weights);
    const colors = this.context.about.palette.dark.join();
    const style = { background: `linear-gradient(to right, ${colors})` };
    const ramp = element("span.ramp", { "aria-hidden": "true", style });
    fill(
      this.legend,
      t("picture.table"),
      t("shell.colon"),
      "0",
      ramp,
      weight(largest),
      this.reading,
    );
    this.weights = weights;
    this.read(weights.indexOf(largest));
    const [rows, columns] = told.grid;
    const body = range(rows).map((row) => [
      headingCell("row", row),
      range(columns).map((column) => {
        const value = weights[row * columns + column];
        return element("td", { "data-value": value }, decimal(value));
      }),
    ]);
    const headings = [element("td"), range(columns)];
    fill(this.table, table("table", t("picture.table"), headings, body));
  }
}

function photoOf(/** @type {Tensor} */ { values, shape }) {
  const [height, width] = shape;
  const canvas = element("canvas", { width, height });
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(width, height);
  image.data.fill(255);
  values.forEach((value, at) => {
    image.data[4 * Math.floor(at / 3) + (at % 3)] = Math.round(255 * value);
  });
  pen.putImageData(image, 0, 0);
  return canvas;
}

/** @type {View} */
export const picture = (frame, context) => new Picture(frame, context).start();
