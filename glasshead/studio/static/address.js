// What the page shows stands behind the "#" of its URL. A page without a URL of its own, as in a
// notebook, remembers it.
import { linkTo } from "./selection.js";

const hasOwnUrl = location.protocol !== "about:";
// Writing an address takes a browser longer than a frame: it is written once the page rests.
const REST = 200;

let place = location.hash;
let writing = /** @type {number} */ (null);

/** Begin at a place, if the address names none. @param {string} [named]  With its "#" */
export function beginAt(named) {
  place ||= named ?? "";
}

/** @returns {{view: string, state: Record<string, string>}} */
export function readAddress() {
  const [view, query] = place.slice(1).split("?");
  return { view, state: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

/** @param {string} view @param {Record<string, string>} state */
export function writeAddress(view, state) {
  place = linkTo(view, state);
  settle();
  if (!hasOwnUrl) return;
  const before = location.hash;
  // Whoever reads the address of a page waits until none is due.
  document.documentElement.dataset.due = "";
  writing = setTimeout(() => {
    // If a link or the button Back has led elsewhere, its event is still to come.
    if (location.hash === before) history.replaceState(null, "", place);
    settle();
  }, REST);
}

/** Let nothing be due any more. */
function settle() {
  clearTimeout(writing);
  delete document.documentElement.dataset.due;
}

/** Call when another address is gone to, by a link or by hand. @param {() => void} gone */
export function onGoing(gone) {
  if (hasOwnUrl) {
    addEventListener("hashchange", () => {
      settle();
      place = location.hash;
      gone();
    });
    return;
  }
  addEventListener("click", (event) => {
    const link = /** @type {Element} */ (event.target).closest?.('a[href^="#"]');
    if (!link || event.defaultPrevented) return;
    event.preventDefault();
    place = link.getAttribute("href");
    gone();
  });
}

/** Put names into the address before its "#"; null takes one away. */
export function rememberInSearch(/** @type {Record<string, string | number | null>} */ changes) {
  if (!hasOwnUrl) return;
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) url.searchParams.delete(name);
    else url.searchParams.set(name, String(value));
  }
  history.replaceState(null, "", url);
}
