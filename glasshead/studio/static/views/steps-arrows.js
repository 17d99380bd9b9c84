// Drag the arrows: the query, the keys and the values in a plane; scores, weights and context follow.
import { menu } from "../controls.js";
import { button, element, moveOf } from "../dom.js";
import { NORMALIZERS } from "../normalizers.js";
import { decimal, range } from "../numbers.js";
import { onDrag } from "../parts/dragging.js";
import { html, render } from "../parts/html.js";
import { bar, partsOf } from "./steps-bars.js";
import { largestOf, shortWeight } from "./steps-layout.js";

/**
 * @import { Context } from "../app.js"
 * @import { Material } from "./steps-practice.js"
 * @import { Part, StepsData } from "./steps-sums.js"
 */

/**
 * An arrow of a plane: its letter, the place of its word, and its vector, which is dragged.
 * @typedef {{letter: "q" | "k" | "v", at: number, vector: number[]}} Arrow
 */

/** @typedef {[number, number]} Pair  Two numbers of a vector: those of the plane */

// Half of a plane's side, in its own units, and how near a pointer takes hold of a tip.
const HALF = 150;
const NEAR = 24;
// A step of the keyboard, of the length of the longest arrow.
const STEP = 0.05;
// Planes are larger than their arrows.
const ROOM = 1.4;
// More words have no room for their names.
const NAMED = 8;
// Between names.
const LINE = 13;

export class Arrows {
  /** @param {Context} context */
  constructor({ t }) {
    this.t = t;
    /** @type {StepsData} */
    this.data = null;
    this.query = 0;
    // What the vectors were when they were not dragged.
    this.origin = "";
    /** @type {Pair} */
    this.pair = [0, 1];
    /** @type {Record<"keys" | "values", Arrow>} */
    this.held = { keys: null, values: null };
    this.controls = element("div.controls");
    this.planes = { keys: this.plane("keys"), values: this.plane("values") };
    this.numbers = element("div");
    const { keys, values } = this.planes;
    this.element = element(
      "section.walk.drag",
      { "aria-label": t("practice.drag") },
      element("p.said", t("drag.says")),
      this.controls,
      element("div.planes", keys, values),
      this.numbers,
    );
    this.none = element("p.said", { hidden: true }, t("drag.none"));
    this.element.prepend(this.none);
  }

  /** @param {Material} material */
  show({ data, at }) {
    const { queries, keys, values } = data.matrices;
    const origin = JSON.stringify([queries[at], keys, values]);
    this.data = data;
    this.query = at;
    const isFlat = queries[at].length < 2;
    for (const each of this.element.children) {
      /** @type {HTMLElement} */ (each).hidden = isFlat !== (each === this.none);
    }
    if (isFlat) return;
    if (origin !== this.origin) {
      this.origin = origin;
      this.pair = widest([queries[at], ...keys]);
      this.reset();
    }
    this.draw();
  }

  /** Put all arrows back to the vectors of the sentence. */
  reset() {
    const { queries, keys, values } = this.data.matrices;
    this.q = [...queries[this.query]];
    this.keys = keys.map((key) => [...key]);
    this.values = values.map((value) => [...value]);
    this.sizes = {
      keys: ROOM * largestOf([this.q, ...this.keys]),
      values: ROOM * largestOf(this.values),
    };
    this.held = { keys: this.arrows("keys")[0], values: this.arrows("values")[this.query] };
    this.layOut();
  }

  layOut() {
    const { t, pair, q, data } = this;
    const pairs = range(q.length).flatMap((one) => {
      return range(q.length)
        .slice(one + 1)
        .map((other) => [one, other]);
    });
    const options = /** @type {[string, string][]} */ (
      pairs.map(([one, other]) => [
        `${one}.${other}`,
        t("drag.pair", { one: one + 1, other: other + 1 }),
      ])
    );
    /** @param {"keys" | "values"} name */
    const choose = (name) => {
      const arrows = this.arrows(name);
      const names = /** @type {[number, string][]} */ (
        arrows.map((arrow, at) => [at, labelOf(arrow, data.words)])
      );
      const held = arrows.findIndex(({ letter, at }) => {
        return letter === this.held[name].letter && at === this.held[name].at;
      });
      return menu(t(`drag.${name}`), names, held, (at) => this.take(name, arrows[Number(at)]));
    };
    const [inKeys, inValues] = [choose("keys"), choose("values")];
    this.menus = { keys: inKeys, values: inValues };
    const planes =
      pairs.length > 1
        ? menu(t("drag.plane"), options, pair.join("."), (chosen) => {
            this.pair = /** @type {Pair} */ (chosen.split(".").map(Number));
            this.draw();
          })
        : null;
    const back = button(t("drag.reset"), () => {
      this.reset();
      this.draw();
      this.controls.querySelector("button").focus();
    });
    this.controls.replaceChildren(...[inKeys, inValues, planes, back].filter(Boolean));
  }

