// Drawing an atlas: on its canvas, and as the picture that is saved.
import { element } from "../dom.js";
import { FINE } from "../marks.js";
import { grouped, ticks, weight } from "../numbers.js";
import { SIDE } from "./atlas-tiles.js";
import { NAMED } from "./atlas-viewport.js";

/**
 * @import { Mark } from "../marks.js"
 * @import { AtlasMap, Side } from "./atlas-map.js"
 * @import { TilePlace } from "./atlas-viewport.js"
 */

/** @typedef {CanvasRenderingContext2D} Pen */

// From how many pixels a cell has: lines of the cross-hair on both sides, lines around it, its
// number in it.
const CROSSED = 5;
const LINED = 9;
const NUMBERED = 54;
// The place in the colors from which letters on them are light.
const DARK = 32;
// Of a letter of a token, and of a space between two numbers on an axis.
const LETTER = 7;
const ROWS_APART = 40;
const COLUMNS_APART = 72;

/**
 * Draw the map; gives whether all tiles that are seen were there.
 * @param {Pen} pen
 * @param {AtlasMap} map
 */
export function drawAtlas(pen, map) {
  const { canvas, ink } = map;
  pen.fillStyle = ink.paper;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  const isWhole = drawCells(pen, map);
  for (const mark of axisMarks(map)) drawMark(pen, mark, map);
  return isWhole;
}

/**
 * Draw the cells and the cross-hair; gives whether all tiles that are seen were there.
 * @param {Pen} pen
 * @param {AtlasMap} map
 */
function drawCells(pen, map) {
  const { viewport, info, gutter, ink } = map;
  const size = viewport.zoom * viewport.block;
  pen.imageSmoothingEnabled = false;
  pen.save();
  pen.translate(gutter.left, 0);
  clip(pen, 0, 0, viewport.width, viewport.height);
  const { zoom } = viewport;
  clip(pen, viewport.left(0), viewport.top(0), info.keys * zoom, info.queries * zoom);
  // What is hidden is darker than what is beyond the map.
  pen.fillStyle = ink.sunk;
  pen.fillRect(0, 0, viewport.width, viewport.height);
  const isWhole = viewport
    .tiles(SIDE)
    .map((at) => drawTile(pen, map, at))
    .every(Boolean);
  if (size >= LINED) drawLines(pen, map, size);
  if (size >= NUMBERED) drawNumbers(pen, map, size);
  drawCross(pen, map);
  pen.restore();
  return isWhole;
}

/**
 * @param {Pen} pen
 * @param {number} left
 * @param {number} top
 * @param {number} width
 * @param {number} height
 */
function clip(pen, left, top, width, height) {
  pen.beginPath();
  pen.rect(left, top, width, height);
  pen.clip();
}

/**
 * Draw a tile, or a part of a coarser one in its place; gives whether it was there.
 * @param {Pen} pen
 * @param {AtlasMap} map
 * @param {TilePlace} place
 */
function drawTile(pen, { viewport, tiles, scale, info }, place) {
  const tile = tiles.nearest(place);
  if (!tile) return false;
  const side = SIDE * viewport.block;
  const row = place.row * side;
  const column = place.column * side;
  const rows = Math.min(side, info.queries - row);
  const columns = Math.min(side, info.keys - column);
  // Whole pixels, so that no line is seen between two tiles.
  const left = Math.round(viewport.left(column));
  const right = Math.round(viewport.left(column + columns));
  const top = Math.round(viewport.top(row));
  const bottom = Math.round(viewport.top(row + rows));
  const block = 2 ** tile.level;
  pen.drawImage(
    tiles.picture(tile, scale.place),
    column / block - tile.column * SIDE,
    row / block - tile.row * SIDE,
    columns / block,
    rows / block,
    left,
    top,
    right - left,
    bottom - top,
  );
  return tile.level === place.level;
}

/**
 * Draw lines between the cells, which come out as these grow.
 * @param {Pen} pen
 * @param {AtlasMap} map
 * @param {number} size  Of a cell
 */
function drawLines(pen, { viewport, ink }, size) {
  const { block, width, height } = viewport;
  const { rows, columns } = viewport.seen(block);
  pen.globalAlpha = Math.min(1, (size - LINED) / 12);
  pen.fillStyle = ink.paper;
  for (let at = columns[0]; at <= columns[1]; at += 1) {
    pen.fillRect(Math.round(viewport.left(at * block)), 0, 1, height);
  }
  for (let at = rows[0]; at <= rows[1]; at += 1) {
    pen.fillRect(0, Math.round(viewport.top(at * block)), width, 1);
  }
  pen.globalAlpha = 1;
}

/**
 * @param {Pen} pen
 * @param {AtlasMap} map
 * @param {number} size  Of a cell
 */
function drawNumbers(pen, { viewport, tiles, scale, info, ink, font }, size) {
  const { level, block } = viewport;
  const { rows, columns } = viewport.seen(block);
  pen.font = `11px ${font}`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (let row = rows[0]; row < rows[1]; row += 1) {
    for (let column = columns[0]; column < columns[1]; column += 1) {
      const value = tiles.value(level, row, column);
      if (!value) continue;
      const key = column * block;
      const keys = Math.min(block, info.keys - key);
      pen.fillStyle = scale.place(value / keys) < DARK ? ink.ink : ink.paper;
      const y = viewport.top(row * block) + size / 2;
      pen.fillText(weight(value), viewport.left(key + keys / 2), y, size - 4);
    }
  }
}

