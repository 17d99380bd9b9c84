// What flies over the stage of the walk between two frames.
import { largestFirst, range, sum } from "../numbers.js";
import { toneOf } from "../diverging.js";
import { VECTOR, between, ease, sizesOf, stairsOf, weightColor } from "./steps-layout.js";

/** @import { Lane } from "./steps-layout.js" */
/** @import { Stage } from "./steps-stage.js" */

// Products that fly to a score, and drops of a stream.
const CHIPS = 10;
const DROPS = 6;

/** @typedef {(stage: Stage, lane: Lane, y: number, part: number) => void} Motion */

// Draw what flies from a line, or to it.
/** @param {Stage} stage @param {Lane} lane @param {number} y  Of the line */
export function drawMotion(stage, lane, y) {
  const { time, begins } = stage;
  /** @type {[number | undefined, Motion][]} */
  const motions = [
    [lane.key ? lane.scoreAt : undefined, drawChips],
    [begins.power, drawPowers],
    [begins.weights, drawPour],
    [lane.mixAt, drawMix],
  ];
  for (const [frame, draw] of motions) {
    const part = frame === undefined ? 0 : time - frame + 1;
    if (part > 0 && part < 1) draw(stage, lane, y, part);
  }
}

/** Products, that rise from the numbers that are multiplied and fly to the score. @type {Motion} */
function drawChips(stage, { key }, y, part) {
  const { row, layout } = stage;
  if (!row.isProduct) return;
  const { x, width } = layout.columns.keys;
  const cell = width / row.q.length;
  const sizes = sizesOf(row, key);
  const most = Math.max(...sizes) || 1;
  const stairs = stairsOf(row, key);
  const middle = y + layout.lane / 2;
  const rise = ease((part - 0.3) / 0.25);
  const fly = ease((part - 0.5) / 0.45);
  const high = middle - 16 * (rise * (1 - fly) + Math.sin(Math.PI * fly));
  const order = largestFirst(range(sizes.length), (at) => sizes[at]);
  for (const at of order.slice(0, CHIPS)) {
    const across = between(x + (at + 0.5) * cell, stage.xOf(stairs[at]), fly);
    const { fill } = toneOf(Math.sign(row.q[at] * key.k[at]));
    drop(stage, across, high, 2 + 5 * Math.sqrt(sizes[at] / most), fill, rise);
  }
}

/** Powers of e, that grow out of the scores. @type {Motion} */
function drawPowers(stage, { key, power }, y, part) {
  if (!key || key.masked === null) return;
  const { scores, weights } = stage.layout.columns;
  const from = Math.max(scores.x, stage.xOf(stage.scoreNow(key)));
  const share = power / stage.mostPower;
  const to = weights.x + stage.barOf(share) / 2;
  const color = weightColor(0.2 + 0.8 * share);
  for (const at of range(DROPS)) {
    const own = ease((part - at * 0.08) / 0.6);
    const middle = y + stage.layout.lane / 2;
    drop(stage, between(from, to, own), middle, 1 + 4.5 * Math.sqrt(share), color, shown(own));
  }
}

/** Weights, that are poured into one vessel. @type {Motion} */
function drawPour(stage, lane, y, part) {
  const { layout, lanes } = stage;
  const { x } = layout.columns.weights;
  const before = sum(lanes.slice(0, lanes.indexOf(lane)).map(({ weight }) => weight));
  const to = x + (before + lane.weight / 2) * stage.room;
  const from = x + stage.barOf(stage.weightNow(lane));
  const color = weightColor(lane.weight);
  for (const at of range(DROPS)) {
    const own = ease((part - at * 0.1) / 0.5);
    const fall = own * own;
    const across = between(between(from, from + 24, own), to, fall);
    const high = between(y + layout.lane / 2, layout.bottom + VECTOR / 2, fall);
    drop(stage, across, high, 0.5 + 5 * Math.sqrt(lane.weight), color, shown(own));
  }
}

/** A value, that goes down to the context. @type {Motion} */
function drawMix(stage, lane, y, part) {
  const { pen, layout } = stage;
  const { weights, values } = layout.columns;
  const start = weights.x + weights.width + 4;
  const half = 1 + (layout.lane / 2 - 5) * Math.sqrt(lane.weight);
  pen.globalAlpha = 0.5 * shown(part * 1.6);
  const width = Math.max(0, values.x - start - 4);
  stage.box(weightColor(lane.weight), start, y + layout.lane / 2 - half, width, 2 * half);
  const fall = ease((part - 0.25) / 0.65);
  pen.globalAlpha = 0.9 * shown(between(0.25, 1, fall));
  const height = between(layout.lane - 2 * layout.edge, VECTOR, fall);
  const top = between(y + layout.edge, layout.bottom, fall);
  stage.drawVector(lane.v, values, top, height, stage.valueSize);
  pen.globalAlpha = 1;
}

/** How much is seen of what comes and goes. @param {number} part */
const shown = (part) => Math.sin(Math.PI * Math.min(1, part));

/**
 * @param {Stage} stage @param {number} x @param {number} y @param {number} radius
 * @param {string} fill @param {number} alpha
 */
function drop({ pen }, x, y, radius, fill, alpha) {
  pen.globalAlpha = alpha;
  pen.fillStyle = fill;
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fill();
  pen.globalAlpha = 1;
}
