// The walk of one query: played, stepped and scrubbed through, and told in sentences.
import { button, element, fill, hasBox } from "../dom.js";
import { within } from "../numbers.js";
import { partElements } from "./steps-sums.js";
import { framesOf, idleOf, lineOf, sentenceOf } from "./steps-row.js";
import { Stage } from "./steps-stage.js";

/** @import { Context } from "../app.js" */
/** @import { Frame, Row } from "./steps-row.js" */

// Milliseconds of a frame; all frames of scores, or of values, of a long sentence take no more.
/** @type {Record<string, number>} */
const LASTS = {
  query: 900,
  scaled: 1300,
  capped: 1300,
  biased: 1300,
  masked: 1300,
  power: 1900,
  weights: 2300,
  context: 900,
};
const OF_A_KEY = 1300;
const OF_ALL_KEYS = 7000;
const STEP = 0.6;
const HANDLED = "input:not([type='range']), select, textarea, button, a, summary, td";

export class Walk {
  /**
   * @param {Context} context
   * @param {(phase: string) => void} [reached]  Called where somebody goes to a phase
   * @param {() => void} [folded]  Called where steps without effect are folded, or not any more
   */
  constructor({ t, state, remember, signal }, reached = () => {}, folded = () => {}) {
    this.t = t;
    this.reached = reached;
    this.folded = folded;
    this.state = state;
    this.remember = remember;
    this.signal = signal;
    /** @type {Row} */
    this.row = null;
    /** @type {Frame[]} */
    this.frames = [];
    this.at = 0;
    this.time = 0;
    this.plays = false;
    // What moves on to it while nothing is played: a step.
    this.moves = false;
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.stage = new Stage(t, (lane, phase) => this.toLane(lane, phase));
    this.sentence = element("p.said", { role: "status" });
    this.line = element("p.line");
    this.play = button("", () => this.toggle());
    this.play.className = "play";
    this.scrubber = element("input", {
      type: "range",
      min: 0,
      step: 1,
      "aria-label": t("walk.at"),
      oninput: () => this.jump(Number(this.scrubber.value)),
    });
    this.count = element("output");
    this.idle = element("summary");
    this.reasons = element("ul");
    this.fold = element(
      "details.fold",
      { open: state.idle !== undefined, ontoggle: () => this.unfold() },
      this.idle,
      this.reasons,
    );
    this.element = this.layOut();
    this.still.addEventListener("change", () => this.pause(), { signal });
    document.addEventListener("keydown", (event) => this.key(event), { signal });
    signal.addEventListener("abort", () => this.pause());
  }

  layOut() {
    const { t } = this;
    const back = button("←", () => this.step(-1), t("walk.back"));
    const on = button("→", () => this.step(1), t("walk.on"));
    return element(
      "section.walk",
      { "aria-label": t("walk.title") },
      element("div.told", this.sentence, this.line),
      element("div.player", this.play, back, this.scrubber, on, this.count),
      this.stage.element,
      this.fold,
    );
  }

  /** Show a row; the same frame of it, or else the next one that it has. @param {Row} row */
  show(row) {
    const { t, state, frames: before, at } = this;
    // Another sentence begins, or is at its end where the one before was.
    const isOther = row.keys.length !== this.row?.keys.length && at < before.length - 1;
    this.row = row;
    this.frames = framesOf(row, this.fold.open);
    const same = before
      .slice(at)
      .map((each) => this.frames.findIndex((frame) => isSame(frame, each)))
      .find((found) => found >= 0);
    const kept = isOther ? 0 : (same ?? at);
    const next = before.length ? kept : Number(state.frame) || 0;
    if (next !== at || this.frames.length !== before.length) {
      this.plays = false;
      this.moves = false;
      this.at = within(next, this.frames.length);
      this.time = this.at;
    }
    this.scrubber.max = String(this.frames.length - 1);
    const idle = idleOf(row);
    // The factor is a number, which needs no word.
    const names = idle.map((phase) => (phase === "scaled" ? "β = 1" : t(`walk.step.${phase}`)));
    const told = t("walk.idle", { steps: names.join(t("shell.comma")) });
    if (this.idle.textContent !== told) {
      const reasons = idle.map((phase) => element("li", t(`walk.idle.${phase}`)));
      fill(this.reasons, reasons);
    }
    fill(this.idle, told);
    this.stage.show(row, this.frames, this.time);
    this.tell();
  }

