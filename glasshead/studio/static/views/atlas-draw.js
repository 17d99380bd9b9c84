// Drawing an atlas: on its canvas, and as the picture that is saved.
import { ramp } from "../colors.js";
import { element } from "../dom.js";
import { count, ticks, weight } from "../numbers.js";
import { NAMED } from "./atlas-place.js";
import { SIDE } from "./atlas-tiles.js";

// From how many pixels a cell has: lines of the cross-hair on both sides, lines around it, its number in it.
const CROSSED = 5;
const LINED = 9;
const NUMBERED = 54;
const HEAD = 54;
const FOOT = 60;

export function draw(pen, map) {
  const { place, told, gutter, ink, canvas } = map;
  const size = place.zoom * place.block;
  const only = (...box) => { pen.beginPath(); pen.rect(...box); pen.clip(); };
  pen.imageSmoothingEnabled = false;
  pen.fillStyle = ink.paper;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.save();
  pen.translate(gutter.left, 0);
  only(0, 0, place.width, place.height);
  pen.fillStyle = ink.sunk;
  pen.fillRect(0, 0, place.width, place.height);
  only(place.left(0), place.top(0), told.keys * place.zoom, told.queries * place.zoom);
  const whole = place.tiles(SIDE).map((at) => drawTile(pen, map, at)).every(Boolean);
  if (size >= LINED) drawLines(pen, map, size);
  if (size >= NUMBERED) drawNumbers(pen, map, size);
  drawCross(pen, map);
  pen.restore();
  for (const mark of axes(map)) drawMark(pen, mark, ink);
  return whole;
}

function drawTile(pen, { place, tiles, scale, told }, at) {
  const tile = tiles.nearest(at);
  if (!tile) return false;
  const side = SIDE * place.block;
  const [row, column] = [at.row * side, at.column * side];
  const [rows, columns] = [Math.min(side, told.queries - row), Math.min(side, told.keys - column)];
  const [left, right] = [column, column + columns].map((key) => Math.round(place.left(key)));
  const [top, bottom] = [row, row + rows].map((query) => Math.round(place.top(query)));
  const block = 2 ** tile.level;
  pen.drawImage(
    tiles.picture(tile, scale.place),
    column / block - tile.column * SIDE, row / block - tile.row * SIDE, columns / block, rows / block,
    left, top, right - left, bottom - top,
  );
  return tile.level === at.level;
}

function drawLines(pen, { place, ink }, size) {
  const { block, width, height } = place;
  const { rows, columns } = place.seen(block);
  pen.globalAlpha = Math.min(1, (size - LINED) / 12);
  pen.fillStyle = ink.paper;
  for (let at = columns[0]; at <= columns[1]; at += 1) pen.fillRect(Math.round(place.left(at * block)), 0, 1, height);
  for (let at = rows[0]; at <= rows[1]; at += 1) pen.fillRect(0, Math.round(place.top(at * block)), width, 1);
  pen.globalAlpha = 1;
}

function drawNumbers(pen, { place, tiles, scale, told, ink }, size) {
  const { level, block } = place;
  const { rows, columns } = place.seen(block);
  Object.assign(pen, { font: `11px ${ink.font}`, textAlign: "center", textBaseline: "middle" });
  for (let row = rows[0]; row < rows[1]; row += 1) {
    for (let column = columns[0]; column < columns[1]; column += 1) {
      const value = tiles.value(level, row, column);
      if (!value) continue;
      const [key, keys] = [column * block, Math.min(block, told.keys - column * block)];
      pen.fillStyle = scale.place(value / keys) < 32 ? ink.ink : ink.paper;
      pen.fillText(weight(value), place.left(key + keys / 2), place.top(row * block) + size / 2, size - 4);
    }
  }
}

