// What makes weights of the scores of a row, by the names of the library; −∞ is a hidden score.
import { largestAt, largestFirst, sum } from "./numbers.js";

// A score further below the largest has no weight where weights are sparse.
const REACH = 4;

/** @type {Record<string, (scores: number[]) => number[]>} */
export const NORMALIZERS = {
  softmax,
  "softmax-one": (scores) => softmax([...scores, 0]).slice(0, -1),
  hardmax: (scores) => {
    const first = largestAt(scores);
    return scores.map((_, at) => Number(at === first));
  },
  sigmoid: (scores) => scores.map((score) => 1 / (1 + Math.exp(-score))),
  sparsemax: (scores) => {
    const near = withinReach(scores);
    const ranked = largestFirst(near, Number);
    const totals = cumulated(ranked);
    const support = ranked.filter((score, at) => 1 + (at + 1) * score > totals[at]).length;
    const threshold = (totals[support - 1] - 1) / support;
    return near.map((score) => Math.max(score - threshold, 0));
  },
  entmax15: (scores) => {
    const near = withinReach(scores).map((score) => score / 2);
    const ranked = largestFirst(near, Number);
    const squares = cumulated(ranked.map((score) => score ** 2));
    const thresholds = cumulated(ranked).map((total, at) => {
      const count = at + 1;
      const mean = total / count;
      const spread = squares[at] - count * mean ** 2;
      return mean - Math.sqrt(Math.max((1 - spread) / count, 0));
    });
    const support = Math.max(1, ranked.filter((score, at) => thresholds[at] <= score).length);
    return near.map((score) => Math.max(score - thresholds[support - 1], 0) ** 2);
  },
};

/** e^s over the sum of all. @param {number[]} scores */
function softmax(scores) {
  const largest = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - largest));
  const total = sum(powers);
  return powers.map((each) => each / total);
}

/** Scores below the largest, and none so far that it could count. @param {number[]} scores */
function withinReach(scores) {
  const largest = Math.max(...scores);
  return scores.map((score) => Math.max(score - largest, -REACH));
}

function cumulated(/** @type {number[]} */ numbers) {
  let total = 0;
  return numbers.map((each) => (total += each));
}