/**
 * @param {Pen} pen
 * @param {AtlasMap} map
 */
function drawCross(pen, map) {
  const { viewport, ink } = map;
  const { queries, keys } = map.seen();
  const [left, right] = keys.map((at) => Math.round(viewport.left(at)));
  const [top, bottom] = queries.map((at) => Math.round(viewport.top(at)));
  pen.fillStyle = ink.ink;
  pen.globalAlpha = 0.6;
  for (const at of crossLines(top, bottom)) pen.fillRect(0, at, viewport.width, 1);
  for (const at of crossLines(left, right)) pen.fillRect(at, 0, 1, viewport.height);
  pen.globalAlpha = 1;
  // A small cell is framed at a distance.
  const around = Math.max(0, (9 - (right - left)) / 2);
  const frame = new Path2D();
  frame.rect(
    left - around + 0.5,
    top - around + 0.5,
    right - left + 2 * around,
    bottom - top + 2 * around,
  );
  // A dark line on a light one is seen on every color.
  strokeFrame(pen, frame, ink.paper, 4);
  strokeFrame(pen, frame, ink.ink, 1.5);
}

/**
 * @param {Pen} pen
 * @param {Path2D} frame
 * @param {string} color
 * @param {number} width
 */
function strokeFrame(pen, frame, color, width) {
  pen.strokeStyle = color;
  pen.lineWidth = width;
  pen.stroke(frame);
}

/**
 * @param {number} from
 * @param {number} to
 */
function crossLines(from, to) {
  return to - from < CROSSED ? [Math.round((from + to) / 2)] : [from, to];
}

/**
 * What stands on the axes: tokens where there is room for them, or else numbers.
 * @param {AtlasMap} map
 * @returns {Mark[]}
 */
function axisMarks(map) {
  const { viewport, gutter } = map;
  const isNamed = viewport.zoom >= NAMED;
  const rows = axisPlaces(map, "queries", ROWS_APART, 4).map(({ at, middle }) => ({
    ...axisMark(map, "queries", at, gutter.left),
    x: gutter.left - 8,
    y: viewport.top(middle) + 4,
    anchor: "end",
  }));
  const upright = { anchor: "end", rotate: -90, y: viewport.height + 6 };
  const level = { anchor: "middle", y: viewport.height + 16 };
  const columns = axisPlaces(map, "keys", COLUMNS_APART, 0).map(({ at, middle }) => ({
    ...axisMark(map, "keys", at, gutter.bottom),
    x: gutter.left + viewport.left(middle) + (isNamed ? 4 : 0),
    ...(isNamed ? upright : level),
  }));
  return [...rows, ...columns];
}

/**
 * The tokens that are marked on an axis.
 * @param {AtlasMap} map
 * @param {Side} side
 * @param {number} apart  Pixels between two numbers
 * @param {number} inset  Pixels at both ends without a mark
 */
function axisPlaces({ viewport, info }, side, apart, inset) {
  const isNamed = viewport.zoom >= NAMED;
  // A token is named at the middle of its cell, and a number stands where the token begins.
  const half = isNamed ? 0.5 : 0;
  const isOfQueries = side === "queries";
  const from = isOfQueries ? viewport.query(inset) : viewport.key(inset);
  const to = isOfQueries
    ? viewport.query(viewport.height - inset)
    : viewport.key(viewport.width - inset);
  const low = Math.max(0, from - half);
  const high = Math.min(to - half, info[side] - 1);
  const count = (high - low) / (isNamed ? 1 : apart / viewport.zoom);
  return ticks(low, high, count).map((at) => ({ at, middle: at + half }));
}

/**
 * @param {AtlasMap} map
 * @param {Side} side
 * @param {number} at
 * @param {number} room
 * @returns {Mark}
 */
function axisMark({ viewport, tokens, cross }, side, at, room) {
  if (viewport.zoom < NAMED) return { size: 12, text: grouped(at), fill: "quiet" };
  const letters = [...tokens[side].short(at)].slice(0, (room - 10) / LETTER);
  return { size: 12, text: letters.join(""), fill: at === cross[side] ? "accent" : "quiet" };
}

/**
 * @param {Pen} pen
 * @param {Mark} mark
 * @param {AtlasMap} map
 */
function drawMark(pen, { text, x, y, fill, size, anchor, rotate = 0 }, { ink, font }) {
  pen.fillStyle = ink[fill];
  pen.font = `${size}px ${font}`;
  pen.textAlign = anchor === "middle" ? "center" : "end";
  pen.textBaseline = "alphabetic";
  pen.save();
  pen.translate(x, y);
  pen.rotate((rotate * Math.PI) / 180);
  pen.fillText(String(text), 0, 0);
  pen.restore();
}

/**
 * The map as a picture: the cells, and letters that are letters.
 * @param {AtlasMap} map
 * @returns {Mark[]}
 */
export function atlasMarks(map) {
  const { viewport, gutter } = map;
  const { width, height } = viewport;
  const image = element("canvas", { width: width * FINE, height: height * FINE });
  const pen = image.getContext("2d");
  pen.setTransform(FINE, 0, 0, FINE, -gutter.left * FINE, 0);
  drawCells(pen, map);
  const cells = { x: gutter.left, y: 0, width, height, image, smooth: true };
  return [cells, ...axisMarks(map)];
}
