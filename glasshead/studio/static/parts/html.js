// Elements that follow from data: a template is drawn again, and changes what differs.
import htm from "htm";
import { h, render } from "preact";

/** An element, or a list of several, written as HTML: html`<p class=${name}>${text}</p>`. */
export const html = htm.bind(h);

export { h, render };
