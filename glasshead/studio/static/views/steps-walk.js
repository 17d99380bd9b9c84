// The walk of one query: played, stepped and scrubbed through, and told in sentences.
import { button, element, fill } from "../dom.js";
import { within } from "../numbers.js";
import { partElements } from "./steps-sums.js";
import { framesOf, idleOf, lineOf, sentenceOf } from "./steps-row.js";
import { Stage } from "./steps-stage.js";
import { takeTurns } from "./steps-turns.js";

/** @import { Context } from "../app.js" */
/** @import { Frame, Row } from "./steps-row.js" */

// Milliseconds of a frame; all frames of scores, or of values, of a long sentence take no more.
/** @type {Record<string, number>} */
const LASTS = { query: 900, power: 1900, weights: 2300, context: 900 };
const USUAL = 1300;
const OF_ALL_KEYS = 7000;
const STEP = 0.6;
// Where a space bar is for others.
const HANDLED = "input:not([type='range']), select, textarea, button, a, summary, td";

export class Walk {
  /**
   * @param {Context} context
   * @param {(phase: string) => void} [reached]  Called where somebody goes to a phase
   * @param {() => void} [folded]  Called where steps without effect are folded, or not any more
   */
  constructor(context, reached = () => {}, folded = () => {}) {
    const { t, state, signal } = context;
    this.context = context;
    this.reached = reached;
    this.folded = folded;
    this.row = /** @type {Row} */ (null);
    this.frames = /** @type {Frame[]} */ ([]);
    this.at = 0;
    this.time = 0;
    this.motion = /** @type {"play" | "step" | null} */ (null);
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
    const back = button("←", () => this.step(-1), t("walk.back"));
    const on = button("→", () => this.step(1), t("walk.on"));
    this.element = element(
      "section.walk",
      { "aria-label": t("walk.title") },
      element("div.told", this.sentence, this.line),
      element("div.player", this.play, back, this.scrubber, on, this.count),
      this.stage.element,
      this.fold,
    );
    this.still.addEventListener("change", () => this.pause(), { signal });
    document.addEventListener("keydown", (event) => this.key(event), { signal });
    // A presentation goes from frame to frame, and from the last one to the next panel.
    takeTurns(this.element, signal, (by) => this.at + by in this.frames && (() => this.step(by)));
    signal.addEventListener("abort", () => this.pause());
  }

  /**
   * Show a row; the same frame of it, or else the next one that it has.
   *
   * @param {Row} row
   * @returns {boolean} Whether it went on to the weights, which another factor or normalizer changes
   */
  show(row) {
    const { frames: before, at } = this;
    const { t, state } = this.context;
    // Another sentence begins, or is at its end where the one before was.
    const isOther = row.keys.length !== this.row?.keys.length && at < before.length - 1;
    this.frames = framesOf(row, this.fold.open);
    const same = before
      .slice(at)
      .map((each) => {
        return this.frames.findIndex(({ phase, key }) => phase === each.phase && key === each.key);
      })
      .find((found) => found >= 0);
    const kept = isOther ? 0 : (same ?? at);
    const turned = isOther ? -1 : this.turnedTo(row);
    const next = before.length ? Math.max(kept, turned) : Number(state.frame) || 0;
    if (next !== at || this.frames.length !== before.length) {
      this.motion = null;
      this.at = within(next, this.frames.length);
      this.time = this.at;
    }
    this.row = row;
    // First, as letters of a canvas would lay out what is changed before them.
    this.stage.show(row, this.frames, this.time);
    this.scrubber.max = String(this.frames.length - 1);
    const idle = idleOf(row);
    // The factor is a number, which needs no word.
    const names = idle.map((phase) => (phase === "scaled" ? "β = 1" : t(`walk.step.${phase}`)));
    const told = t("walk.idle", { steps: names.join(t("shell.comma")) });
    if (this.idle.textContent !== told) {
      const reasons = idle.map((phase) => element("li", t(`walk.idle.${phase}`)));
      fill(this.reasons, reasons);
      fill(this.idle, told);
    }
    this.tell();
    return turned > at;
  }

  /** The frame in which another factor or normalizer is seen, or -1. @param {Row} row */
  turnedTo({ beta, kind }) {
    const isTurned = this.row && (this.row.beta !== beta || this.row.kind !== kind);
    return isTurned ? this.frames.findIndex(({ phase }) => phase === "weights") : -1;
  }

