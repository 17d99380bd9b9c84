// Predict the weight: one bar of a query's weights is hidden, guessed, and worked out.
import { element } from "../dom.js";
import { toneOf } from "../diverging.js";
import { decimal, largestFirst, range, sum } from "../numbers.js";
import { h, html, render } from "../parts/html.js";
import { bar, barLine } from "./steps-bars.js";
import { largestOf, short, shortWeight } from "./steps-layout.js";
import { lineOf } from "./steps-row.js";
import { joined, partElements } from "./steps-sums.js";

/** @import { Context } from "../app.js" */
/** @import { Key, Row } from "./steps-row.js" */
/** @import { Material } from "./steps-practice.js" */
/** @import { Part } from "./steps-sums.js" */

/** A weight to guess: of a key, by its place in the row. @typedef {{row: Row, place: number}} Question */

const ROUNDS = 5;
// Numbers of a vector that have room to be written, and terms of a sum.
const NUMBERS = 6;
const TERMS = 6;
// A multiple of it, without the whole part, spreads questions over all of them.
const GOLDEN = (Math.sqrt(5) - 1) / 2;

export class Predict {
  /** @param {Context} context */
  constructor({ t }) {
    this.t = t;
    this.element = element("section.walk.predict", { "aria-label": t("practice.predict") });
    /** @type {Question[]} */
    this.questions = [];
    // The rounds before the first of these five.
    this.turn = 0;
    this.key = "";
    this.begin();
  }

  /** Begin with the first of five rounds. */
  begin() {
    /** @type {{guess: number, weight: number, question: Question}[]} */
    this.told = [];
    this.hide();
  }

  /** Hide the next weight. */
  hide() {
    // What a guess is before it is made: an equal share.
    this.guess = null;
    this.revealed = 0;
  }

  /** @param {Material} material */
  show(material) {
    const rows = material.rows();
    this.questions = questionsOf(rows);
    const key = JSON.stringify(
      rows.map(({ keys }) => keys.map(({ weight, word }) => [word, weight])),
    );
    if (key !== this.key) {
      this.turn = 0;
      this.begin();
    }
    this.key = key;
    this.draw();
  }

  /** How many rounds there are: fewer where there are fewer weights. */
  get rounds() {
    return Math.min(ROUNDS, this.questions.length);
  }

  /** @returns {Question} */
  get question() {
    return this.questions[(this.turn + this.told.length) % this.questions.length];
  }

  draw() {
    const { t, questions, told, rounds } = this;
    const isDone = rounds > 0 && told.length === rounds;
    const none = html`<p class="said">${t("predict.none")}</p>`;
    render(!questions.length ? none : isDone ? this.result() : this.round(), this.element);
  }

  round() {
    const { t, told, rounds, revealed } = this;
    const { row, place } = this.question;
    const key = row.keys[place];
    const steps = stepsOf(row, place);
    const isOpen = revealed > 0;
    const isWhole = revealed === steps.length;
    const guess = this.guess ?? 1 / openKeys(row).length;
    const off = Math.abs(guess - key.weight);
    const next = isWhole ? (told.length + 1 === rounds ? "result" : "next") : steps[revealed].name;
    const words = { query: row.word, key: key.word };
    const said = isWhole
      ? t("predict.off", {
          guess: decimal(guess, 2),
          weight: shortWeight(key.weight, 3),
          off: decimal(off, 2),
        })
      : t(isOpen ? `predict.says.${steps[revealed - 1].name}` : "predict.ask", words);
    return html`
      <div class="told">
        <p class="quiet count">${t("predict.round", { round: told.length + 1, of: rounds })}</p>
        <p class="said" role="status">${said}</p>
      </div>
      ${this.bars(row, place, guess, isWhole)}
      <div class="row">
        <button type="button" class="play" onClick=${() => this.go(steps.length, guess)}>
          ${t(`predict.${next}`)}
        </button>
      </div>
      <ol class="sums" aria-label=${t("steps.sum")}>
        ${steps
          .slice(0, revealed)
          .map(
            ({ name, lines }) =>
              html`<li key=${name}>
                ${lines.map((line) => html`<p class="line">${partElements(line, row.decimals, h)}</p>`)}
              </li>`,
          )}
      </ol>
    `;
  }

