// What follows from a query and keys that are dragged: scores, and weights.
import { NORMALIZERS } from "../normalizers.js";
import { dot } from "../numbers.js";

/** @import { Row } from "./steps-row.js" */

// How far from the weights of a head those may be that follow from its vectors.
const ROUNDING = 1e-3;

/** @typedef {{scores: number[], masked: number[], weights: number[]}} Worked */

// What follows from a query and keys, with all that a row has besides.
/** @param {Row} row @param {number[]} query @param {number[][]} keys @returns {Worked} */
export function workedOut({ beta, softcap, sink, kind, keys: own }, query, keys) {
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
export function faultOf(row) {
  const { q, context, keys, isProduct, kind } = row;
  if (Math.min(q.length, context.length) < 2) return "drag.none";
  if (!isProduct || !Object.hasOwn(NORMALIZERS, kind)) return "drag.unknown";
  const { weights } = workedOut(
    row,
    q,
    keys.map((key) => key.k),
  );
  const isOwn = weights.every((each, at) => Math.abs(each - keys[at].weight) < ROUNDING);
  return isOwn ? null : "drag.unknown";
}