  /** Give steps that change nothing a frame each, or none. */
  unfold() {
    this.context.remember({ idle: this.fold.open ? 1 : null });
    if (!this.row) return;
    this.show(this.row);
    this.save();
    this.folded();
  }

  tell() {
    const { row, frames, at } = this;
    const { t } = this.context;
    const isPlayed = this.motion === "play";
    const said = sentenceOf(row, frames[at], t);
    // Each phase is told once while it is played.
    fill(this.sentence, said);
    const parts = lineOf(row, frames[at]);
    fill(this.line, partElements(parts, row.decimals));
    // The last number of a vector is no result.
    this.line.classList.toggle("listed", parts.at(-1) === "]" || parts.at(-1) === ", …]");
    this.line.dataset.frame = frames[at].phase;
    this.scrubber.value = String(at);
    this.scrubber.ariaValueText = said;
    fill(this.count, `${t("walk.at")} ${at + 1} / ${frames.length}`);
    // A step of one's own is told with its numbers.
    this.line.ariaLive = isPlayed ? "off" : "polite";
    fill(this.play, isPlayed ? "❚❚ " : "▶ ", t(isPlayed ? "walk.pause" : "walk.play"));
    this.play.hidden = this.still.matches;
  }

  key(/** @type {KeyboardEvent} */ event) {
    const target = /** @type {Element} */ (event.target);
    const isOwn = event.key === " " && this.element.isConnected && !target.closest(HANDLED);
    if (!isOwn || event.defaultPrevented) return;
    event.preventDefault();
    this.toggle();
  }

  toggle() {
    if (this.still.matches) return;
    if (this.motion === "play") {
      this.pause();
      return;
    }
    const last = this.frames.length - 1;
    if (this.at === last && this.time === last) this.jump(0);
    this.motion = "play";
    this.tell();
    this.run();
  }

  pause() {
    this.motion = null;
    if (!this.row) return;
    this.time = this.at;
    this.stage.paint(this.time);
    this.tell();
    this.save();
  }

  save() {
    const isLast = this.at === this.frames.length - 1;
    this.context.remember({ frame: isLast ? null : this.at });
    this.reached(this.frames[this.at].phase);
  }

  jump(/** @type {number} */ frame) {
    this.at = within(frame, this.frames.length);
    this.pause();
  }

  /** Go on by a frame, or back; where motion is reduced at once. @param {number} by */
  step(by) {
    const before = this.at;
    this.jump(this.at + by);
    if (by < 0 || this.at === before || this.still.matches) return;
    this.time = before;
    this.motion = "step";
    this.run();
  }

  /** Go to the frame of a key. @param {number} lane @param {string} phase */
  toLane(lane, phase) {
    const key = lane < this.row.keys.length ? lane : undefined;
    const at = this.frames.findIndex((frame) => frame.phase === phase && frame.key === key);
    if (at >= 0) this.jump(at);
  }

  /** Move frame by frame of the screen, as long as it is played or a step is not done. */
  run() {
    let before = performance.now();
    const tick = (/** @type {number} */ now) => {
      if (!this.motion || this.context.signal.aborted) return;
      const lasts = this.lasts(Math.min(this.frames.length - 1, Math.floor(this.time) + 1));
      this.time += Math.max(0, now - before) / (this.motion === "step" ? lasts * STEP : lasts);
      before = now;
      this.arrive();
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  /** Where a frame has come, tell it; the last one ends the walk. */
  arrive() {
    const last = this.frames.length - 1;
    const end = this.motion === "step" ? this.at : last;
    if (this.time >= end) {
      this.at = end;
      this.pause();
      return;
    }
    const at = Math.ceil(this.time);
    if (at !== this.at && this.motion === "play") {
      this.at = at;
      this.tell();
      this.save();
    }
    this.stage.paint(this.time);
  }

  lasts(/** @type {number} */ frame) {
    const { phase } = this.frames[frame];
    const usual = LASTS[phase] ?? USUAL;
    const isOfOne = phase === "score" || phase === "mix";
    return isOfOne ? Math.min(usual, OF_ALL_KEYS / this.row.keys.length) : usual;
  }
}
