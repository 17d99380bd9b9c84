// Files of what is on the screen: a picture, a card, or a page that needs no studio.
import { paperColor } from "./colors.js";
import { element, hasBox } from "./dom.js";
import { figureOf, onPaper } from "./figure.js";
import { svgNode, textNode, textWidth } from "./marks.js";

/** @import { About, Page, Picture } from "./app.js" */
/** @import { Figure } from "./figure.js" */
/** @import { Answers } from "./live/report.js" */
/** @import { Source } from "./source.js" */

// A card as messengers and slides show it.
const CARD = { width: 1200, height: 630 };
const EDGE = 48;
const SENTENCE = 26;
// Of what stands above a picture.
const TITLE = { size: 16, room: 34 };
// Lines of a card's sentence.
const MOST_LINES = 3;
// A browser's canvas is no wider or higher, and has no more pixels.
const LONGEST_SIDE = 16384;
const MOST_PIXELS = 2 ** 26;
// Milliseconds after which a browser has begun to save what it was given.
const SAVED_AFTER = 1000;

/** @param {"png" | "svg" | "card"} kind @param {Page} page */
export async function savePicture(kind, { shown, draw }) {
  const picture = draw();
  const name = `glasshead-${shown}`;
  if (kind === "card") {
    return save(await asPng(card(picture), 1), `${name}-card.png`);
  }
  const whole = onPaper(titled(figureOf(picture.parts), picture.title));
  return save(kind === "svg" ? await asSvg(whole) : await asPng(whole), `${name}.${kind}`);
}

/** @param {Figure} figure @param {string | undefined} title @returns {Figure} */
function titled(figure, title) {
  if (!title) return figure;
  const { node, width, height } = figure;
  node.setAttribute("transform", `translate(0 ${TITLE.room})`);
  const look = { "font-size": TITLE.size, "font-weight": 600, fill: paperColor("ink") };
  const line = textNode("text", { x: 0, y: TITLE.size, ...look }, title);
  const wide = Math.max(width, textWidth(title, TITLE.size));
  return { width: wide, height: height + TITLE.room, node: svgNode("g", {}, line, node) };
}

async function asSvg(/** @type {SVGElement} */ root) {
  const fonts = await ownFonts();
  root.append(textNode("style", {}, `${fonts}.tabular{font-variant-numeric:tabular-nums}`));
  const written = new XMLSerializer().serializeToString(root).toWellFormed();
  // XML cannot hold NUL and its like.
  const whole = written.replace(/[^\t\n\r\u0020-\ufffd\u{10000}-\u{10ffff}]/gu, "\ufffd");
  return new Blob([whole], { type: "image/svg+xml" });
}

/** The typefaces of the page as rules of CSS that hold them; "" where the page has none. */
async function ownFonts() {
  const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]);
  // Others are the reader's own.
  const faces = rules.filter(({ cssText }) => /^@font-face.* url\(/s.test(cssText));
  const held = faces.map(async ({ cssText, parentStyleSheet }) => {
    const [, path] = /url\("([^"]+)"\)/.exec(cssText);
    const answer = await fetch(new URL(path, parentStyleSheet.href));
    const content = new Uint8Array(await answer.arrayBuffer());
    return cssText.replace(path, `data:font/woff2;base64,${btoa(String.fromCharCode(...content))}`);
  });
  // A studio that has ended gives no letters.
  return (await Promise.all(held).catch(() => [""])).join("");
}

// A picture as a PNG of so many pixels by one of the picture; a very large one is as fine as a
// canvas can be.
/** @param {SVGElement} root @returns {Promise<Blob>} */
async function asPng(root, wanted = 2) {
  const [width, height] = ["width", "height"].map((side) => Number(root.getAttribute(side)));
  const finest = Math.min(LONGEST_SIDE / width, LONGEST_SIDE / height);
  const fine = Math.min(wanted, finest, Math.sqrt(MOST_PIXELS / (width * height)));
  const url = URL.createObjectURL(await asSvg(root));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const size = { width: Math.floor(width * fine), height: Math.floor(height * fine) };
    const canvas = element("canvas", size);
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) => {
      canvas.toBlob((content) => (content ? resolve(content) : reject(new Error("no PNG"))));
    });
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** Let the browser save a file. @param {Blob} content @param {string} download  Its name */
function save(content, download) {
  const href = URL.createObjectURL(content);
  element("a", { href, download }).click();
  setTimeout(() => URL.revokeObjectURL(href), SAVED_AFTER);
  return download;
}

