// A plane of arrows, one of which is held: a pointer drags its tip, and the arrow keys move it.
import { menu } from "../controls.js";
import { element, moveOf } from "../dom.js";
import { clamped, decimal, dot, largestFirst, range, sum } from "../numbers.js";
import { html, render } from "../parts/html.js";
import { between, largestOf, shortWeight, squareAround } from "./steps-layout.js";

/** @import { Translate } from "../app.js" */
/** @import { Worked } from "./steps-arrows.js" */

/**
 * An arrow: its letter, the place of its word, its vector, which is dragged, and its name, which is
 * in sight while it is held if not always.
 * @typedef {{letter: string, at: number, vector: number[], label: string, isNamed: boolean}} Arrow
 */

/** @typedef {PointerEvent & {currentTarget: SVGSVGElement}} Pointed */

// Half of a plane's side, in its own units, and how near a pointer takes hold of a tip.
const HALF = 150;
const NEAR = 24;
// A step of the keyboard, of the length of the longest arrow.
const STEP = 0.05;

export class ArrowPlane {
  /** @param {Translate} t @param {"keys" | "values"} name @param {() => void} changed */
  constructor(t, name, changed) {
    this.t = t;
    this.name = name;
    this.title = t(`drag.${name}`);
    this.changed = changed;
    this.figure = element("figure");
    this.isDragged = false;
  }

  /** Show arrows, and hold one of them. @param {Arrow[]} arrows @param {Arrow} held */
  begin(arrows, held) {
    this.arrows = arrows;
    this.held = held;
    this.menu = menu(
      this.title,
      arrows.map(({ label }, place) => [place, label]),
      arrows.indexOf(this.held),
      (place) => this.take(arrows[Number(place)]),
    );
  }

  // Turn to a plane among the vectors, whose axes may have names; others without an arrow are dots.
  /** @param {Plane} axes @param {string[]} names @param {number[][]} others */
  turn(axes, names, others) {
    this.axes = axes;
    this.names = names;
    const vectors = this.arrows.map(({ vector }) => vector);
    const tips = vectors.map((each) => this.placeOf(each));
    this.length = largestOf(names.length ? vectors : tips);
    this.square = squareAround(tips, this.length);
    this.cloud = others.map((each) => this.path([this.placeOf(each)])).join("");
  }

  take(/** @type {Arrow} */ arrow) {
    this.held = arrow;
    this.menu.set(this.arrows.indexOf(arrow));
    this.changed();
  }

  key(/** @type {KeyboardEvent} */ event) {
    const move = moveOf(event);
    if (!move?.every(Number.isFinite)) return;
    event.preventDefault();
    const [down, right] = move;
    const step = STEP * this.length;
    const [x, y] = this.placeOf(this.held.vector);
    this.move([x + right * step, y - down * step]);
  }

  /** Hold and drag the arrow whose tip is near. @param {Pointed} event */
  press(event) {
    const [x, y] = this.pointedAt(event);
    const far = (/** @type {Arrow} */ { vector }) => {
      const [across, up] = this.placeOf(vector);
      return Math.hypot(across - x, up - y);
    };
    const [nearest] = largestFirst(this.arrows, (arrow) => -far(arrow));
    if (event.button || far(nearest) > (NEAR / HALF) * this.square.size) return;
    this.take(nearest);
    event.currentTarget.setPointerCapture(event.pointerId);
    this.isDragged = true;
  }

  pointedAt(/** @type {Pointed} */ { clientX, clientY, currentTarget }) {
    const toOwnUnits = currentTarget.getScreenCTM().inverse();
    const { x, y } = new DOMPoint(clientX, clientY).matrixTransform(toOwnUnits);
    const { middle, size } = this.square;
    return [x, -y].map((each, axis) => middle[axis] + (each / HALF) * size);
  }

  /** Move the tip of the arrow that is held, within the plane. @param {number[]} to */
  move(to) {
    const { held } = this;
    const { middle, size } = this.square;
    const from = this.placeOf(held.vector);
    this.axes.forEach((axis, at) => {
      const by = clamped(to[at], middle[at] - size, middle[at] + size) - from[at];
      axis.forEach((each, number) => {
        held.vector[number] += by * each;
      });
    });
    this.changed();
  }

  /** Where the tip of a vector stands. @param {number[]} vector */
  placeOf(vector) {
    return this.axes.map((axis) => dot(axis, vector));
  }

  /** How much it shows of squared lengths, in percent. @param {number[][]} vectors */
  shareOf(vectors) {
    const tips = vectors.map((each) => this.placeOf(each));
    const [inPlane, all] = [tips, vectors].map((ones) => sum(ones.flat().map((each) => each ** 2)));
    return decimal((100 * inPlane) / (all || 1), 0);
  }

  /** A place in the units of the drawing. @param {number[]} place */
  drawn([x, y]) {
    const { middle, size } = this.square;
    const far = [x - middle[0], middle[1] - y];
    return far.map((each) => Number(((each / size) * HALF).toFixed(2)));
  }

