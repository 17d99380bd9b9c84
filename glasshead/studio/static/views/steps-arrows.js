// Drag the arrows: the query, the keys and the values in a plane; scores, weights and context follow.
import { choice, menu } from "../controls.js";
import { button, element, fill } from "../dom.js";
import { NORMALIZERS } from "../normalizers.js";
import { decimal, dot, grouped, largestFirst, range, sum } from "../numbers.js";
import { h, html, render } from "../parts/html.js";
import { ArrowPlane, planeOfPair, planeWith, widest } from "./steps-arrow-plane.js";
import { bar, barLine } from "./steps-bars.js";
import { shortWeight } from "./steps-layout.js";
import { vector } from "./steps-row.js";
import { factor, partElements, product, subscript } from "./steps-sums.js";

/** @import { Context } from "../app.js" */
/** @import { Material, Opened } from "./steps-practice.js" */
/** @import { Row } from "./steps-row.js" */
/** @import { Part } from "./steps-sums.js" */

// More words have no room for their names.
const NAMED = 9;
// Vectors of more numbers are seen in planes of their own, not in those of two numbers.
const NUMBERS = 4;

export class Arrows {
  /** @param {Context} context @param {Opened} opened */
  constructor({ t }, opened) {
    this.t = t;
    this.opened = opened;
    // What the vectors were when they were not dragged.
    this.origin = "";
    this.none = element("p.said");
    this.controls = element("div.controls");
    // The plane whose formula is written.
    this.told = "keys";
    const tell = (/** @type {string} */ name) => {
      this.told = name;
      this.draw();
    };
    const keys = new ArrowPlane(t, "keys", () => tell("keys"));
    const values = new ArrowPlane(t, "values", () => tell("values"));
    this.planes = { keys, values };
    this.numbers = element("div");
    // A telephone has room for one plane.
    const shown = choice(
      t("practice.drag"),
      [keys, values].map(({ name, title }) => [name, title]),
      "keys",
      tell,
    );
    // Without vectors there is nothing to drag.
    this.body = element(
      "div",
      { hidden: true },
      element("p.said", t("drag.says"), " ", element("span.help", t("drag.keyboard"))),
      element("div.one-plane", shown),
      element("div.worked", keys.figure, values.figure, this.controls, this.numbers),
    );
    const attributes = { "aria-label": t("practice.drag") };
    this.element = element("section.walk.drag", attributes, this.none, this.body);
  }

  async show(/** @type {Material} */ material) {
    this.material = material;
    const { row } = material;
    const origin = JSON.stringify([row.q, row.keys.map(({ k, v }) => [k, v]), row.rest]);
    if (origin !== this.origin) {
      const whole = (await material.whole?.()) ?? row;
      if (this.material !== material) return;
      this.origin = origin;
      this.row = whole;
      // The keys that have an arrow; of others there is a dot.
      this.shown = row.keys.map(({ place }) => place);
      const all = whole.keys.map(({ place }) => place);
      this.others = all.filter((at) => !this.shown.includes(at));
      this.fault = faultOf(whole);
      if (!this.fault) this.reset();
    } else if (!material.whole) {
      this.row = row;
    }
    fill(this.none, this.fault && this.t(this.fault));
    this.none.hidden = !this.fault;
    this.body.hidden = !this.none.hidden;
    this.opened(!this.fault);
    if (!this.fault) this.draw();
  }

  /** Put all arrows back to the vectors of the query. */
  reset() {
    const { row, shown, planes } = this;
    this.q = [...row.q];
    this.keys = row.keys.map(({ k }) => [...k]);
    this.values = row.keys.map(({ v }) => [...v]);
    this.words = this.material.row.keys.map(({ word }) => word);
    this.named = largestFirst(shown, (at) => row.keys[at].weight).slice(0, NAMED);
    /** @param {string} letter @param {number[][]} vectors */
    const arrowsOf = (letter, vectors) => {
      return shown.map((at, place) => {
        const label = `${letter}(${this.words[place]})`;
        return { letter, at, vector: vectors[at], label, isNamed: this.named.includes(at) };
      });
    };
    const label = `q(${row.word})`;
    const query = { letter: "q", at: row.query, vector: this.q, label, isNamed: true };
    const strongest = shown.indexOf(this.named[0]);
    const [ks, vs] = [arrowsOf("k", this.keys), arrowsOf("v", this.values)];
    planes.keys.begin([query, ...ks], ks[strongest]);
    planes.values.begin(vs, vs[strongest]);
    this.pair = widest([row.q, ...row.keys.map((key) => key.k)]);
    this.turn();
    this.layOut();
  }