  /**
   * Reveal one step more of the sum; after the last one, go on to the next round.
   * @param {number} steps @param {number} guess
   */
  go(steps, guess) {
    this.guess = guess;
    if (this.revealed < steps) {
      this.revealed += 1;
    } else {
      const { row, place } = this.question;
      this.told.push({ guess, weight: row.keys[place].weight, question: this.question });
      this.hide();
    }
    this.draw();
  }

  /**
   * The weights of all keys as bars, of which one is a slider.
   * @param {Row} row @param {number} hidden @param {number} guess @param {boolean} isWhole
   */
  bars(row, hidden, guess, isWhole) {
    const size = largestOf([row.q, ...row.keys.map((key) => key.k)]);
    const others = row.keys.map(({ weight }) => {
      return isWhole ? weight : beside(row, weight, row.keys[hidden].weight, guess);
    });
    return html`<div class="bars">
      <b class="query">q(${row.word})</b>
      ${vector(row.q, size)}
      <span class="head">${this.t("steps.weights")}</span>
      <span></span>
      ${row.keys.map((key, at) => {
        const isAsked = at === hidden;
        const isHidden = key.masked === null;
        const shown =
          isAsked && this.revealed === 0
            ? this.slider(key, guess)
            : bar(isAsked && !isWhole ? guess : others[at], isHidden, isAsked ? guess : undefined);
        const number = this.number(isAsked, isWhole, isHidden, isWhole ? key.weight : guess);
        return barLine(
          key.word,
          vector(key.k, size),
          shown,
          number,
          isAsked ? "word asked" : "word",
        );
      })}
      ${row.rest && this.others(row, hidden, guess, isWhole)}
    </div>`;
  }

  /**
   * @param {boolean} isAsked @param {boolean} isWhole @param {boolean} isHidden
   * @param {number} value
   */
  number(isAsked, isWhole, isHidden, value) {
    if (isHidden) return "0";
    if (isWhole) return shortWeight(value, 3);
    return isAsked ? decimal(value, 2) : "";
  }

  /**
   * All keys that are not shown, together.
   * @param {Row} row @param {number} hidden @param {number} guess @param {boolean} isWhole
   */
  others(row, hidden, guess, isWhole) {
    const { count, weight } = row.rest;
    const shown = isWhole ? weight : beside(row, weight, row.keys[hidden].weight, guess);
    const number = isWhole ? shortWeight(weight, 3) : "";
    return barLine(this.t("walk.others", { count }), null, bar(shown, false), number);
  }

  /** @param {Key} key @param {number} guess */
  slider({ word }, guess) {
    /** @param {InputEvent} event */
    const moved = ({ target }) => {
      this.guess = Number(/** @type {HTMLInputElement} */ (target).value);
      this.draw();
    };
    return html`<input
      type="range"
      min="0"
      max="1"
      step="0.01"
      value=${guess}
      aria-label=${this.t("predict.guess", { key: word })}
      aria-valuetext=${decimal(guess, 2)}
      style=${{ "--share": guess }}
      onInput=${moved}
    />`;
  }

