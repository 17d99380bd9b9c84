// What the page shows, behind the "#" of its URL; a page without a URL of its own, as in a notebook, remembers it.

const own = location.protocol !== "about:";
// Writing an address takes a browser longer than a frame: it is written once the page rests.
const REST = 200;
let place = location.hash;
let writing = null;

export function read() {
  const [view, query] = place.slice(1).split("?");
  return { view, state: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

export function write(view, state) {
  const query = new URLSearchParams(state);
  place = `#${view}${query.size ? `?${query}` : ""}`;
  clearTimeout(writing);
  if (own) writing = setTimeout(() => history.replaceState(null, "", place), REST);
}

/** Call when another address is gone to, by a link or by hand. */
export function onGoing(gone) {
  if (own) {
    return addEventListener("hashchange", () => {
      clearTimeout(writing);
      place = location.hash;
      gone();
    });
  }
  addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]');
    if (!link || event.defaultPrevented) return;
    event.preventDefault();
    place = link.getAttribute("href");
    gone();
  });
}

/** Take the token out of the address, which may be shared: a cookie has it from now on. */
export function withoutToken() {
  const url = new URL(location.href);
  url.searchParams.delete("token");
  history.replaceState(null, "", url.href);
}