  /** Whether planes are chosen for their vectors, which have more numbers than one could choose of. */
  get isFitted() {
    const { q, context } = this.row;
    return q.length > NUMBERS || q.length !== context.length;
  }

  /** Those of some keys that are not hidden. @param {number[]} places */
  seen(places) {
    return places.filter((at) => this.row.keys[at].masked !== null);
  }

  /** Turn both planes to the numbers that are chosen, or to what they can show most of. */
  turn() {
    const { row, pair, isFitted, planes } = this;
    for (const plane of Object.values(planes)) {
      const { name } = plane;
      const main = name === "keys" ? row.q : row.context;
      const [own, others] = [this.shown, this.others].map((places) => {
        return this.seen(places).map((at) => this[name][at]);
      });
      plane.turn(
        isFitted ? planeWith(main, own) : planeOfPair(main.length, pair),
        // In a rotated plane, an axis is not one of the vector's numbers.
        isFitted ? [] : pair.map((each) => name[0] + subscript(each)),
        others,
      );
    }
  }

  layOut() {
    const { t, pair, q, isFitted, planes } = this;
    const all = range(isFitted ? 0 : q.length);
    const pairs = all.flatMap((one) => all.slice(one + 1).map((other) => [one, other]));
    const options = pairs.map(([one, other]) => [
      `${one}.${other}`,
      t("drag.pair", { one: one + 1, other: other + 1 }),
    ]);
    const choose = (/** @type {string} */ chosen) => {
      this.pair = chosen.split(".").map(Number);
      this.turn();
      this.draw();
    };
    const back = button(t("drag.reset"), () => {
      this.reset();
      this.draw();
      this.controls.querySelector("button").focus();
    });
    fill(
      this.controls,
      planes.keys.menu,
      planes.values.menu,
      pairs.length > 1 && menu(t("drag.plane"), options, pair.join("."), choose),
      back,
    );
  }

  draw() {
    const { t, row, q, keys, values, isFitted, planes } = this;
    const worked = workedOut(row, q, keys);
    const context = values[0].map((_, each) => {
      // A hidden value, which may be anything, has no part.
      return sum(worked.weights.map((weight, at) => weight && weight * values[at][each]));
    });
    const seen = this.seen(this.shown).map((at) => keys[at]);
    const name = isFitted ? "drag.scores" : "drag.rest";
    const scores = q.length > 2 && t(name, { share: planes.keys.shareOf(seen) });
    const share = { share: planes.values.shareOf([context]) };
    const dots = this.seen(this.others).length > 0 && t("drag.others");
    const kept = context.length > 2 && t("drag.share", share);
    const part = [kept, t("drag.path"), dots].filter(Boolean).join(" ");
    planes.keys.draw(worked, this.keyMarks(worked), scores);
    planes.values.draw(worked, this.valueMarks(worked, context), part);
    const line = this.told === "keys" ? this.sumOf(worked.scores) : this.contextOf(context);
    render(this.table(worked, line), this.numbers);
  }

  keyMarks(/** @type {Worked} */ worked) {
    const { keys: plane } = this.planes;
    const { size } = plane.square;
    const place = plane.placeOf(this.q);
    const length = Math.hypot(...place) || 1;
    const along = place.map((each) => each / length);
    const onLine = (/** @type {number} */ far) => along.map((each) => each * far);
    const footOf = (/** @type {number} */ at) => onLine(dot(plane.placeOf(this.keys[at]), along));
    const shadow = footOf(plane.held.at);
    const middle = shadow.map((each) => each / 2);
    return [
      plane.line("line", onLine(-3 * size), onLine(3 * size)),
      plane.line("shadow", [0, 0], shadow),
      this.named.map((at) => plane.line("foot", plane.placeOf(this.keys[at]), footOf(at))),
      plane.marks(worked).reverse(),
      plane.labels(middle, "r"),
    ];
  }

  /** @param {Worked} worked @param {number[]} context */
  valueMarks(worked, context) {
    const { values: plane } = this.planes;
    const tip = plane.placeOf(context);
    let end = [0, 0];
    // The shares of the values one after the other, and at last that of all others.
    const ends = this.shown.map((at) => {
      const value = plane.placeOf(this.values[at]);
      end = value.map((each, axis) => end[axis] + worked.weights[at] * each);
      return end;
    });
    return [
      plane.marks(worked),
      plane.line("part", [0, 0], ...ends, tip),
      plane.line("context", [0, 0], tip),
      plane.tip(tip, "context"),
      plane.labels(tip, `c(${this.row.word})`),
    ];
  }