  /**
   * The arrows of a plane: the query and the keys, or the values.
   * @param {"keys" | "values"} name
   * @returns {Arrow[]}
   */
  arrows(name) {
    if (name === "values") return this.values.map((vector, at) => ({ letter: "v", at, vector }));
    const keys = this.keys.map((vector, at) => {
      return /** @type {Arrow} */ ({ letter: "k", at, vector });
    });
    return [{ letter: "q", at: this.query, vector: this.q }, ...keys];
  }

  /**
   * Let the keyboard move another arrow.
   * @param {"keys" | "values"} name
   * @param {Arrow} arrow
   */
  take(name, arrow) {
    this.held[name] = arrow;
    this.draw();
  }

  /**
   * A plane that is dragged in, and walked by the arrow keys.
   * @param {"keys" | "values"} name
   */
  plane(name) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    made.setAttribute("viewBox", `${-HALF} ${-HALF} ${2 * HALF} ${2 * HALF}`);
    made.setAttribute("tabindex", "0");
    made.setAttribute("role", "slider");
    made.addEventListener("keydown", (event) => {
      const [down, right] = moveOf(event) ?? [Infinity, 0];
      if (!Number.isFinite(down + right)) return;
      event.preventDefault();
      const step = (STEP * this.sizes[name]) / ROOM;
      const [x, y] = this.pair.map((each) => this.held[name].vector[each]);
      this.move(name, x + right * step, y - down * step);
    });
    /** @param {PointerEvent} event */
    const placeOf = (event) => {
      const { left, top, width, height } = made.getBoundingClientRect();
      const x = ((event.clientX - left) / width) * 2 - 1;
      const y = 1 - ((event.clientY - top) / height) * 2;
      return [x * this.sizes[name], y * this.sizes[name]];
    };
    onDrag(
      made,
      (event) => {
        const arrow = this.nearest(name, placeOf(event));
        if (arrow) {
          this.take(name, arrow);
          this.menus[name].set(
            this.arrows(name).findIndex(({ letter, at }) => {
              return letter === arrow.letter && at === arrow.at;
            }),
          );
        }
        return Boolean(arrow);
      },
      (event) => {
        const [x, y] = placeOf(event);
        this.move(name, x, y);
      },
    );
    return made;
  }

  /**
   * The arrow whose tip is near a place; null where none is.
   * @param {"keys" | "values"} name
   * @param {number[]} place
   */
  nearest(name, [x, y]) {
    const [one, other] = this.pair;
    const far = this.arrows(name).map(({ vector }) =>
      Math.hypot(vector[one] - x, vector[other] - y),
    );
    const least = Math.min(...far);
    const near = (NEAR / HALF) * this.sizes[name];
    return least <= near ? this.arrows(name)[far.indexOf(least)] : null;
  }

  /**
   * Move the tip of the arrow that is held, within its plane.
   * @param {"keys" | "values"} name
   * @param {number} x
   * @param {number} y
   */
  move(name, x, y) {
    const { vector } = this.held[name];
    const most = this.sizes[name];
    [x, y].forEach((each, at) => {
      vector[this.pair[at]] = Math.max(-most, Math.min(most, each));
    });
    this.draw();
  }

  /** What follows from the arrows. */
  worked() {
    const { data, q, keys, values, query } = this;
    const scores = keys.map((key) => dot(q, key));
    const masked = scores.map((score, at) => {
      return data.matrices.masked[query][at] === null ? -Infinity : score * data.beta;
    });
    const weights = NORMALIZERS[data.normalizer](masked);
    const context = range(values[0].length).map((each) => {
      return weights.reduce((sum, weight, at) => sum + weight * values[at][each], 0);
    });
    return { scores, masked, weights, context };
  }

  draw() {
    const worked = this.worked();
    this.drawPlane("keys", this.keyPlane());
    this.drawPlane("values", this.valuePlane(worked));
    this.tell("keys", worked.weights);
    this.tell("values", worked.weights);
    render(this.table(worked), this.numbers);
  }

  /**
   * @param {"keys" | "values"} name
   * @param {any} marks
   */
  drawPlane(name, marks) {
    const axes = html`<path class="axes" d="M${-HALF} 0H${HALF}M0 ${-HALF}V${HALF}" />`;
    render(html`<g>${axes}${marks}</g>`, this.planes[name]);
  }

  /**
   * Say where the tip of the arrow that is held stands, and what follows.
   * @param {"keys" | "values"} name
   * @param {number[]} weights
   */
  tell(name, weights) {
    const { t, planes, held, pair, sizes, data } = this;
    const { letter, at, vector } = held[name];
    const [x, y] = pair.map((each) => decimal(vector[each], 2));
    const weight =
      letter === "q" ? null : t("drag.weight", { weight: shortWeight(weights[at], 3) });
    planes[name].ariaLabel = labelOf(held[name], data.words);
    planes[name].ariaValueMin = String(-sizes[name]);
    planes[name].ariaValueMax = String(sizes[name]);
    planes[name].ariaValueNow = String(vector[pair[0]]);
    planes[name].ariaValueText = [`(${x}, ${y})`, weight].filter(Boolean).join(t("shell.comma"));
  }

  keyPlane() {
    const { q, pair, sizes, held, keys } = this;
    const [one, other] = pair;
    const length = Math.hypot(q[one], q[other]) || 1;
    const along = [q[one] / length, q[other] / length];
    const far = 2 * sizes.keys;
    const line = [along.map((each) => each * -far), along.map((each) => each * far)];
    const shown = keys.length <= NAMED ? range(keys.length) : [held.keys.at];
    const feet = shown.map((at) => {
      const tip = pair.map((each) => keys[at][each]);
      const size = tip[0] * along[0] + tip[1] * along[1];
      return html`<path
        class="foot"
        d=${this.path("keys", [tip, along.map((each) => each * size)])}
      />`;
    });
    return html`
      <path class="line" d=${this.path("keys", line)} />
      ${feet} ${[...this.arrows("keys")].reverse().map((arrow) => this.arrow("keys", arrow, 1))}
      ${this.names("keys", [])}
    `;
  }

  /** @param {ReturnType<Arrows["worked"]>} worked */
  valuePlane({ weights, context }) {
    const { pair, values } = this;
    let end = [0, 0];
    const chain = values.map((value, at) => {
      const from = end;
      end = pair.map((each, axis) => from[axis] + weights[at] * value[each]);
      return html`<path class="part" d=${this.path("values", [from, end])} />`;
    });
    const most = Math.max(...weights) || 1;
    const tip = pair.map((each) => context[each]);
    return html`
      ${this.arrows("values").map((arrow) => this.arrow("values", arrow, weights[arrow.at] / most))}
      ${chain}
      <path class="context" d=${this.path("values", [[0, 0], tip])} />
      ${this.tip("values", tip, "context")}
      ${this.names("values", [[tip, `c(${this.data.words[this.query]})`]])}
    `;
  }

  /**
   * @param {"keys" | "values"} name
   * @param {Arrow} arrow
   * @param {number} weight  From 0 to 1: how much is seen of it
   */
  arrow(name, arrow, weight) {
    const { letter, at, vector } = arrow;
    const tip = this.pair.map((each) => vector[each]);
    const { letter: heldLetter, at: heldAt } = this.held[name];
    const isHeld = letter === heldLetter && at === heldAt;
    const isHidden = letter !== "q" && this.data.matrices.masked[this.query][at] === null;
    const kind = [letter, isHeld && "held", isHidden && "hid"].filter(Boolean).join(" ");
    return html`<g class=${kind} key=${letter + at} style=${{ "--share": 0.25 + 0.75 * weight }}>
      <path d=${this.path(name, [[0, 0], tip])} />
      ${this.tip(name, tip, null)}
    </g>`;
  }

  /**
   * @param {"keys" | "values"} name
   * @param {number[]} place
   * @param {string | null} kind
   */
  tip(name, place, kind) {
    const [x, y] = this.at(name, place);
    return html`<circle class=${kind} cx=${x} cy=${y} r="6" />`;
  }

  /**
   * The names of tips, of which none covers another.
   * @param {"keys" | "values"} name
   * @param {[number[], string][]} others  Tips that are not dragged
   */
  names(name, others) {
    const { held, values, pair, data } = this;
    const arrows = this.arrows(name).filter(({ letter, at }) => {
      const isHeld = letter === held[name].letter && at === held[name].at;
      return isHeld || letter === "q" || values.length <= NAMED;
    });
    const named = arrows.map((arrow) => {
      const tip = pair.map((each) => arrow.vector[each]);
      return /** @type {[number[], string]} */ ([tip, labelOf(arrow, data.words)]);
    });
    const placed = [...named, ...others].map(([tip, label]) => ({
      place: this.at(name, tip),
      label,
    }));
    let free = -Infinity;
    return placed
      .sort((one, other) => one.place[1] - other.place[1])
      .map(({ place: [x, y], label }) => {
        free = Math.max(free + LINE, y);
        const isLeft = x < 0;
        return html`<text
          x=${x + (isLeft ? -10 : 10)}
          y=${free + 4}
          text-anchor=${isLeft ? "end" : "start"}
        >
          ${label}
        </text>`;
      });
  }

  /**
   * @param {"keys" | "values"} name
   * @param {number[]} place
   */
  at(name, [x, y]) {
    return [x, -y].map((each) => Number(((each / this.sizes[name]) * HALF).toFixed(2)));
  }

  /**
   * @param {"keys" | "values"} name
   * @param {number[][]} places
   */
  path(name, places) {
    return `M${places.map((place) => this.at(name, place).join(" ")).join("L")}`;
  }

  /** @param {ReturnType<Arrows["worked"]>} worked */
  table({ scores, masked, weights }) {
    const { t, data, held, keys } = this;
    const at = held.keys.letter === "k" ? held.keys.at : this.query;
    return html`
      <p class="line">${partsOf(this.line(at, scores[at]), data.decimals.sums)}</p>
      <div class="bars">
        <span></span>
        <span class="head">${t("steps.scaled")}</span>
        <span class="head">${t("steps.weights")}</span>
        <span></span>
        ${keys.map(
          (_, each) => html`
            <span class="word">${data.words[each]}</span>
            <output>${decimal(masked[each], 2)}</output>
            ${bar(weights[each], masked[each] === -Infinity)}
            <output>${shortWeight(weights[each], 3)}</output>
          `,
        )}
      </div>
    `;
  }

  /**
   * A score as the length of the query times that of the key's shadow on it, and what the numbers
   * add that are not in the plane.
   * @param {number} at
   * @param {number} score
   * @returns {Part[]}
   */
  line(at, score) {
    const { q, keys, pair, data } = this;
    const [one, other] = pair;
    const length = Math.hypot(q[one], q[other]);
    const inPlane = q[one] * keys[at][one] + q[other] * keys[at][other];
    const shadow = length ? inPlane / length : 0;
    const rest = q.length > 2 ? [" + ", score - inPlane] : [];
    return [`s(${data.words[at]}) = |q|·p = `, length, "·", shadow, ...rest, " = ", score];
  }
}

/**
 * @param {Arrow} arrow
 * @param {string[]} words
 */
function labelOf({ letter, at }, words) {
  return `${letter}(${words[at]})`;
}

/**
 * The two numbers that vectors have most of.
 * @param {number[][]} vectors
 * @returns {Pair}
 */
function widest(vectors) {
  const sizes = vectors[0].map((_, at) => vectors.reduce((sum, each) => sum + each[at] ** 2, 0));
  const [one, other] = range(sizes.length).sort((first, second) => sizes[second] - sizes[first]);
  return /** @type {Pair} */ ([one, other].sort());
}

/**
 * @param {number[]} one
 * @param {number[]} other
 */
function dot(one, other) {
  return one.reduce((sum, each, at) => sum + each * other[at], 0);
}