  /** A line through places; through a single one, a dot. @param {number[][]} places */
  path(places) {
    const [first, ...others] = places.map((place) => this.drawn(place).join(" "));
    return `M${first}${others.map((each) => `L${each}`).join("") || "h0"}`;
  }

  /** @param {string} kind @param {...number[]} places */
  line(kind, ...places) {
    return html`<path class=${kind} d=${this.path(places)} />`;
  }

  /** @param {number[]} place @param {string} [kind] */
  tip(place, kind) {
    const [x, y] = this.drawn(place);
    return html`<circle class=${kind} cx=${x} cy=${y} r="7" />`;
  }

  // Draw marks, and say where the tip of the arrow that is held stands, and what follows.
  /** @param {Worked} worked @param {any} marks @param {string} caption */
  draw({ weights }, marks, caption) {
    const { t, title, held } = this;
    const { middle, size } = this.square;
    const [left, top] = this.drawn([0, 0]);
    const [across, up] = this.names;
    const [x, y] = this.placeOf(held.vector);
    const place = `(${decimal(x, 2)}, ${decimal(y, 2)})`;
    const weight = t("drag.weight", { weight: shortWeight(weights[held.at], 3) });
    const drawing = html`<b>${title}</b>
      <svg
        viewBox="${-HALF} ${-HALF} ${2 * HALF} ${2 * HALF}"
        tabindex="0"
        role="slider"
        aria-label=${held.label}
        aria-valuemin=${middle[0] - size}
        aria-valuemax=${middle[0] + size}
        aria-valuenow=${x}
        aria-valuetext=${held.letter === "q" ? place : place + t("shell.comma") + weight}
        onKeyDown=${(/** @type {KeyboardEvent} */ event) => this.key(event)}
        onPointerDown=${(/** @type {Pointed} */ event) => this.press(event)}
        onPointerMove=${(/** @type {Pointed} */ event) => {
          if (this.isDragged) this.move(this.pointedAt(event));
        }}
        onLostPointerCapture=${() => {
          this.isDragged = false;
        }}
      >
        <path class="axes" d="M${-HALF} ${top}H${HALF}M${left} ${-HALF}V${HALF}" />
        <text class="axis" x=${HALF - 4} y=${top + 14} text-anchor="end">${across}</text>
        <text class="axis" x=${left - 5} y=${12 - HALF} text-anchor="end">${up}</text>
        <path class="cloud" d=${this.cloud} />
        ${marks}
      </svg>
      <figcaption>${caption}</figcaption>`;
    render(drawing, this.figure);
  }

  /** All arrows, those of values as strong as their weights. @param {Worked} worked */
  marks({ masked, weights }) {
    const most = Math.max(...weights) || 1;
    return this.arrows.map((arrow) => {
      const { letter, at, vector } = arrow;
      const isHidden = letter !== "q" && masked[at] === -Infinity;
      const kind = [letter, arrow === this.held && "held", isHidden && "hid"];
      // A change that nobody sees would cost a style.
      const opacity = letter === "v" ? decimal(0.25 + (0.75 * weights[at]) / most, 2) : null;
      const place = this.placeOf(vector);
      return html`<g class=${kind.filter(Boolean).join(" ")} key=${letter + at} opacity=${opacity}>
        ${this.line(null, [0, 0], place)} ${this.tip(place)}
      </g>`;
    });
  }

  // The names of tips, on the side of each that is free; names of tips that are close share a line.
  /** @param {number[]} place  A tip that is not dragged @param {string} name */
  labels(place, name) {
    const tips = this.arrows.map((arrow) => {
      const label = arrow.isNamed || arrow === this.held ? arrow.label : "";
      return { at: this.drawn(this.placeOf(arrow.vector)), label };
    });
    tips.push({ at: this.drawn(place), label: name });
    const [left, top] = this.drawn([0, 0]);
    // The names of the axes.
    const taken = [
      { left: HALF - 20, top: top + 3, right: HALF },
      { left: left - 20, top: -HALF, right: left },
    ];
    return placed(tips, [left, top], HALF, taken).map(({ x, y, anchor, text }) => {
      return html`<text x=${x} y=${y} text-anchor=${anchor}>${text}</text>`;
    });
  }
}

// Where the names of arrows stand.

/** @typedef {{left: number, top: number, right: number}} Box  Of a name */

// The height of a name, the width of a letter, and how far a name stands from its tip.
const LINE = 13;
const LETTER = 6.2;
const BESIDE = 10;
// Of a name's box, the line that letters stand on.
const BASE = 10.5;
// Beside a tip, above and below: to the right or left first.
const BESIDES = [0, -1, 1].flatMap((down) => [1, -1].map((right) => [right, down]));
const SIDES = [...BESIDES, [0, -1], [0, 1]];
// Places along an arrow that a name should leave free.
const PLACES = 16;

