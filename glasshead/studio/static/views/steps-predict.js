// Predict the weight: one bar of a query's weights is hidden, guessed, and worked out.
import { element } from "../dom.js";
import { toneOf } from "../diverging.js";
import { decimal, largestFirst, range, sum } from "../numbers.js";
import { h, html, render } from "../parts/html.js";
import { bar, barLine } from "./steps-bars.js";
import { largestOf, short, shortWeight } from "./steps-layout.js";
import { NUMBERS, lineOf, othersOf } from "./steps-row.js";
import { joined, partElements } from "./steps-sums.js";
import { takeTurns } from "./steps-turns.js";

/** @import { Context } from "../app.js" */
/** @import { Key, Row } from "./steps-row.js" */
/** @import { Material, Opened } from "./steps-practice.js" */
/** @import { Part } from "./steps-sums.js" */

/** A weight to guess: of a key, by its place in the row. @typedef {{row: Row, place: number}} Question */

const ROUNDS = 5;
// Parts of the slider.
const STOPS = 100;
// Terms of a sum.
const TERMS = 6;
// A multiple of it, without the whole part, spreads questions over all of them.
const GOLDEN = (Math.sqrt(5) - 1) / 2;

export class Predict {
  /** @param {Context} context @param {Opened} opened */
  constructor({ t, signal }, opened) {
    this.t = t;
    this.opened = opened;
    this.element = element("section.walk.predict", { "aria-label": t("practice.predict") });
    this.questions = /** @type {Question[]} */ ([]);
    this.begin(0);
    takeTurns(this.element, signal, (by) => this.turn(by));
  }

  /** A presentation goes from step to step, and from the result to the next panel. @param {number} by */
  turn(by) {
    if (!this.rounds || (by < 0 ? !this.revealed : this.isDone)) return false;
    if (by > 0) return this.go;
    return () => {
      this.revealed -= 1;
      this.draw();
    };
  }

  async show(/** @type {Material} */ material) {
    this.material = material;
    // The row of a round has been selected by it.
    if (JSON.stringify(material.row) === JSON.stringify(this.question?.row)) return this.draw();
    const rows = await material.rows();
    if (material !== this.material) return;
    this.questions = questionsOf(rows);
    this.begin(0);
    this.next();
  }

  /** What is asked, or was asked last. @returns {Question | undefined} */
  get question() {
    const { before, told, isDone, questions } = this;
    return questions[(before + told.length - Number(isDone)) % questions.length];
  }

  /** Go on to a round, whose query is selected everywhere. */
  next() {
    this.hide();
    const { query } = this.question?.row ?? this.material.row;
    if (query !== this.material.row.query) this.material.select(query);
    this.draw();
  }

  /** Begin with the first of five rounds. @param {number} before  The rounds before it */
  begin(before) {
    this.before = before;
    this.told = /** @type {{guess: number, off: number, row: Row, key: Key}[]} */ ([]);
    this.hide();
  }

  hide() {
    /** @type {number} */
    this.guess = null;
    this.revealed = 0;
  }

  /** How many rounds there are: fewer where there are fewer weights. */
  get rounds() {
    return Math.min(ROUNDS, this.questions.length);
  }

  get isDone() {
    return this.told.length === this.rounds;
  }

  draw() {
    const { t, rounds } = this;
    this.opened(!this.isDone);
    if (!rounds) {
      render(html`<p class="said">${t("predict.none")}</p>`, this.element);
      return;
    }
    const { count, said, shown, next, go, sums } = this.isDone
      ? this.result()
      : this.round(this.question);
    this.go = go;
    const parts = html`
      <div class="told">
        <p class="said" role="status">${said}</p>
      </div>
      <div class="row">
        <button type="button" class="play" onClick=${go}>${t(`predict.${next}`)}</button>
        ${count && html`<p class="quiet count">${count}</p>`}
      </div>
      ${shown} ${sums}
    `;
    render(parts, this.element);
  }

