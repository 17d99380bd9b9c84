// Drawing an atlas: on its canvas, and as the picture that is saved.
import { inkOf } from "../colors.js";
import { element } from "../dom.js";
import { FINE } from "../marks.js";
import { clamped, grouped, ticks, weight } from "../numbers.js";
import { SIDE } from "./atlas-tiles.js";
import { NAMED } from "../parts/viewport.js";

/** @import { Mark } from "../marks.js" */
/** @import { AtlasMap, Side } from "./atlas-map.js" */
/** @import { TilePlace } from "../parts/viewport.js" */

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

/** @typedef {CanvasRenderingContext2D} Pen */

/** Draw the map; gives whether all tiles that are seen were there. @param {AtlasMap} map */
export function drawAtlas(map) {
  const { canvas, pen } = map;
  pen.fillStyle = inkOf("paper");
  pen.fillRect(0, 0, canvas.width, canvas.height);
  const isWhole = drawCells(pen, map);
  for (const mark of axisMarks(map)) map.drawMark(mark);
  return isWhole;
}

// Draw the cells and the cross-hair; gives whether all tiles that are seen were there.
/** @param {Pen} pen @param {AtlasMap} map */
function drawCells(pen, map) {
  const { view, info, edges } = map;
  const size = view.zoom * view.block;
  pen.imageSmoothingEnabled = false;
  pen.save();
  pen.translate(edges.left, 0);
  clip(pen, 0, 0, view.width, view.height);
  const { zoom } = view;
  clip(pen, view.left(0), view.top(0), info.keys * zoom, info.queries * zoom);
  // What is hidden is darker than what is beyond the map.
  pen.fillStyle = inkOf("sunk");
  pen.fillRect(0, 0, view.width, view.height);
  const isWhole = view
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
 * @param {Pen} pen @param {number} left @param {number} top @param {number} width
 * @param {number} height
 */
function clip(pen, left, top, width, height) {
  pen.beginPath();
  pen.rect(left, top, width, height);
  pen.clip();
}

// Draw a tile, or a part of a coarser one in its place; gives whether it was there.
/** @param {Pen} pen @param {AtlasMap} map @param {TilePlace} place */
function drawTile(pen, { view, tiles, scale, info }, place) {
  const tile = tiles.nearest(place);
  if (!tile) return false;
  const side = SIDE * view.block;
  const row = place.row * side;
  const column = place.column * side;
  const rows = Math.min(side, info.queries - row);
  const columns = Math.min(side, info.keys - column);
  // Whole pixels, so that no line is seen between two tiles.
  const [left, right] = [column, column + columns].map((at) => Math.round(view.left(at)));
  const [top, bottom] = [row, row + rows].map((at) => Math.round(view.top(at)));
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

// Draw lines between the cells, which come out as these grow.
/** @param {Pen} pen @param {AtlasMap} map @param {number} size  Of a cell */
function drawLines(pen, map, size) {
  const { view } = map;
  const { block, width, height } = view;
  const { rows, columns } = view.seen(block);
  pen.globalAlpha = Math.min(1, (size - LINED) / 12);
  pen.fillStyle = inkOf("paper");
  for (let at = columns[0]; at <= columns[1]; at += 1) {
    pen.fillRect(Math.round(view.left(at * block)), 0, 1, height);
  }
  for (let at = rows[0]; at <= rows[1]; at += 1) {
    pen.fillRect(0, Math.round(view.top(at * block)), width, 1);
  }
  pen.globalAlpha = 1;
}

/** @param {Pen} pen @param {AtlasMap} map @param {number} size  Of a cell */
function drawNumbers(pen, map, size) {
  const { view, tiles, scale, info } = map;
  const { level, block } = view;
  const { rows, columns } = view.seen(block);
  pen.font = `${clamped(size * 0.16, 11, 24)}px ${inkOf("plain")}`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (let row = rows[0]; row < rows[1]; row += 1) {
    for (let column = columns[0]; column < columns[1]; column += 1) {
      const value = tiles.value(level, row, column);
      if (!value) continue;
      const key = column * block;
      const keys = Math.min(block, info.keys - key);
      pen.fillStyle = inkOf(scale.place(value / keys) < DARK ? "ink" : "paper");
      const y = view.top(row * block) + size / 2;
      pen.fillText(weight(value), view.left(key + keys / 2), y, size - 4);
    }
  }
}

/** @param {Pen} pen @param {AtlasMap} map */
function drawCross(pen, map) {
  const { view } = map;
  const { queries, keys } = map.seen();
  const [left, right] = keys.map((at) => Math.round(view.left(at)));
  const [top, bottom] = queries.map((at) => Math.round(view.top(at)));
  pen.fillStyle = inkOf("ink");
  pen.globalAlpha = 0.35;
  for (const at of crossLines(top, bottom)) pen.fillRect(0, at, view.width, 1);
  for (const at of crossLines(left, right)) pen.fillRect(at, 0, 1, view.height);
  pen.globalAlpha = 1;
  // A small cell is framed at a distance.
  const around = Math.max(0, (9 - (right - left)) / 2);
  const [x, y] = [left - around + 0.5, top - around + 0.5];
  // A dark line on a light one is seen on every color.
  for (const [color, width] of Object.entries({ paper: 4, ink: 1.5 })) {
    pen.strokeStyle = inkOf(color);
    pen.lineWidth = width;
    pen.strokeRect(x, y, right - left + 2 * around, bottom - top + 2 * around);
  }
}

/** @param {number} from @param {number} to */
const crossLines = (from, to) => (to - from < CROSSED ? [Math.round((from + to) / 2)] : [from, to]);

// What stands on the axes: tokens where there is room for them, or else numbers.
/** @param {AtlasMap} map @returns {Mark[]} */
function axisMarks(map) {
  const { view, edges } = map;
  const isNamed = view.zoom >= NAMED;
  // Next to the map, which may be in the middle.
  const left = edges.left + Math.max(0, view.left(0));
  const rows = axisTexts(map, "queries", ROWS_APART, 4, edges.left).map(({ middle, ...text }) => {
    return { ...text, x: left - 8, y: view.top(middle) + 4, anchor: "end" };
  });
  const upright = { anchor: "end", rotate: -90, y: view.height + 6 };
  const level = { anchor: "middle", y: view.height + 16 };
  const texts = axisTexts(map, "keys", COLUMNS_APART, 0, edges.bottom);
  const columns = texts.map(({ middle, ...text }) => {
    const x = edges.left + view.left(middle) + (isNamed ? 4 : 0);
    return { ...text, x, ...(isNamed ? upright : level) };
  });
  // The corner is free of numbers and names.
  const corner = { size: 11, fill: "quiet", weight: 600, x: left - 8, anchor: "end" };
  const titles = [`${map.titles.queries} ↑`, `${map.titles.keys} →`].map((text, at) => {
    return { ...corner, text, y: view.height + 18 + 17 * at };
  });
  return [...rows, ...columns, ...titles];
}

/**
 * The texts of an axis, and the places that they are of.
 * @param {AtlasMap} map @param {Side} side
 * @param {number} apart  Pixels between two numbers
 * @param {number} inset  Pixels at both ends without a text
 * @param {number} room  Pixels of a token's name
 */
function axisTexts({ view, info, tokens, cross }, side, apart, inset, room) {
  const isNamed = view.zoom >= NAMED;
  // A token is named at the middle of its cell.
  const half = 0.5;
  const [from, to] =
    side === "queries"
      ? [view.query(inset), view.query(view.height - inset)]
      : [view.key(inset), view.key(view.width - inset)];
  const low = Math.max(0, from - half);
  const high = Math.min(to - half, info[side] - 1);
  const count = (high - low) / (isNamed ? 1 : apart / view.zoom);
  const most = Math.floor((room - 10) / LETTER);
  return ticks(low, high, count).map((at) => {
    const letters = [...(isNamed ? tokens[side].short(at) : grouped(at))];
    if (isNamed && letters.length > most) letters.splice(most - 1, Infinity, "…");
    const fill = isNamed && at === cross[side] ? "accent" : "quiet";
    return { size: 12, text: letters.join(""), fill, middle: at + half };
  });
}

// The map as a picture: the cells, and letters that are letters.
/** @param {AtlasMap} map @returns {Mark[]} */
export function atlasMarks(map) {
  const { view, edges } = map;
  const { width, height } = view;
  const image = element("canvas", { width: width * FINE, height: height * FINE });
  const pen = image.getContext("2d");
  pen.setTransform(FINE, 0, 0, FINE, -edges.left * FINE, 0);
  drawCells(pen, map);
  const cells = { x: edges.left, y: 0, width, height, image, smooth: true };
  return [cells, ...axisMarks(map)];
}
