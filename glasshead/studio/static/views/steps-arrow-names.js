// Where the names of arrows stand.
import { byKey, range, sum } from "../numbers.js";
import { between } from "./steps-layout.js";

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
 * @param {{at: number[], label: string}[]} tips  Names of one tip share a line; some have none
 * @param {number[]} origin  Where all arrows begin
 * @param {number} half  Half of the side of the plane, whose middle is 0 0
 * @param {Box[]} others  Where other names stand
 */
export function placed(tips, [begin, base], half, others) {
  const taken = [...others];
  const places = tips.flatMap(({ at: [across, down] }) => {
    return range(PLACES).map((place) => {
      const part = (place + 1) / PLACES;
      // A tip is what is dragged.
      const [near, price] = part === 1 ? [7, 1 + 2 * PLACES] : [1, 1];
      return { x: between(begin, across, part), y: between(base, down, part), near, price };
    });
  });
  const cost = (/** @type {Box} */ { left, top, right }) => {
    const crossed = places.filter(({ x, y, near }) => {
      const isAcross = x > left - near && x < right + near;
      return isAcross && y > top - near && y < top + LINE + near;
    });
    const covered = taken.filter((other) => {
      return other.left < right && other.right > left && Math.abs(other.top - top) < LINE;
    });
    // What is cut off is not read.
    const isOut = left < -half || right > half || top < -half || top + LINE > half;
    const faults = covered.length + 5 * Number(isOut);
    return sum(crossed.map(({ price }) => price)) + PLACES * faults;
  };
  const named = tips.filter(({ label }) => label);
  return [...byKey(named, ({ at }) => at.join()).values()].map((ofIt) => {
    const text = ofIt.map(({ label }) => label).join(", ");
    const width = LETTER * text.length;
    const [across, up] = ofIt[0].at;
    const boxes = SIDES.map(([right, down]) => {
      const x = across + right * BESIDE;
      const left = x + ((right - 1) / 2) * width;
      const top = up + down * (right ? BESIDE : LINE + 3) - LINE / 2;
      const anchor = ["end", "middle", "start"][1 + right];
      return { left, top, right: left + width, x, y: top + BASE, anchor };
    });
    const costs = boxes.map(cost);
    const best = boxes[costs.indexOf(Math.min(...costs))];
    taken.push(best);
    return { text, ...best };
  });
}
