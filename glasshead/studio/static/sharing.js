// Files of what is on the screen: a picture, a card, or a page that needs no studio.
import { asPng, asSvg, save, textWidth } from "./figure.js";
import { recorded } from "./source.js";

/**
 * @import { About } from "./app.js"
 * @import { Figure, Mark } from "./figure.js"
 * @import { Shown } from "./share.js"
 * @import { Source } from "./source.js"
 */

// A card as messengers and slides show it.
const CARD = { width: 1200, height: 630 };
const MARGIN = 48;
const SENTENCE = 26;
// Lines of a card's sentence.
const MOST_LINES = 3;

/**
 * @param {"png" | "svg" | "card"} kind
 * @param {Shown} shown
 */
export async function savePicture(kind, { view, draw }) {
  const figure = { title: document.title, ...draw() };
  const name = `glasshead-${view}`;
  if (kind === "svg") {
    save(await asSvg(figure), `${name}.svg`);
  } else if (kind === "png") {
    save(await asPng(figure), `${name}.png`);
  } else {
    const shown = card(figure.title, figure.card ?? figure, figure.sentence ?? finding());
    save(await asPng(shown, 1), `${name}-card.png`);
  }
}

/**
 * Save a page that shows the same without the studio.
 * @param {Source} source
 * @param {Shown} shown
 * @param {string} missing  The sentence about what the file does not contain
 */
export async function saveFile(source, { view, about, language }, missing) {
  const { page, icon } = await source.json("file", { lang: language, title: document.title });
  /** @type {About} */
  const own = {
    ...about,
    subject: { ...about.subject, path: null },
    views: { [view]: null },
    models: [],
    icon,
    first: view,
    place: location.hash,
    languages: { [language]: about.languages[language] },
  };
  const held = await recorded(source, { about: own }, missing);
  const answers = held.replaceAll("<", "\\u003c");
  const whole = page.replace('id="answers">{}', () => `id="answers">${answers}`);
  save(new Blob([whole], { type: "text/html" }), `glasshead-${view}.html`);
}

/** What the view says of its picture, in a sentence; "" if it says nothing. */
function finding() {
  const said = [...document.querySelectorAll("main :is([role=status], [aria-live])")];
  const shown = /** @type {HTMLElement[]} */ (said).filter((one) => one.checkVisibility());
  return shown.map((one) => one.innerText.trim()).find(Boolean) ?? "";
}

/**
 * A picture with a sentence, of the size of a card.
 * @param {string} title
 * @param {Figure} figure
 * @param {string} sentence
 * @returns {Figure}
 */
function card(title, figure, sentence) {
  const lines = wrapped(sentence.replace(/\s+/g, " "), CARD.width - 2 * MARGIN, SENTENCE);
  const below = CARD.height - MARGIN - lines.length * SENTENCE * 1.3;
  /** @type {Mark[]} */
  const texts = lines.map((text, at) => {
    return { x: MARGIN, y: below + (at + 1) * SENTENCE * 1.3, text, size: SENTENCE };
  });
  const brand = { x: CARD.width - MARGIN, y: CARD.height - 16, anchor: "end", size: 16 };
  const room = { width: CARD.width - 2 * MARGIN, height: below - 2 * MARGIN };
  const scale = Math.min(room.width / figure.width, room.height / figure.height);
  const x = (CARD.width - figure.width * scale) / 2;
  const y = MARGIN + (room.height - figure.height * scale) / 2;
  const picture = { x, y, scale, marks: figure.marks };
  const marks = [picture, ...texts, { ...brand, text: title, fill: "quiet" }];
  return { ...CARD, title, marks };
}

/**
 * Lines of a text that fit a width; a long text ends in an ellipsis.
 * @param {string} text
 * @param {number} width
 * @param {number} size
 */
function wrapped(text, width, size) {
  /** @type {string[]} */
  const lines = [];
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
