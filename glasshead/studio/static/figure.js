// Figure {width, height, marks, title?}: a picture of a view, as SVG and as PNG. A mark is one of
//   {x, y, text, size?, fill?, anchor?, rotate?, weight?}, {d, stroke?, fill?, width?, opacity?},
//   {x, y, width, height, fill, opacity?}, {x, y, width, height, href}, a data: URL;
// a colour may be named as a part of the page is (paperColor).
import { paperColor } from "./colors.js";
import { element, setAttributes } from "./dom.js";

const SPACE = "http://www.w3.org/2000/svg";
const FONTS = "system-ui, 'Segoe UI', 'Helvetica Neue', 'Noto Sans', Arial, sans-serif";
// A browser's canvas is no wider or higher, and has no more pixels.
const LONGEST = 16384;
const MOST = 2 ** 26;

/** The figure as an SVG element: whole pixels, its own paper, and nothing from elsewhere. */
export function drawing(figure) {
  const { width, height } = size(figure);
  const root = node("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "font-family": FONTS });
  if (figure.title) root.append(written("title", {}, figure.title));
  root.append(...[{ width, height, fill: "paper" }, ...figure.marks].map(drawn));
  return root;
}

export function svg(figure) {
  return new Blob([new XMLSerializer().serializeToString(drawing(figure))], { type: "image/svg+xml" });
}

/** The figure as a PNG, twice as fine as the screen; a very large one is as fine as a canvas can be. */
export async function png(figure) {
  const { width, height } = size(figure);
  const fine = Math.min(2, LONGEST / width, LONGEST / height, Math.sqrt(MOST / (width * height)));
  const url = URL.createObjectURL(svg(figure));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = element("canvas", { width: Math.floor(width * fine), height: Math.floor(height * fine) });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((made, failed) => {
      canvas.toBlob((content) => (content ? made(content) : failed(new Error("no PNG"))), "image/png");
    });
  } finally {
    URL.revokeObjectURL(url);
  }
}

export function save(content, download) {
  const href = URL.createObjectURL(content);
  element("a", { href, download }).click();
  setTimeout(() => URL.revokeObjectURL(href), 1000);
}

function size({ width, height }) { return { width: Math.ceil(width), height: Math.ceil(height) }; }

const color = (name) => paperColor(name) || name;

export function drawn(mark) {
  const { kind, text, size: letters = 13, fill, anchor = "start", rotate, weight, width, stroke, ...rest } = mark;
  if (text !== undefined) {
    const transform = rotate && `rotate(${rotate} ${rest.x} ${rest.y})`;
    const look = { "font-size": letters, "text-anchor": anchor, "font-weight": weight, fill: color(fill ?? "ink") };
    return written("text", { ...rest, ...look, transform }, text);
  }
  if (rest.d !== undefined) {
    const look = { fill: color(fill ?? "none"), stroke: color(stroke ?? "accent"), "stroke-width": width ?? 1 };
    return node("path", { ...rest, ...look });
  }
  if (!rest.href) return node("rect", { ...rest, width, fill: color(fill) });
  return node("image", { ...rest, width, "image-rendering": "pixelated", preserveAspectRatio: "none" });
}

/** An element that holds a text; what XML cannot hold, such as NUL, is shown as what cannot be shown. */
function written(name, attributes, text) {
  const made = node(name, attributes);
  made.textContent = String(text).toWellFormed().replace(/[^\t\n\r\u0020-\ufffd\u{10000}-\u{10ffff}]/gu, "\ufffd");
  return made;
}

export function node(name, attributes) {
  return setAttributes(document.createElementNS(SPACE, name), attributes);
}