/** Save a page that shows the same without the studio. @param {Page} shown */
export async function saveFile({ source, shown: view, about, language, t }) {
  const { page, icon } = await source.json("file", { lang: language, title: document.title });
  /** @type {About} */
  const own = {
    ...about,
    subject: { ...about.subject, path: null },
    views: { [view]: null },
    models: [],
    icon,
    first: view,
    tour: null,
    place: location.hash,
    languages: { [language]: about.languages[language] },
  };
  const held = await recorded(source, { about: own }, t("share.missing"));
  const answers = held.replaceAll("<", "\\u003c");
  const whole = page.replace('id="answers">{}', () => `id="answers">${answers}`);
  return save(new Blob([whole], { type: "text/html" }), `glasshead-${view}.html`);
}

// What a server has answered for the view that is shown, as a report holds it, with some answers
// changed, and a sentence about those that are missing.
/** @param {Source} source @param {Record<string, any>} changed @param {string} missing */
async function recorded({ answered }, changed, missing) {
  const numbers = /** @type {Answers["numbers"]} */ ({});
  const told = /** @type {Record<string, any>} */ ({});
  for (const [key, answer] of answered) {
    if (!(answer?.values instanceof Float32Array)) told[key] = answer;
    else numbers[key] = { shape: answer.shape, data: await deflated(answer.values) };
  }
  const plain = new TextEncoder().encode(JSON.stringify({ ...told, ...changed }));
  return JSON.stringify({ missing, told: await deflated(plain), numbers });
}

async function deflated(/** @type {Uint8Array<ArrayBuffer> | Float32Array<ArrayBuffer>} */ values) {
  const stream = new Blob([values]).stream().pipeThrough(new CompressionStream("deflate"));
  const packed = await new Response(stream).blob();
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).split(",", 2)[1]);
    reader.readAsDataURL(packed);
  });
}

/** What the view says of its picture, in a sentence; "" if it says nothing. */
function finding() {
  const said = [...document.querySelectorAll("main :is([role=status], [aria-live])")];
  const shown = /** @type {HTMLElement[]} */ (said).filter(hasBox);
  return shown.map((one) => one.innerText.trim()).find(Boolean) ?? "";
}

/** A picture with a sentence, of the size of a card. @param {Picture} picture */
function card({ parts, card: own = parts, sentence = finding() }) {
  const lines = wrapped(sentence.replace(/\s+/g, " "), CARD.width - 2 * EDGE, SENTENCE);
  const below = CARD.height - EDGE - lines.length * SENTENCE * 1.3;
  const texts = lines.map((text, at) => {
    const place = { x: EDGE, y: below + (at + 1) * SENTENCE * 1.3 };
    return textNode("text", { ...place, "font-size": SENTENCE, fill: paperColor("ink") }, text);
  });
  const place = { x: CARD.width - EDGE, y: CARD.height - 16, "text-anchor": "end" };
  const look = { "font-size": 16, fill: paperColor("quiet") };
  const brand = textNode("text", { ...place, ...look }, document.title);
  const room = { width: CARD.width - 2 * EDGE, height: below - 2 * EDGE };
  /** @param {Figure} figure */
  const scaleOf = ({ width, height }) => Math.min(room.width / width, room.height / height);
  // As large as it can be.
  const [figure] = [false, true]
    .map((beside) => figureOf(own, beside))
    .sort((one, other) => scaleOf(other) - scaleOf(one));
  const scale = scaleOf(figure);
  const x = (CARD.width - figure.width * scale) / 2;
  const y = EDGE + (room.height - figure.height * scale) / 2;
  figure.node.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
  return onPaper({ ...CARD, node: svgNode("g", {}, figure.node, ...texts, brand) }, 0);
}

// Lines of a text that fit a width; a long text ends in an ellipsis.
/** @param {string} text @param {number} width @param {number} size */
function wrapped(text, width, size) {
  const lines = /** @type {string[]} */ ([]);
  // Chinese has no blanks.
  for (const word of text.match(/[^\s\u2e80-\uffef]+\s?|[\u2e80-\uffef]\s?/gu) ?? []) {
    const longer = `${lines.at(-1) ?? ""}${word}`;
    if (lines.length && textWidth(longer, size) <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  const shown = lines.slice(0, MOST_LINES).map((line) => line.trim());
  if (lines.length > MOST_LINES) shown[MOST_LINES - 1] += " …";
  return shown;
}
