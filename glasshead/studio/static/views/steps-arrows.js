// Drag the arrows: the query, the keys and the values in a plane; scores, weights and context follow.
import { choice, menu } from "../controls.js";
import { button, element, fill, moveOf, setAttributes } from "../dom.js";
import { clamped, decimal, dot, grouped, largestFirst, range, sum } from "../numbers.js";
import { onDrag } from "../parts/dragging.js";
import { h, html, render } from "../parts/html.js";
import { bar, barLine } from "./steps-bars.js";
import { partElements, subscript } from "./steps-sums.js";
import { faultOf, workedOut } from "./steps-followed.js";
import { largestOf, placed, shortWeight, squareAround } from "./steps-layout.js";
import { planeOfPair, planeWith, squares, widest } from "./steps-plane.js";

/** @import { Context } from "../app.js" */
/** @import { Worked } from "./steps-followed.js" */
/** @import { Material } from "./steps-practice.js" */
/** @import { Row } from "./steps-row.js" */
/** @import { Part } from "./steps-sums.js" */

/**
 * An arrow of a plane: its letter, the place of its word, and its vector, which is dragged.
 * @typedef {{letter: "q" | "k" | "v", at: number, vector: number[]}} Arrow
 */

/** @typedef {"keys" | "values"} Name  Of a plane */

// Half of a plane's side, in its own units, and how near a pointer takes hold of a tip.
const HALF = 150;
const NEAR = 24;
// A step of the keyboard, of the length of the longest arrow.
const STEP = 0.05;
// More words have no room for their names.
const NAMED = 8;
// Vectors of more numbers are seen in planes of their own, not in those of two numbers.
const NUMBERS = 8;

export class Arrows {
  /** @param {Context} context */
  constructor({ t }) {
    this.t = t;
    /** @type {Row} */
    this.row = null;
    // What the vectors were when they were not dragged.
    this.origin = "";
    this.pair = [0, 1];
    this.none = element("p.said");
    this.controls = element("div.controls");
    this.captions = both(() => element("figcaption"));
    this.planes = both((name) => this.plane(name));
    this.numbers = element("div");
    const figures = both((name) => {
      const title = element("b", t(`drag.${name}`));
      return element("figure", title, this.planes[name], this.captions[name]);
    });
    // A telephone has room for one plane.
    const names = /** @type {[string, string][]} */ (
      Object.keys(figures).map((name) => [name, t(`drag.${name}`)])
    );
    const shown = choice(t("practice.drag"), names, "keys", (name) => {
      this.element.dataset.plane = name;
    });
    this.element = element(
      "section.walk.drag",
      { "aria-label": t("practice.drag"), "data-plane": "keys" },
      this.none,
      element("p.said", t("drag.says")),
      element("div.one-plane", shown),
      element("div.worked", Object.values(figures), this.controls, this.numbers),
    );
    // Without vectors there is nothing to drag.
    this.see(() => false);
  }

  /** @param {Material} material */
  async show(material) {
    this.material = material;
    const row = material.rows()[material.at];
    const origin = JSON.stringify([row.q, row.keys.map(({ k, v }) => [k, v]), row.rest]);
    if (origin !== this.origin) {
      const whole = (await material.whole?.()) ?? row;
      if (this.material !== material) return;
      this.origin = origin;
      this.row = whole;
      // The keys that have an arrow; of others there is a dot.
      this.shown = row.keys.map(({ place }) => place);
      this.fault = faultOf(whole);
      if (!this.fault) this.reset();
    } else if (!material.whole) {
      this.row = row;
    }
    fill(this.none, this.fault && this.t(this.fault));
    this.see((each) => Boolean(this.fault) === (each === this.none));
    if (!this.fault) this.draw();
  }

  /** @param {(each: Element) => boolean} isSeen */
  see(isSeen) {
    for (const each of this.element.children) {
      /** @type {HTMLElement} */ (each).hidden = !isSeen(each);
    }
  }

