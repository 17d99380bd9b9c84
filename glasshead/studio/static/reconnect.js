// The studio, or what it shows, has gone away: ask again and again, and go on when it is back.
import { Unreachable } from "./source.js";

/** @import { Page } from "./app.js" */

const INTERVAL = 1000;

export class Reconnect {
  constructor(/** @type {Page} */ page) {
    this.page = page;
    // Whether the studio does not answer.
    this.lost = false;
    this.timer = /** @type {number} */ (null);
  }

  forStudio() {
    this.lost = true;
    this.page.say("shell.gone");
    this.begin(async () => {
      await this.page.source.json("health");
      return true;
    }, INTERVAL);
  }

  /** Wait until the folder that the studio shows can be read. */
  forSubject() {
    if (this.page.source.offline) return;
    let gone = this.page.about.subject.problem !== null;
    const isThere = async () => {
      const there = (await this.page.source.json("about")).subject.problem === null;
      if (there && gone) await this.page.renew();
      gone = !there;
      return there;
    };
    this.begin(isThere, gone ? INTERVAL : 0);
  }

  // Ask after so many milliseconds for the first time.
  /** @param {() => Promise<boolean>} isThere @param {number} first */
  begin(isThere, first) {
    if (this.timer === null) this.timer = setTimeout(() => this.ask(isThere), first);
  }

  async ask(/** @type {() => Promise<boolean>} */ isThere) {
    const wasLost = this.lost;
    this.lost = false;
    let done = true;
    try {
      done = await isThere();
      if (wasLost) await this.page.renew();
    } catch (error) {
      if (error instanceof Unreachable) this.lost = true;
      else this.page.refuse(error);
    }
    if (this.lost !== wasLost) this.page.say(this.lost ? "shell.gone" : "shell.back");
    const again = this.lost || !done;
    this.timer = again ? setTimeout(() => this.ask(isThere), INTERVAL) : null;
  }
}
