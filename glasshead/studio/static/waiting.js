// The studio, or what it shows, has gone away: ask again and again, and go on when it is back.
import { Unreachable } from "./source.js";

const EACH = 1000;

export class Waiting {
  constructor(page) { Object.assign(this, { page, lost: false, timer: null }); }

  forStudio() {
    this.lost = true;
    this.page.say("shell.gone");
    this.begin(() => this.page.source.json("health"), EACH);
  }

  forSubject() {
    if (this.page.source.offline) return;
    let gone = this.page.about.subject.problem !== null;
    this.begin(async () => {
      const there = (await this.page.source.json("about")).subject.problem === null;
      if (there && gone) await this.page.renew();
      gone = !there;
      return there;
    }, gone ? EACH : 0);
  }

  begin(there, first) {
    if (this.timer === null) this.timer = setTimeout(() => this.ask(there), first);
  }

  async ask(there) {
    const before = this.lost;
    this.lost = false;
    let done = true;
    try {
      done = await there();
      if (before) await this.page.renew();
    } catch (error) {
      if (error instanceof Unreachable) this.lost = true; else this.page.refuse(error);
    }
    if (this.lost !== before) this.page.say(this.lost ? "shell.gone" : "shell.back");
    this.timer = done && !this.lost ? null : setTimeout(() => this.ask(there), EACH);
  }
}
