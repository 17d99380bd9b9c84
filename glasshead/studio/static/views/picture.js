// The view "picture": where the heads of a vision model look in a picture, from a patch or a token.
import { scale } from "../colors.js";
import { fileButton, menu } from "../controls.js";
import { element, fill, headingCell, leadsToCells, table } from "../dom.js";
import { decimal, grouped, range, rowAt, weight, wholeNumber, within } from "../numbers.js";
import { headAt, numberOf } from "../selection.js";
import { walk } from "../parts/walk.js";
import { Refused, newest } from "../source.js";

/** @import { Context, View } from "../app.js" */
/** @import { Tensor } from "../source.js" */

/**
 * A pass over a picture, as the studio tells it.
 * @typedef {object} Told
 * @property {string[]} layers
 * @property {number[]} heads
 * @property {[number, number]} grid
 * @property {number} first  The token of the first patch
 * @property {Record<string, number[]>} others  Other tokens, by what they are
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
    /** @type {Told} */
    this.told = null;
    /** @type {HTMLCanvasElement} */
    this.photo = null;
    /** @type {Tensor} */
    this.maps = null;
    /** @type {Record<string, number[]>} */
    this.sums = {};
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
          if (isKept) this.ask(this.told.first + row * this.told.grid[1] + column);
        },
      }),
    });
    this.controls = element("div.controls");
    this.name = element("h2");
    this.summary = element("p", { role: "status" });
    this.bars = element("div.bars", { "aria-hidden": "true" });
    this.legend = element("p.legend");
    /** Show the head of a button. @param {any} event */
    const reach = ({ target }) => {
      const at = this.buttons.indexOf(target.closest("button"));
      if (at >= 0 && this.maps) this.show(at);
    };
    this.grid = element("div.all", {
      "data-panel": "",
      // A head is shown when its button gets the focus.
      onkeydown: (/** @type {any} */ event) => walk(event),
      onfocusin: reach,
      // Safari does not focus a button that is clicked.
      onclick: reach,
    });
    this.table = element("div");
    /** @type {HTMLButtonElement[]} */
    this.buttons = [];
  }

  async start() {
    const { t } = this;
    fill(
      this.frame,
      fileButton(t("picture.file"), "image/*", (file) => this.send(file)),
      this.refusal,
      element(
        "div.beside",
        element("section.photo", { "data-panel": "" }, this.controls, this.canvas, this.legend),
        element("section.told", this.name, this.summary, this.bars),
        this.grid,
      ),
      element("details", element("summary", t("model.as_table")), this.table),
    );
    await this.open();
  }

  /** Send a picture, and show it. @param {File | undefined} file */
  async send(file) {
    if (!file) return;
    const { about, remember } = this.context;
    if (file.size > about.limits.text) {
      const sizes = { size: grouped(file.size), most: grouped(about.limits.text) };
      this.refuse(this.t("picture.large", sizes));
      return;
    }
    try {
      remember({ image: await this.context.source.sendPicture(file), query: null });
    } catch (error) {
      this.failed(error);
      return;
    }
    await this.open();
  }

  /** @param {Error} error */
  failed(error) {
    if (error instanceof Refused) this.refuse(error.message);
    else this.context.failed(error);
  }

  /** @param {string | null} sentence */
  refuse(sentence) {
    fill(this.refusal, sentence === null ? null : element("p.refused", sentence));
    if (sentence !== null) this.frame.dataset.drawn = "";
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
      if (signal.aborted) return;
      this.told = told;
      this.photo = photoOf(pixels);
      this.canvas.hidden = false;
      this.canvas.width = SIDE;
      this.canvas.height = Math.round((SIDE * this.photo.height) / this.photo.width);
      this.refuse(null);
      this.layOut();
      const keys = told.first + told.grid[0] * told.grid[1];
      await this.ask(within(wholeNumber(state.query, 0), keys));
    } catch (error) {
      if (!signal.aborted) this.failed(error);
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
    const heads = table("table", t("picture.all"), [element("td"), range(most)], rows);
    fill(this.grid, reached, heads);
    heads.style.setProperty("--heads", String(most));
    heads.style.setProperty("--layers", String(rows.length));
    this.buttons = [...heads.querySelectorAll("button"), reached];
  }

  /** Show where the model looks from a token. @param {number} query */
  async ask(query) {
    const { context, told, t } = this;
    const { source, state } = context;
    const signal = this.newQuery();
    delete this.frame.dataset.drawn;
    this.query = query;
    const others = Object.entries(told.others).flatMap(([kind, keys]) => {
      const name = this.kindName(kind);
      return keys.map((key) => {
        return /** @type {[number, string]} */ ([key, keys.length > 1 ? `${name} ${key}` : name]);
      });
    });
    const patch = Math.max(query, told.first);
    const patches = /** @type {[number, string]} */ ([patch, this.patchName(patch)]);
    const choose = (/** @type {string} */ value) => this.ask(Number(value));
    fill(this.controls, menu(t("picture.query"), [...others, patches], query, choose));
    try {
      const params = { image: state.image, query };
      const [maps, sums] = await Promise.all([
        source.numbers("picture/maps", params, { signal }),
        source.json("picture/sums", params, { signal }),
      ]);
      if (signal.aborted) return;
      context.remember({ query: query || null });
      this.maps = maps;
      this.sums = sums;
      this.buttons.forEach((button, at) => this.drawSmall(button, at));
      this.show(this.shownFirst());
      this.frame.dataset.drawn = "";
    } catch (error) {
      if (!signal.aborted) this.failed(error);
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

  /**
   * The row and the column of a patch; of another token, those of the first patch.
   * @param {number} query @returns {[number, number]}
   */
  patchOf(query) {
    const [, columns] = this.told.grid;
    const place = Math.max(0, query - this.told.first);
    return [Math.floor(place / columns), place % columns];
  }

  /** @param {number} query */
  patchName(query) {
    const [row, column] = this.patchOf(query);
    return this.t("picture.patch", { row, column });
  }

  /** The weights of the patches in a head. @param {number} at */
  weightsOf(at) {
    const [, rows, columns] = this.maps.shape;
    return rowAt(this.maps.values, at, rows * columns);
  }

  /** @param {HTMLButtonElement} button @param {number} at */
  drawSmall(button, at) {
    const canvas = button.querySelector("canvas");
    canvas.width = SMALL;
    canvas.height = Math.round((SMALL * this.photo.height) / this.photo.width);
    this.paint(canvas, this.weightsOf(at));
  }

  /**
   * Paint weights over the picture: the brighter a patch, the more weight it has.
   * @param {HTMLCanvasElement} canvas @param {Float32Array} weights
   */
  paint(canvas, weights) {
    const { width, height } = canvas;
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
    this.paint(canvas, weights);
    this.markQuery();
    this.buttons.forEach((button, other) => {
      button.ariaPressed = String(other === at);
      button.tabIndex = other === at ? 0 : -1;
    });
    const [layer, head] = headAt(told.heads, at);
    const isHead = layer < told.heads.length;
    context.remember(isHead ? { layer, head } : { layer: null, head: null });
    const name = isHead ? t("heads.named", { layer, head }) : t("picture.rollout");
    fill(this.name, name, isHead ? element("code", told.layers[layer]) : null);
    this.tell(at, weights);
    const from = query < told.first ? "" : ` · ${this.patchName(query)}`;
    const parts = [canvas, this.legend];
    context.picture(() => ({ title: `${name}${from}`, parts, card: [canvas] }));
  }

  /** Frame the patch that it looks from. */
  markQuery() {
    const { canvas, told, query } = this;
    if (query < told.first) return;
    const [rows, columns] = told.grid;
    const [row, column] = this.patchOf(query);
    const [wide, high] = [canvas.width / columns, canvas.height / rows];
    const pen = canvas.getContext("2d");
    for (const [color, width] of /** @type {const} */ ([
      ["#000", 7],
      ["#fff", 3],
    ])) {
      pen.strokeStyle = color;
      pen.lineWidth = width;
      pen.strokeRect(column * wide + 1, row * high + 1, wide - 2, high - 2);
    }
  }

  /** @param {number} at @param {Float32Array} weights */
  tell(at, weights) {
    const { t, told } = this;
    const parts = Object.entries(this.sums).map(([kind, values]) => {
      return `${this.kindName(kind)} ${decimal(values[at])}`;
    });
    const bars = Object.entries(this.sums).map(([kind, values]) => {
      const bar = element("i");
      bar.style.setProperty("--share", String(values[at]));
      return [element("span", this.kindName(kind)), element("span.bar", bar)];
    });
    fill(this.bars, bars);
    const sums = parts.join(t("shell.comma"));
    const largest = Math.max(...weights);
    const ramp = element("span.ramp", { "aria-hidden": "true" });
    ramp.style.background = `linear-gradient(to right, ${this.context.about.palette.dark.join()})`;
    fill(this.legend, t("picture.table"), ": 0", ramp, weight(largest));
    fill(
      this.summary,
      t("picture.sums", { sums }),
      ` ${t("picture.largest")}: `,
      element("b", { "data-value": largest }, weight(largest)),
    );
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

/** The picture that a model was given. @param {Tensor} pixels */
function photoOf({ values, shape }) {
  const [height, width] = shape;
  const canvas = element("canvas", { width, height });
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(width, height);
  range(width * height).forEach((at) => {
    const color = Array.from(values.subarray(at * 3, at * 3 + 3), (value) =>
      Math.round(255 * value),
    );
    image.data.set([...color, 255], at * 4);
  });
  pen.putImageData(image, 0, 0);
  return canvas;
}

/** @type {View} */
export const picture = (frame, context) => new Picture(frame, context).start();
