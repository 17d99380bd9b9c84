// A plane among vectors: two directions of length 1, at a right angle.
import { dot, largestFirst, range, sum } from "../numbers.js";

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
