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

export function bytes() {
  return ramp().map((color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)));
}
