// What is on the screen, to give to others: a link, a picture, a card, or one file.
import { button, element, fill } from "./dom.js";
import { Refused, Unreachable } from "./source.js";

/** @import { Page } from "./app.js" */

export class Share {
  constructor(/** @type {Page} */ page) {
    const { source, t } = page;
    this.page = page;
    this.told = element("p.quiet", { role: "status" });
    const label = t("share.link");
    this.link = element("input", { type: "text", readonly: true, "aria-label": label });
    this.pictures = element("div.row", this.button("png"), this.button("svg"), this.button("card"));
    const others = [this.button("link"), source.answered && this.button("file")];
    this.element = element(
      "details.share",
      {
        onkeydown: (/** @type {KeyboardEvent} */ event) => this.leave(event),
        onfocusout: (/** @type {FocusEvent} */ event) => this.leaveFor(event.relatedTarget),
      },
      element("summary", t("share.title")),
      element(
        "div.menu",
        this.pictures,
        !source.offline && element("div.row", others),
        this.link,
        this.told,
      ),
    );
    this.show(false);
    document.addEventListener("pointerdown", ({ target }) => this.leaveFor(target));
  }

  button(/** @type {"png" | "svg" | "card" | "link" | "file"} */ kind) {
    return button(this.page.t(`share.${kind}`), () => this.share(kind));
  }

  leave(/** @type {KeyboardEvent} */ { key }) {
    if (key !== "Escape") return;
    this.element.open = false;
    this.element.querySelector("summary").focus();
  }

  /** Close once something else has the focus, or is pressed. @param {EventTarget} to */
  leaveFor(to) {
    if (to && !this.element.contains(/** @type {Node} */ (to))) this.element.open = false;
  }

  /** Offer pictures if the view has one; a report has nothing else to share. */
  show(/** @type {boolean} */ hasPicture) {
    this.pictures.hidden = !hasPicture;
    this.element.hidden = this.page.source.offline && !hasPicture;
    this.link.hidden = true;
    fill(this.told);
  }

  async share(/** @type {"png" | "svg" | "card" | "link" | "file"} */ kind) {
    fill(this.told);
    this.link.hidden = true;
    if (kind === "link") return this.copyLink();
    try {
      const { savePicture, saveFile } = await import("./sharing.js");
      const file = await (kind === "file" ? saveFile(this.page) : savePicture(kind, this.page));
      fill(this.told, this.page.t("share.saved", { file }));
    } catch (error) {
      fill(this.told, error instanceof Refused ? error.message : this.page.t("shell.gone"));
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
    fill(this.told, this.page.t(copied ? "share.copied" : "share.copy"));
  }
}