  /** Put all arrows back to the vectors of the query. */
  reset() {
    const { row, shown } = this;
    this.q = [...row.q];
    this.keys = row.keys.map(({ k }) => [...k]);
    this.values = row.keys.map(({ v }) => [...v]);
    const words = shown.map((at) => row.keys[at].word);
    this.words = words.map((word, at) => {
      return words.indexOf(word) === words.lastIndexOf(word)
        ? word
        : `${word} ${grouped(shown[at])}`;
    });
    const ranked = largestFirst(shown, (at) => row.keys[at].weight);
    this.named = ranked.slice(0, NAMED);
    this.pair = widest([row.q, ...row.keys.map((key) => key.k)]);
    this.turn();
    // At first the arrows of the query's own word.
    this.held = both((name) => this.arrows(name).find(({ at }) => at === row.query));
    this.layOut();
  }

  /** Whether planes are chosen for their vectors, which have more numbers than one could choose of. */
  get isFitted() {
    const { q, context } = this.row;
    return q.length > NUMBERS || q.length !== context.length;
  }

  /** Turn both planes to the numbers that are chosen, or to what they can show most of. */
  turn() {
    const { row, shown, pair, isFitted } = this;
    const seen = row.keys.filter(({ masked }) => masked !== null).map(({ place }) => place);
    const [own, others] = [true, false].map((isOwn) => {
      return seen.filter((place) => shown.includes(place) === isOwn);
    });
    this.axes = both((name) => {
      const vector = name === "keys" ? row.q : row.context;
      if (!isFitted) return planeOfPair(vector.length, pair);
      return planeWith(
        vector,
        own.map((place) => this[name][place]),
      );
    });
    const vectors = both((name) => this.arrows(name).map(({ vector }) => vector));
    const tips = both((name) => vectors[name].map((each) => this.placeOf(name, each)));
    this.lengths = both((name) => largestOf(isFitted ? tips[name] : vectors[name]));
    const frames = both((name) => squareAround(tips[name], this.lengths[name]));
    this.middles = both((name) => frames[name].middle);
    this.sizes = both((name) => frames[name].size);
    this.clouds = both((name) => {
      return others.map((at) => this.drawn(name, [this.placeOf(name, this[name][at])])).join("");
    });
  }

  layOut() {
    const { t, pair, q, isFitted } = this;
    const pairs = range(isFitted ? 0 : q.length ** 2)
      .map((each) => [Math.floor(each / q.length), each % q.length])
      .filter(([one, other]) => one < other);
    const options = pairs.map(([one, other]) => {
      const said = t("drag.pair", { one: one + 1, other: other + 1 });
      return /** @type {[string, string]} */ ([`${one}.${other}`, said]);
    });
    /** @param {Name} name */
    const choose = (name) => {
      const arrows = this.arrows(name);
      const names = /** @type {[number, string][]} */ (
        arrows.map((arrow, at) => [at, this.labelOf(arrow)])
      );
      return menu(t(`drag.${name}`), names, this.heldAt(name), (at) => {
        this.take(name, arrows[Number(at)]);
      });
    };
    this.menus = both(choose);
    const planes =
      pairs.length > 1
        ? menu(t("drag.plane"), options, pair.join("."), (chosen) => {
            this.pair = chosen.split(".").map(Number);
            this.turn();
            this.draw();
          })
        : null;
    const back = button(t("drag.reset"), () => {
      this.reset();
      this.draw();
      this.controls.querySelector("button").focus();
    });
    fill(this.controls, Object.values(this.menus), planes, back);
  }

  /**
   * The arrows of a plane: the query and the keys, or the values.
   * @param {Name} name @returns {Arrow[]}
   */
  arrows(name) {
    const { shown, row, q, keys, values } = this;
    if (name === "values") return shown.map((at) => ({ letter: "v", at, vector: values[at] }));
    const others = shown.map((at) => /** @type {Arrow} */ ({ letter: "k", at, vector: keys[at] }));
    return [{ letter: "q", at: row.query, vector: q }, ...others];
  }

  /** @param {Name} name @param {Arrow} arrow */
  isHeld(name, { letter, at }) {
    return letter === this.held[name].letter && at === this.held[name].at;
  }

  /** @param {Name} name */
  heldAt(name) {
    return this.arrows(name).findIndex((arrow) => this.isHeld(name, arrow));
  }

  /** @param {Arrow} arrow */
  labelOf({ letter, at }) {
    return `${letter}(${letter === "q" ? this.row.word : this.words[this.shown.indexOf(at)]})`;
  }