  /** @param {Worked} worked @param {Part[]} line */
  table({ masked, weights }, line) {
    const { t, row, shown, others, words } = this;
    const told = t("walk.others", { count: grouped(this.seen(others).length || others.length) });
    const weight = sum(others.map((each) => weights[each]));
    const isScaled = !row.changes.some((phase) => phase === "capped" || phase === "biased");
    return html`
      <p class=${this.told === "keys" ? "line" : "line listed"}>
        ${partElements(line, row.decimals, h)}
      </p>
      <div class="bars" style=${{ "--rows": 1 + shown.length + Number(others.length > 0) }}>
        <span></span>
        <span class="head">${isScaled && !row.isHard ? "β·s" : t("steps.scaled")}</span>
        <span class="head">${t("steps.weights")}</span>
        <span></span>
        ${shown.map((each, place) => {
          const scaled = html`<output>${decimal(masked[each], 2)}</output>`;
          const shownBar = bar(weights[each], masked[each] === -Infinity);
          return barLine(words[place], scaled, shownBar, shortWeight(weights[each], 3));
        })}
        ${others.length > 0 && barLine(told, null, bar(weight, false), shortWeight(weight, 3))}
      </div>
    `;
  }

  /** The context, which the weights mix of the values. @param {number[]} context @returns {Part[]} */
  contextOf(context) {
    return [`c(${this.row.word}) = Σ p·v = `, ...vector(context)];
  }

  // The score of the key that is held, or else the query's own: the length of the query times that
  // of the key's shadow on it, and what the numbers add that are not in the plane.
  /** @param {number[]} scores @returns {Part[]} */
  sumOf(scores) {
    const { q, keys, shown, words, isFitted } = this;
    const { keys: plane } = this.planes;
    const { at } = plane.held;
    const [query, key] = [q, keys[at]].map((each) => plane.placeOf(each));
    const length = Math.hypot(...query);
    const inPlane = dot(query, key);
    const rest = isFitted || q.length === 2 ? [] : [" + ", ...factor(scores[at] - inPlane)];
    const shadow = length ? inPlane / length : 0;
    const word = words[shown.indexOf(at)];
    return [
      `s(${word}) = |q|·r${rest.length ? " + …" : ""} = `,
      ...product(length, shadow),
      ...rest,
      " = ",
      scores[at],
    ];
  }
}

// What follows from a query and keys that are dragged: scores, and weights.

// How far from the weights of a head those may be that follow from its vectors.
const ROUNDING = 1e-3;

/** @typedef {{scores: number[], masked: number[], weights: number[]}} Worked */

// What follows from a query and keys, with all that a row has besides.
/** @param {Row} row @param {number[]} query @param {number[][]} keys @returns {Worked} */
function workedOut({ beta, softcap, sink, kind, keys: own }, query, keys) {
  const scores = keys.map((key) => dot(query, key));
  const masked = scores.map((score, at) => {
    if (own[at].masked === null) return -Infinity;
    const scaled = score * beta;
    return (
      (softcap === null ? scaled : softcap * Math.tanh(scaled / softcap)) + (own[at].bias ?? 0)
    );
  });
  // The library gives no weight where all keys are hidden.
  const isEmpty = masked.every((score) => score === -Infinity);
  // A sink of another score than 0 is one of 0 among scores that are so much smaller.
  const weights = isEmpty
    ? masked.map(() => 0)
    : NORMALIZERS[kind](masked.map((score) => score - (sink ?? 0)));
  return { scores, masked, weights };
}

/** Why the arrows of a row cannot be dragged. @param {Row} row */
function faultOf(row) {
  const { q, context, keys, isProduct, kind } = row;
  if (Math.min(q.length, context.length) < 2) return "drag.none";
  if (!isProduct || !Object.hasOwn(NORMALIZERS, kind)) return "drag.unknown";
  const vectors = keys.map((key) => key.k);
  const { weights } = workedOut(row, q, vectors);
  const isOwn = weights.every((each, at) => Math.abs(each - keys[at].weight) < ROUNDING);
  return isOwn ? null : "drag.unknown";
}
