// Two prompts compared: the logits that change, and the heads that wrote the change.
import { largestAt, largestFirst } from "../numbers.js";

/** @import { Part, Parts } from "../parts/waterfall.js" */
/** @import { Reading } from "./reading.js" */

// Components that are shown by themselves.
const SHOWN = 8;

/**
 * @param {[Reading, Reading]} readings  Without the same heads
 * @param {number} top @param {number} temperature @param {(token: number) => string} named
 */
export function compared(readings, top, temperature, named) {
  const shares = readings.map((each) => each.next(temperature));
  const logits = readings.map((each) => each.lastLogits());
  const tops = shares.flatMap((row) => {
    return largestFirst([...row.keys()], (at) => row[at]).slice(0, top);
  });
  const likeliest = (/** @type {number} */ token) => Math.max(...shares.map((row) => row[token]));
  const order = [...new Set(tops)].sort(
    (one, other) => likeliest(other) - likeliest(one) || one - other,
  );
  const [of, against] = shares.map(largestAt);
  const isSame = of === against;
  const logit = logits.map((row) => row[of] - (isSame ? 0 : row[against]));
  return {
    candidates: order.map((token) => ({
      text: named(token),
      logit: logits.map((row) => row[token]),
      p: shares.map((row) => row[token]),
    })),
    of: named(of),
    against: isSame ? null : named(against),
    logit,
    changed: changed(readings, logit[0] - logit[1], of, isSame ? null : against),
    refused: /** @type {string | null} */ (null),
    running: readings[1].told().running,
  };
}

/**
 * The parts of a change by the heads that wrote them.
 * @param {[Reading, Reading]} readings @param {number} change @param {number} of
 * @param {number | null} against @returns {Parts & {beyond: number}}
 */
function changed([first, second], change, of, against) {
  const { model, layers, heads, away } = first;
  // Heads of a layer of which some are ablated are not split.
  const split = first.every.filter(([layer]) => !heads.some((_, at) => away.has(`${layer}.${at}`)));
  /** @type {Part[]} */
  const parts = split.map(([layer, head]) => {
    const [one, other] = [first, second].map(({ pass }) => {
      return model.logitPart(pass, layer, head, of, against);
    });
    return { name: `${layers[layer]} head ${head}`, layer, head, part: one - other };
  });
  const beyond = parts.reduce((rest, { part }) => rest - part, change);
  const shown = parts
    .filter(({ part }) => part)
    .sort((one, other) => Math.abs(other.part) - Math.abs(one.part))
    .slice(0, SHOWN);
  const rest = shown.reduce((left, { part }) => left - part, change - beyond);
  return { parts: shown, rest, count: split.length - shown.length, beyond };
}
