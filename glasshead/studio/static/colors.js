// Colours of weights: the library's own map, on light and on dark paper, linear or logarithmic.
import { within } from "./numbers.js";

let palettes = { light: [], dark: [] };
const dark = matchMedia("(prefers-color-scheme: dark)");

export function usePalette(given) { palettes = given; }

export function onPaper(changed) { dark.addEventListener("change", changed); }

export function ramp() { return dark.matches ? palettes.dark : palettes.light; }

/** A colour as CSS names it: paper, sunk, ink, quiet, rule, accent, alarm. */
export function paperColor(name) {
  return getComputedStyle(document.body).getPropertyValue(`--${name}`).trim();
}

/** A scale from a weight to its place 0 … 64 in the map. */
export function scale({ top = 1, logarithmic = false, floor = 1e-4 } = {}) {
  const last = ramp().length - 1;
  const low = Math.log(floor * top);
  const span = Math.log(top) - low;
  const share = logarithmic ? (value) => (Math.log(value) - low) / span : (value) => value / top;
  return (value) => (top > 0 && value > 0 ? within(Math.floor(share(value) * last + 0.5), last + 1) : 0);
}

/** Colour each pixel of a canvas: placeOf(at) is its place in the map; null leaves it clear. */
export function paint(canvas, placeOf) {
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  const bytes = ramp().flatMap((color) => [...[1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)), 255]);
  const colors = new Uint32Array(new Uint8Array(bytes).buffer);
  for (let at = 0; at < pixels.length; at += 1) {
    const place = placeOf(at);
    if (place !== null) pixels[at] = colors[place];
  }
  pen.putImageData(image, 0, 0);
  return pen;
}