  /** Let the keyboard move another arrow. @param {Name} name @param {Arrow} arrow */
  take(name, arrow) {
    this.held[name] = arrow;
    this.draw();
  }

  /** A plane that is dragged in, and walked by the arrow keys. @param {Name} name */
  plane(name) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const viewBox = `${-HALF} ${-HALF} ${2 * HALF} ${2 * HALF}`;
    setAttributes(made, { viewBox, tabindex: 0, role: "slider" });
    made.addEventListener("keydown", (event) => {
      const [down, right] = moveOf(event) ?? [Infinity, 0];
      if (!Number.isFinite(down + right)) return;
      event.preventDefault();
      const step = STEP * this.lengths[name];
      const [x, y] = this.placeOf(name, this.held[name].vector);
      this.move(name, [x + right * step, y - down * step]);
    });
    /** @param {PointerEvent} event */
    const pointedAt = (event) => {
      const { left, top, width, height } = made.getBoundingClientRect();
      const x = ((event.clientX - left) / width) * 2 - 1;
      const y = 1 - ((event.clientY - top) / height) * 2;
      return [x, y].map((each, axis) => this.middles[name][axis] + each * this.sizes[name]);
    };
    onDrag(
      made,
      (event) => {
        const arrow = this.nearest(name, pointedAt(event));
        if (arrow) {
          this.take(name, arrow);
          this.menus[name].set(this.heldAt(name));
        }
        return Boolean(arrow);
      },
      (event) => this.move(name, pointedAt(event)),
    );
    return made;
  }

  /**
   * The arrow whose tip is near a place; null where none is.
   * @param {Name} name @param {number[]} place
   */
  nearest(name, [x, y]) {
    const arrows = this.arrows(name);
    const far = arrows.map(({ vector }) => {
      const [across, up] = this.placeOf(name, vector);
      return Math.hypot(across - x, up - y);
    });
    const least = Math.min(...far);
    return least <= (NEAR / HALF) * this.sizes[name] ? arrows[far.indexOf(least)] : null;
  }

  /**
   * Move the tip of the arrow that is held, within its plane.
   * @param {Name} name @param {number[]} to
   */
  move(name, to) {
    const { vector } = this.held[name];
    const most = this.sizes[name];
    const from = this.placeOf(name, vector);
    this.axes[name].forEach((axis, at) => {
      const middle = this.middles[name][at];
      const by = clamped(to[at], middle - most, middle + most) - from[at];
      axis.forEach((each, number) => {
        vector[number] += by * each;
      });
    });
    this.draw();
  }

  draw() {
    const { t, row, q, keys, values, shown, isFitted } = this;
    const worked = workedOut(row, q, keys);
    const context = values[0].map((_, each) => {
      // A hidden value, which may be anything, has no part.
      return sum(worked.weights.map((weight, at) => weight && weight * values[at][each]));
    });
    this.drawPlane("keys", this.keyPlane(), worked.weights);
    this.drawPlane("values", this.valuePlane(worked.weights, context), worked.weights);
    const seen = shown.filter((at) => row.keys[at].masked !== null).map((at) => keys[at]);
    const scores = t("drag.scores", { share: this.shareOf("keys", seen) });
    const part = t("drag.share", { share: this.shareOf("values", [context]) });
    this.caption("keys", isFitted ? scores : "");
    this.caption("values", q.length > 2 ? part : "");
    render(this.table(worked), this.numbers);
  }

  /** @param {Name} name @param {string} said */
  caption(name, said) {
    fill(this.captions[name], said);
  }

  /**
   * How much a plane shows of squared lengths, in percent.
   * @param {Name} name @param {number[][]} vectors
   */
  shareOf(name, vectors) {
    const inPlane = squares(vectors.map((each) => this.placeOf(name, each)));
    return decimal((100 * inPlane) / (squares(vectors) || 1), 0);
  }

  /**
   * Draw a plane, and say where the tip of the arrow that is held stands, and what follows.
   * @param {Name} name @param {any} marks @param {number[]} weights
   */
  drawPlane(name, marks, weights) {
    const { t, held, sizes, middles, planes, clouds, pair, isFitted } = this;
    const [left, top] = this.at(name, [0, 0]);
    const axes = html`<path class="axes" d="M${-HALF} ${top}H${HALF}M${left} ${-HALF}V${HALF}" />`;
    const cloud = html`<path class="cloud" d=${clouds[name]} />`;
    // In a rotated plane, an axis is not one of the vector's numbers.
    const [across, up] = isFitted ? [] : pair.map((each) => name[0] + subscript(each));
    const names = html`
      <text class="axis" x=${HALF - 4} y=${top + 14} text-anchor="end">${across}</text>
      <text class="axis" x=${left - 5} y=${12 - HALF} text-anchor="end">${up}</text>
    `;
    render(html`<g>${axes}${names}${cloud}${marks}</g>`, planes[name]);
    const { letter, at, vector } = held[name];
    const [x, y] = this.placeOf(name, vector);
    const place = `(${decimal(x, 2)}, ${decimal(y, 2)})`;
    const weight = t("drag.weight", { weight: shortWeight(weights[at], 3) });
    planes[name].ariaLabel = this.labelOf(held[name]);
    planes[name].ariaValueMin = String(middles[name][0] - sizes[name]);
    planes[name].ariaValueMax = String(middles[name][0] + sizes[name]);
    planes[name].ariaValueNow = String(x);
    planes[name].ariaValueText = letter === "q" ? place : place + t("shell.comma") + weight;
  }

  keyPlane() {
    const { q, sizes, keys, named } = this;
    const place = this.placeOf("keys", q);
    const length = Math.hypot(...place) || 1;
    const along = place.map((each) => each / length);
    const line = [-3, 3].map((far) => along.map((each) => each * far * sizes.keys));
    /** @param {number} at */
    const footOf = (at) => {
      const tip = this.placeOf("keys", keys[at]);
      return along.map((each) => each * dot(tip, along));
    };
    const feet = named.map((at) => {
      const tip = this.placeOf("keys", keys[at]);
      return html`<path class="foot" d=${this.drawn("keys", [tip, footOf(at)])} />`;
    });
    const shadow = footOf(this.scored);
    const middle = shadow.map((each) => each / 2);
    return html`
      <path class="line" d=${this.drawn("keys", line)} />
      <path class="shadow" d=${this.drawn("keys", [[0, 0], shadow])} />
      ${feet}
      ${this.arrows("keys")
        .reverse()
        .map((arrow) => this.arrow("keys", arrow, 1))}
      ${this.names("keys", [[middle, "p"]])}
    `;
  }

  /** @param {number[]} weights @param {number[]} context */
  valuePlane(weights, context) {
    const { values, shown, row } = this;
    const tip = this.placeOf("values", context);
    let end = [0, 0];
    // The shares of the values one after the other, and at last that of all others.
    const ends = shown.map((at) => {
      end = this.placeOf("values", values[at]).map((each, axis) => end[axis] + weights[at] * each);
      return end;
    });
    const most = Math.max(...weights) || 1;
    return html`
      ${this.arrows("values").map((arrow) => this.arrow("values", arrow, weights[arrow.at] / most))}
      <path class="part" d=${this.drawn("values", [[0, 0], ...ends, tip])} />
      <path class="context" d=${this.drawn("values", [[0, 0], tip])} />
      ${this.tip("values", tip, "context")} ${this.names("values", [[tip, `c(${row.word})`]])}
    `;
  }

  /**
   * @param {Name} name @param {Arrow} arrow
   * @param {number} weight  From 0 to 1: how much is seen of it
   */
  arrow(name, arrow, weight) {
    const { letter, at, vector } = arrow;
    const place = this.placeOf(name, vector);
    const isHidden = letter !== "q" && this.row.keys[at].masked === null;
    const kind = [letter, this.isHeld(name, arrow) && "held", isHidden && "hid"];
    return html`<g
      class=${kind.filter(Boolean).join(" ")}
      key=${letter + at}
      style=${{ "--share": 0.25 + 0.75 * weight }}
    >
      <path d=${this.drawn(name, [[0, 0], place])} />
      ${this.tip(name, place, null)}
    </g>`;
  }

  /** @param {Name} name @param {number[]} place @param {string | null} kind */
  tip(name, place, kind) {
    const [x, y] = this.at(name, place);
    return html`<circle class=${kind} cx=${x} cy=${y} r="7" />`;
  }

  /**
   * The names of tips, on the side of each that is free; those of one tip share a line.
   * @param {Name} name
   * @param {[number[], string][]} others  Tips that are not dragged
   */
  names(name, others) {
    const own = this.arrows(name).map((arrow) => {
      const isNamed = arrow.letter === "q" || this.isHeld(name, arrow);
      return /** @type {[number[], string]} */ ([
        this.placeOf(name, arrow.vector),
        isNamed || this.named.includes(arrow.at) ? this.labelOf(arrow) : "",
      ]);
    });
    const tips = [...own, ...others].map(([place, label]) => ({ at: this.at(name, place), label }));
    const [left, top] = this.at(name, [0, 0]);
    // The names of the axes.
    const taken = [
      { left: HALF - 20, top: top + 3, right: HALF },
      { left: left - 20, top: -HALF, right: left },
    ];
    return placed(tips, [left, top], HALF, taken).map((place) => {
      return html`<text x=${place.left} y=${place.top} text-anchor=${place.anchor}
        >${place.text}</text
      >`;
    });
  }

  /** Where the tip of a vector stands in a plane. @param {Name} name @param {number[]} vector */
  placeOf(name, vector) {
    return this.axes[name].map((axis) => dot(axis, vector));
  }

  /** @param {Name} name @param {number[]} place */
  at(name, [x, y]) {
    const [across, up] = this.middles[name];
    const scale = HALF / this.sizes[name];
    return [x - across, up - y].map((each) => Number((each * scale).toFixed(2)));
  }

  /**
   * A line through places of a plane; through a single one, a dot.
   * @param {Name} name @param {number[][]} places
   */
  drawn(name, places) {
    const [first, ...others] = places.map((place) => this.at(name, place).join(" "));
    return `M${first}${others.map((each) => `L${each}`).join("") || "h0"}`;
  }

  /** The key whose score is worked out: the one that is held, or else the query's own. */
  get scored() {
    const { letter, at } = this.held.keys;
    return letter === "k" ? at : this.row.query;
  }

  /** @param {Worked} worked */
  table({ scores, masked, weights }) {
    const { t, scored: at, row, shown, words } = this;
    const rest = row.keys.filter(({ place }) => !shown.includes(place)).map(({ place }) => place);
    const others = t("walk.others", { count: grouped(rest.length) });
    const weight = sum(rest.map((each) => weights[each]));
    return html`
      <p class="line">${partElements(this.sumOf(at, scores[at]), row.decimals, h)}</p>
      <div class="bars" style=${{ "--rows": 1 + shown.length + Number(rest.length > 0) }}>
        <span></span>
        <span class="head">${t("steps.scaled")}</span>
        <span class="head">${t("steps.weights")}</span>
        <span></span>
        ${shown.map((each, place) => {
          const scaled = html`<output>${decimal(masked[each], 2)}</output>`;
          const shownBar = bar(weights[each], masked[each] === -Infinity);
          return barLine(words[place], scaled, shownBar, shortWeight(weights[each], 3));
        })}
        ${rest.length > 0 && barLine(others, null, bar(weight, false), shortWeight(weight, 3))}
      </div>
    `;
  }

  /**
   * A score as the length of the query times that of the key's shadow on it, and what the numbers
   * add that are not in the plane.
   * @param {number} at @param {number} score @returns {Part[]}
   */
  sumOf(at, score) {
    const { q, keys, shown, words, isFitted } = this;
    const [query, key] = [q, keys[at]].map((each) => this.placeOf("keys", each));
    const length = Math.hypot(...query);
    const inPlane = dot(query, key);
    const rest = isFitted || q.length === 2 ? [] : [" + ", score - inPlane];
    const shadow = length ? inPlane / length : 0;
    const word = words[shown.indexOf(at)];
    return [`s(${word}) = |q|·p = `, length, "·", shadow, ...rest, " = ", score];
  }
}

/**
 * Something of each plane.
 * @template Made
 * @param {(name: Name) => Made} make @returns {Record<Name, Made>}
 */
function both(make) {
  return { keys: make("keys"), values: make("values") };
}