  /** Reveal the sum step by step; after the last one, go on. @param {Question} question */
  round({ row, place }) {
    const { t, told, rounds, revealed } = this;
    const key = row.keys[place];
    const steps = stepsOf(row, place);
    const isWhole = revealed === steps.length;
    // What a guess is before it is made: an equal share, as the slider has it.
    const guess = this.guess ?? Math.round(STOPS / openCount(row)) / STOPS;
    const off = Math.abs(guess - key.weight);
    const name = isWhole ? "off" : revealed ? `says.${steps[revealed - 1].name}` : "ask";
    const last = told.length + 1 === rounds ? "result" : "next";
    const go = () => {
      this.guess = guess;
      this.revealed += 1;
      if (isWhole) {
        told.push({ guess, off, row, key });
        this.next();
      } else this.draw();
    };
    return {
      count: t("predict.round", { round: told.length + 1, of: rounds }),
      said: t(`predict.${name}`, {
        query: row.word,
        key: key.word,
        guess: decimal(guess, 2),
        weight: shortWeight(key.weight, 3),
        off: decimal(off, 2),
      }),
      shown: this.bars(row, key, guess, isWhole),
      next: isWhole ? last : steps[revealed].name,
      go,
      sums: html`<ol class="sums" aria-label=${t("steps.sum")}>
        ${steps
          .slice(0, revealed)
          .map(
            ({ name: step, lines }) =>
              html`<li key=${step}>
                ${lines.map((line) => html`<p class="line">${partElements(line, row.decimals, h)}</p>`)}
              </li>`,
          )}
      </ol>`,
    };
  }

  // The weights of all keys as bars, of which one is a slider.
  /** @param {Row} row @param {Key} asked @param {number} guess @param {boolean} isWhole */
  bars(row, asked, guess, isWhole) {
    const { t } = this;
    const { keys, rest } = row;
    const size = largestOf([row.q, ...keys.map((key) => key.k)]);
    /** @param {number} weight */
    const seen = (weight) => (isWhole ? weight : beside(row, weight, asked.weight, guess));
    const number = (/** @type {number} */ weight) => (isWhole ? shortWeight(weight, 3) : "");
    const line = (/** @type {Key} */ key) => {
      const { word, k, weight, masked } = key;
      const isHidden = masked === null;
      if (key !== asked) {
        const told = isHidden ? "0" : number(weight);
        return barLine(word, vector(k, size), bar(seen(weight), isHidden), told);
      }
      const shown = this.revealed
        ? bar(isWhole ? weight : guess, false, guess)
        : this.slider(key, guess);
      const told = number(weight) || decimal(guess, 2);
      return barLine(word, vector(k, size), shown, told, "word asked");
    };
    const others = rest && t("predict.others", { count: othersOf(rest) });
    const areHidden = rest?.hidden === rest?.count;
    return html`<div class="bars">
      <b class="query">q(${row.word})</b>
      ${vector(row.q, size)}
      <span class="head">${t(isWhole || !row.sharesOne ? "steps.weights" : "predict.shares")}</span>
      <span></span>
      ${keys.map(line)}
      ${rest && barLine(others, null, bar(seen(rest.weight), areHidden), areHidden ? "0" : number(rest.weight))}
    </div>`;
  }

  /** @param {Key} key @param {number} guess */
  slider({ word }, guess) {
    const moved = (/** @type {InputEvent} */ { target }) => {
      this.guess = /** @type {HTMLInputElement} */ (target).valueAsNumber;
      this.draw();
    };
    return html`<input
      type="range"
      min="0"
      max="1"
      step=${1 / STOPS}
      value=${guess}
      aria-label=${this.t("predict.guess", { key: word })}
      aria-valuetext=${decimal(guess, 2)}
      style=${{ "--share": guess }}
      onInput=${moved}
    />`;
  }

