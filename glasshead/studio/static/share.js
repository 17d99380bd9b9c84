// What is on the screen, to give to others: a link, a picture, a card, or one file.
import { button, element, fill } from "./dom.js";
import { Refused, Unreachable } from "./source.js";

/** @import { About, Picture } from "./app.js" */
/** @import { Source } from "./source.js" */

/**
 * @typedef {object} Shown  What is on the screen
 * @property {string} view  Its name
 * @property {(() => Picture) | null} draw  Its picture, if it has one
 * @property {About} about
 * @property {string} language
 */

/** A menu of the ways to share what is shown. */
export class Share {
  /**
   * @param {Source} source @param {(name: string, places?: Record<string, any>) => string} t
   * @param {() => Shown} shown
   */
  constructor(source, t, shown) {
    this.source = source;
    this.t = t;
    this.shown = shown;
    this.told = element("p.quiet", { role: "status" });
    this.link = element("input", { type: "text", readonly: true, hidden: true });
    this.link.ariaLabel = t("share.link");
    this.pictures = element("div.row", this.button("png"), this.button("svg"), this.button("card"));
    const others = [this.button("link"), source.answered ? this.button("file") : null];
    this.element = element(
      "details.share",
      { onkeydown: (/** @type {KeyboardEvent} */ event) => this.leave(event) },
      element("summary", t("share.title")),
      element(
        "div.menu",
        this.pictures,
        source.offline ? null : element("div.row", others),
        this.link,
        this.told,
      ),
    );
    this.show(false);
  }

  /** @param {"png" | "svg" | "card" | "link" | "file"} kind */
  button(kind) {
    return button(this.t(`share.${kind}`), () => this.share(kind));
  }

  /** @param {KeyboardEvent} event */
  leave({ key }) {
    if (key !== "Escape") return;
    this.element.open = false;
    this.element.querySelector("summary").focus();
  }

  /**
   * Offer pictures if the view has one; a report has nothing else to share.
   * @param {boolean} hasPicture
   */
  show(hasPicture) {
    this.pictures.hidden = !hasPicture;
    this.element.hidden = this.source.offline && !hasPicture;
    this.link.hidden = true;
    fill(this.told);
  }

  /** @param {"png" | "svg" | "card" | "link" | "file"} kind */
  async share(kind) {
    fill(this.told);
    if (kind === "link") return this.copyLink();
    try {
      const { savePicture, saveFile } = await import("./sharing.js");
      if (kind !== "file") await savePicture(kind, this.shown());
      else await saveFile(this.source, this.shown(), this.t("share.missing"));
    } catch (error) {
      fill(this.told, error instanceof Refused ? error.message : this.t("shell.gone"));
      if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
    }
  }

  async copyLink() {
    this.link.value = location.href;
    this.link.hidden = false;
    this.link.select();
    const copied = await navigator.clipboard?.writeText(location.href).then(
      () => true,
      () => false,
    );
    fill(this.told, this.t(copied ? "share.copied" : "share.copy"));
  }
}