  /** Give steps that change nothing a frame each, or none. */
  unfold() {
    this.remember({ idle: this.fold.open ? 1 : null });
    if (!this.row) return;
    this.show(this.row);
    this.save();
    this.folded();
  }

  tell() {
    const { t, row, frames, at, plays } = this;
    const said = sentenceOf(row, frames[at], t);
    // Each phase is told once while it is played.
    fill(this.sentence, said);
    fill(this.line, partElements(lineOf(row, frames[at]), row.decimals));
    this.line.dataset.frame = frames[at].phase;
    this.scrubber.value = String(at);
    this.scrubber.ariaValueText = said;
    fill(this.count, `${at + 1} / ${frames.length}`);
    // A step of one's own is told with its numbers.
    this.line.ariaLive = plays ? "off" : "polite";
    fill(this.play, plays ? "❚❚ " : "▶ ", t(plays ? "walk.pause" : "walk.play"));
    this.play.hidden = this.still.matches;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const target = /** @type {Element} */ (event.target);
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) this.present(event, by);
    if (event.key !== " " || event.defaultPrevented || target.closest(HANDLED)) return;
    if (!this.element.isConnected) return;
    event.preventDefault();
    this.toggle();
  }

  /**
   * In a presentation, the arrow keys go from frame to frame; at its end they are for others.
   * @param {KeyboardEvent} event @param {number} by
   */
  present(event, by) {
    const { present, tour } = document.documentElement.dataset;
    const isAway = present === undefined || tour !== undefined || !hasBox(this.element);
    const target = /** @type {Element} */ (event.target);
    if (isAway || event.defaultPrevented || target.closest("input, select, textarea, td")) return;
    if (!(this.at + by in this.frames)) return;
    event.preventDefault();
    this.step(by);
  }

  toggle() {
    if (this.still.matches) return;
    if (this.plays) {
      this.pause();
      return;
    }
    const last = this.frames.length - 1;
    if (this.at === last && this.time === last) this.jump(0);
    this.plays = true;
    this.moves = false;
    this.tell();
    this.run();
  }

  pause() {
    this.plays = false;
    this.moves = false;
    if (!this.row) return;
    this.time = this.at;
    this.stage.paint(this.time);
    this.tell();
    this.save();
  }

  save() {
    const isLast = this.at === this.frames.length - 1;
    this.remember({ frame: isLast ? null : this.at });
    this.reached(this.frames[this.at].phase);
  }

  /** Show a frame at once. @param {number} frame */
  jump(frame) {
    this.at = within(frame, this.frames.length);
    this.pause();
  }

  /** Go on by a frame, or back; where motion is reduced at once. @param {number} by */
  step(by) {
    const before = this.at;
    this.jump(this.at + by);
    if (by < 0 || this.at === before || this.still.matches) return;
    this.time = before;
    this.moves = true;
    this.run();
  }

  /** Go to the frame of a key. @param {number} lane @param {string} phase */
  toLane(lane, phase) {
    const isRest = lane >= this.row.keys.length;
    const at = this.frames.findIndex((frame) => {
      return frame.phase === phase && (isRest ? frame.rest : frame.key === lane);
    });
    if (at >= 0) this.jump(at);
  }

  /** Move frame by frame of the screen, as long as it is played or a step is not done. */
  run() {
    let before = performance.now();
    /** @param {number} now */
    const tick = (now) => {
      if (!(this.plays || this.moves) || this.signal.aborted) return;
      const lasts = this.lasts(Math.min(this.frames.length - 1, Math.floor(this.time) + 1));
      this.time += Math.max(0, now - before) / (this.moves ? lasts * STEP : lasts);
      before = now;
      this.arrive();
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  /** Where a frame has come, tell it; the last one ends the walk. */
  arrive() {
    const last = this.frames.length - 1;
    const end = this.moves ? this.at : last;
    if (this.time >= end) {
      this.at = end;
      this.pause();
      return;
    }
    const at = Math.ceil(this.time);
    if (at !== this.at && this.plays) {
      this.at = at;
      this.tell();
      this.save();
    }
    this.stage.paint(this.time);
  }

  /** @param {number} frame */
  lasts(frame) {
    const { phase } = this.frames[frame];
    return LASTS[phase] ?? Math.min(OF_A_KEY, OF_ALL_KEYS / this.row.keys.length);
  }
}

/** @param {Frame} one @param {Frame} other */
function isSame(one, other) {
  return one.phase === other.phase && one.key === other.key && one.rest === other.rest;
}