  result() {
    const { t, told } = this;
    const offs = told.map(({ off }) => off);
    const best = told[offs.indexOf(Math.min(...offs))];
    const headings = ["predict.pair", "predict.guessed", "heads.weight", "predict.difference"];
    return {
      count: "",
      said: t("predict.done", {
        rounds: told.length,
        mean: decimal(sum(offs) / told.length, 2),
        least: decimal(best.off, 2),
        query: best.row.word,
        key: best.key.word,
      }),
      shown: html`<div>
        <table class="table">
          <thead>
            <tr>
              ${headings.map((name) => html`<th scope="col">${t(name)}</th>`)}
            </tr>
          </thead>
          <tbody>
            ${told.map(({ guess, off, row, key }) => {
              const numbers = [decimal(guess, 2), shortWeight(key.weight, 3), decimal(off, 2)];
              return html`<tr>
                <th scope="row">${row.word} → ${key.word}</th>
                ${numbers.map((each) => html`<td class="right">${each}</td>`)}
              </tr>`;
            })}
          </tbody>
        </table>
      </div>`,
      next: "again",
      go: () => {
        this.begin(this.before + told.length);
        this.next();
      },
      sums: "",
    };
  }
}

// How many keys may have a weight, those that are not shown among them.
/** @param {Row} row */
const openCount = (row) =>
  openPlaces(row).length + (row.rest ? row.rest.count - row.rest.hidden : 0);

/** The places of the keys that are not hidden. @param {Row} row */
const openPlaces = ({ keys }) => range(keys.length).filter((place) => keys[place].masked !== null);

// All weights that can be guessed, one of each row in turn, as a round shows all of its row; a key
// that is hidden, or alone, is none.
/** @param {Row[]} rows @returns {Question[]} */
function questionsOf(rows) {
  const all = rows.map((row, at) => {
    const places = openPlaces(row);
    const open = places.length > 1 ? places : [];
    const order = largestFirst(open, (place) => -(((place + at + 1) * GOLDEN) % 1));
    return order.map((place) => ({ row, place }));
  });
  const most = Math.max(...all.map(({ length }) => length));
  return range(most).flatMap((turn) => all.flatMap((own) => own.slice(turn, turn + 1)));
}

// A weight beside one that is a guess: what weights share they share in the same ratio, so that the
// bars in sight do not give the hidden one away.
/** @param {Row} row @param {number} weight @param {number} hidden @param {number} guess */
function beside({ sharesOne, keys }, weight, hidden, guess) {
  if (!sharesOne) return weight;
  return hidden < 1 ? (weight * (1 - guess)) / (1 - hidden) : (1 - guess) / (keys.length - 1);
}

// The steps from a score to its weight, in lines of numbers.
/** @param {Row} row @param {number} place @returns {{name: string, lines: Part[][]}[]} */
function stepsOf(row, place) {
  const told = (/** @type {string} */ phase) => lineOf(row, { phase, key: place });
  const changes = row.changes.filter((phase) => phase !== "masked");
  const score = { name: "score", lines: ["score", ...changes].map(told) };
  const weight = { name: "weight", lines: [told("weights")] };
  if (!row.isExponential) return [score, weight];
  const power = { name: "power", lines: [told("power")] };
  return [score, power, { name: "sum", lines: [sumLine(row)] }, weight];
}

/** The sum of the powers of all keys, the largest ones first. @param {Row} row @returns {Part[]} */
function sumLine(row) {
  const open = openPlaces(row).map((place) => row.keys[place].masked);
  const powers = open.map((score) => Math.exp(score - row.shift));
  const shown = powers.length > TERMS ? largestFirst(powers, Number) : powers;
  const terms = shown.slice(0, TERMS);
  const others = row.total - sum(terms);
  // A sink, and keys that are not shown, are others too.
  const isAll = powers.length <= TERMS && row.rest?.hidden === row.rest?.count && row.sink === null;
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