function drawCross(pen, map) {
  const { place, ink } = map;
  const { queries, keys } = map.seen();
  const [left, right] = keys.map((at) => Math.round(place.left(at)));
  const [top, bottom] = queries.map((at) => Math.round(place.top(at)));
  const lines = (from, to) => (to - from < CROSSED ? [Math.round((from + to) / 2)] : [from, to]);
  pen.fillStyle = ink.ink;
  pen.globalAlpha = 0.6;
  for (const at of lines(top, bottom)) pen.fillRect(0, at, place.width, 1);
  for (const at of lines(left, right)) pen.fillRect(at, 0, 1, place.height);
  pen.globalAlpha = 1;
  // A small cell is framed at a distance.
  const around = Math.max(0, (9 - (right - left)) / 2);
  const box = [left - around + 0.5, top - around + 0.5, right - left + 2 * around, bottom - top + 2 * around];
  for (const [strokeStyle, lineWidth] of [[ink.paper, 4], [ink.ink, 1.5]]) {
    Object.assign(pen, { strokeStyle, lineWidth }).strokeRect(...box);
  }
}

function axes({ place, told, gutter: { left, bottom }, names, cross }) {
  const isNamed = place.zoom >= NAMED;
  const half = isNamed ? 0.5 : 0;
  const mark = (side, at, room, where) => {
    // As many letters of a token as there is room for, of some seven pixels each.
    const text = isNamed ? [...names[side].short(at)].slice(0, (room - 10) / 7).join("") : count(at);
    const fill = isNamed && at === cross[side] ? "accent" : "quiet";
    return { size: 12, text, fill, ...where(at + half) };
  };
  const upright = isNamed
    ? { anchor: "end", rotate: -90, y: place.height + 6 } : { anchor: "middle", y: place.height + 16 };
  const beside = (at) => ({ x: left - 8, y: place.top(at) + 4, anchor: "end" });
  const below = (at) => ({ x: left + place.left(at) + (isNamed ? 4 : 0), ...upright });
  const marked = (from, to, side, apart, ...where) => {
    const [low, high] = [Math.max(0, from - half), Math.min(to - half, told[side] - 1)];
    return ticks(low, high, (high - low) / (isNamed ? 1 : apart / place.zoom)).map((at) => mark(side, at, ...where));
  };
  return [
    ...marked(place.query(4), place.query(place.height - 4), "queries", 40, left, beside),
    ...marked(place.key(0), place.key(place.width), "keys", 72, bottom, below),
  ];
}

function drawMark(pen, { text, x, y, fill, size, anchor, rotate = 0 }, ink) {
  const textAlign = anchor === "middle" ? "center" : anchor;
  Object.assign(pen, { fillStyle: ink[fill], font: `${size}px ${ink.font}`, textAlign, textBaseline: "alphabetic" });
  pen.save();
  pen.translate(x, y);
  pen.rotate((rotate * Math.PI) / 180);
  pen.fillText(text, 0, 0);
  pen.restore();
}

export function atlasFigure(map, { title, seen, legend }) {
  const { place: { width, height }, gutter: { left, bottom }, scale: { floor, top } } = map;
  const end = HEAD + height + bottom;
  const note = (x, y, text, anchor) => ({ x, y, text, anchor, size: 12, fill: "quiet" });
  const colors = ramp();
  return {
    width: width + left + 16, height: end + FOOT,
    marks: [
      { x: left, y: 22, text: title, size: 15, weight: 600 },
      note(left, 42, seen),
      { x: left, y: HEAD, width, height, href: cells(map) },
      ...axes(map).map((mark) => ({ ...mark, y: mark.y + HEAD })),
      note(left, end + 10, legend),
      ...colors.map((fill, at) => ({ x: left + at * 3, y: end + 18, width: 3.2, height: 10, fill })),
      note(left, end + 42, weight(floor)),
      note(left + colors.length * 3, end + 42, weight(top), "end"),
    ],
  };
}

function cells({ place, gutter, fine, canvas }) {
  const part = element("canvas", { width: Math.round(place.width * fine), height: Math.round(place.height * fine) });
  part.getContext("2d").drawImage(canvas, -Math.round(gutter.left * fine), 0);
  return part.toDataURL("image/png");
}