  result() {
    const { t, told } = this;
    const offs = told.map(({ guess, weight }) => Math.abs(guess - weight));
    const mean = sum(offs) / told.length;
    const best = told[offs.indexOf(Math.min(...offs))].question;
    const words = { query: best.row.word, key: best.row.keys[best.place].word };
    const numbers = {
      rounds: told.length,
      mean: decimal(mean, 2),
      least: decimal(Math.min(...offs), 2),
    };
    const again = () => {
      this.turn += told.length;
      this.begin();
      this.draw();
    };
    const headings = ["predict.pair", "predict.guessed", "steps.weights", "predict.difference"];
    return html`
      <div class="told">
        <p class="said" role="status">${t("predict.done", { ...numbers, ...words })}</p>
      </div>
      <div>
        <table class="table">
          <thead>
            <tr>
              ${headings.map((name) => html`<th scope="col">${t(name)}</th>`)}
            </tr>
          </thead>
          <tbody>
            ${told.map(
              ({ guess, weight, question: { row, place } }, at) =>
                html`<tr>
                  <th scope="row">${row.word} → ${row.keys[place].word}</th>
                  <td class="right">${decimal(guess, 2)}</td>
                  <td class="right">${shortWeight(weight, 3)}</td>
                  <td class="right">${decimal(offs[at], 2)}</td>
                </tr>`,
            )}
          </tbody>
        </table>
      </div>
      <div class="row">
        <button type="button" class="play" onClick=${again}>${t("predict.again")}</button>
      </div>
    `;
  }
}

/** @param {Row} row */
function openKeys({ keys }) {
  return keys.filter(({ masked }) => masked !== null);
}

/**
 * All weights that can be guessed, those of one row far from each other; a key that is hidden, or
 * alone, is none.
 * @param {Row[]} rows @returns {Question[]}
 */
export function questionsOf(rows) {
  const all = rows.flatMap((row) => {
    const places = openKeys(row).length > 1 ? range(row.keys.length) : [];
    return places
      .filter((place) => row.keys[place].masked !== null)
      .map((place) => ({ row, place }));
  });
  /** @param {number} at */
  const order = (at) => ((at + 1) * GOLDEN) % 1;
  return range(all.length)
    .sort((one, other) => order(one) - order(other))
    .map((at) => all[at]);
}

/**
 * A weight beside one that is a guess: what weights share they share in the same ratio, so that the
 * bars in sight do not give the hidden one away.
 * @param {Row} row @param {number} weight @param {number} hidden @param {number} guess
 */
export function beside({ sharesOne, keys }, weight, hidden, guess) {
  if (!sharesOne) return weight;
  return hidden < 1 ? (weight * (1 - guess)) / (1 - hidden) : (1 - guess) / (keys.length - 1);
}

/**
 * The steps from a score to its weight, in lines of numbers.
 * @param {Row} row @param {number} place @returns {{name: string, lines: Part[][]}[]}
 */
export function stepsOf(row, place) {
  /** @param {string} phase */
  const told = (phase) => lineOf(row, { phase, key: place });
  const changes = row.changes.filter((phase) => phase !== "masked");
  const score = { name: "score", lines: ["score", ...changes].map(told) };
  const weight = { name: "weight", lines: [told("weights")] };
  if (!row.isExponential) return [score, weight];
  const power = { name: "power", lines: [told("power")] };
  return [score, power, { name: "sum", lines: [sumLine(row)] }, weight];
}

/** The sum of the powers of all keys, the largest ones first. @param {Row} row @returns {Part[]} */
function sumLine(row) {
  const powers = openKeys(row).map(({ masked }) => Math.exp(masked - row.largest));
  const shown = powers.length > TERMS ? largestFirst(powers, Number) : powers;
  const terms = shown.slice(0, TERMS);
  const others = row.total - sum(terms);
  // A sink, and keys that are not shown, are others too.
  const isAll = powers.length <= TERMS && !row.rest && row.sink === null;
  const rest = isAll ? [] : [["… (", others, ")"]];
  return ["Σ = ", ...joined([...terms.map((power) => [power]), ...rest]), " = ", row.total];
}

/** @param {number[]} values @param {number} size  Of the largest number */
function vector(values, size) {
  const isRoomy = values.length <= NUMBERS;
  return html`<span class="vector">
    ${values.map((value) => {
      const { fill, ink } = toneOf(value / size);
      return html`<i style=${{ background: fill, color: ink }}>${isRoomy && short(value)}</i>`;
    })}
  </span>`;
}