/**
 * The places of names beside the tips of arrows: on the side of each where the fewest arrows and
 * names are.
 * @param {{at: number[], label: string}[]} tips  Some have no name
 * @param {number[]} origin  Where all arrows begin
 * @param {number} half  Half of the side of the plane, whose middle is 0 0
 * @param {Box[]} others  Where other names stand
 */
function placed(tips, [begin, base], half, others) {
  const taken = [...others];
  const places = tips.flatMap(({ at: [across, down] }) => {
    return range(PLACES).map((place) => {
      const part = (place + 1) / PLACES;
      // A tip is what is dragged.
      const [near, price] = part === 1 ? [7, 1 + 2 * PLACES] : [1, 1];
      return { x: between(begin, across, part), y: between(base, down, part), near, price };
    });
  });
  const covers = (/** @type {Box} */ { left, top, right }) => {
    return taken.filter((other) => {
      return other.left < right && other.right > left && Math.abs(other.top - top) < LINE;
    });
  };
  const cost = (/** @type {Box} */ box) => {
    const { left, top, right } = box;
    // What is cut off is not read.
    const isOut = left < -half || right > half || top < -half || top + LINE > half;
    let all = PLACES * (covers(box).length + 5 * Number(isOut));
    for (const { x, y, near, price } of places) {
      const isAcross = x > left - near && x < right + near;
      if (isAcross && y > top - near && y < top + LINE + near) all += price;
    }
    return all;
  };
  const named = tips.filter(({ label }) => label);
  // Tips that cover one another share a line.
  const together = /** @type {(typeof named)[]} */ ([]);
  for (const tip of named) {
    const [x, y] = tip.at;
    const near = together.find(([{ at }]) => Math.hypot(at[0] - x, at[1] - y) < BESIDE);
    if (near) near.push(tip);
    else together.push([tip]);
  }
  const place = (/** @type {string} */ text, /** @type {number[]} */ [across, up]) => {
    const width = LETTER * text.length;
    const boxes = SIDES.map(([right, down]) => {
      const x = across + right * BESIDE;
      const left = x + ((right - 1) / 2) * width;
      const top = up + down * (right ? BESIDE : LINE + 3) - LINE / 2;
      const anchor = ["end", "middle", "start"][1 + right];
      return { text, left, top, right: left + width, x, y: top + BASE, anchor };
    });
    const costs = boxes.map(cost);
    return boxes[costs.indexOf(Math.min(...costs))];
  };
  return together.flatMap((ofIt) => {
    const [{ label, at }] = ofIt;
    const all = ofIt.map((each) => each.label).join(", ");
    // Among many tips there may be no room for all names, or for one; the menu has them.
    const best = (ofIt.length > 1 ? [all, `${label}, …`] : [label])
      .map((text) => place(text, at))
      .find((box) => covers(box).every((other) => others.includes(other)));
    if (best) taken.push(best);
    return best ? [best] : [];
  });
}

// A plane among vectors: two directions of length 1, at a right angle.

/** @typedef {[number[], number[]]} Plane */

// After as many rounds a direction is found as well as one can see.
const ROUNDS = 30;

/** The plane of two numbers of a vector. @param {number} length @param {number[]} pair */
export function planeOfPair(length, pair) {
  return /** @type {Plane} */ (pair.map((at) => range(length).map((each) => Number(each === at))));
}

/** The two numbers that vectors have most of. @param {number[][]} vectors */
export function widest(vectors) {
  const sizes = vectors[0].map((_, at) => sum(vectors.map((each) => each[at] ** 2)));
  const [one, other] = largestFirst(range(sizes.length), (at) => sizes[at]);
  return [Math.min(one, other), Math.max(one, other)];
}

// The plane that holds a vector, and beyond it as much as one more direction can of others.
/** @param {number[]} vector @param {number[][]} others @returns {Plane} */
export function planeWith(vector, others) {
  const first = unit(vector) ?? planeOfPair(vector.length, [0])[0];
  const rests = others.map((each) => beyond(each, first));
  const none = first.map(() => 0);
  let second = unit(largestFirst([...rests, none], (each) => dot(each, each))[0]);
  for (let round = 0; round < ROUNDS && second; round++) {
    const shares = rests.map((each) => dot(each, second));
    second = unit(second.map((_, at) => sum(rests.map((each, of) => shares[of] * each[at]))));
  }
  // Others that lie along the vector leave the direction open.
  const sizes = first.map(Math.abs);
  second ??= planeOfPair(vector.length, [sizes.indexOf(Math.min(...sizes))])[0];
  return [first, unit(beyond(second, first))];
}

/** What a vector has beyond a direction. @param {number[]} vector @param {number[]} axis */
function beyond(vector, axis) {
  const along = dot(vector, axis);
  return vector.map((each, at) => each - along * axis[at]);
}

/** The direction of a vector; null of one that has none. @param {number[]} vector */
function unit(vector) {
  const length = Math.sqrt(dot(vector, vector));
  return length > Number.EPSILON ? vector.map((each) => each / length) : null;
}
