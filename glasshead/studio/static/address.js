// What the page shows, behind the "#" of its URL; a page without a URL of its own, as in a notebook, remembers it.

const own = location.protocol !== "about:";
let place = location.hash;

export function read() {
  const [view, query] = (own ? location.hash : place).slice(1).split("?");
  return { view, state: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

export function write(view, state) {
  const query = new URLSearchParams(state);
  place = `#${view}${query.size ? `?${query}` : ""}`;
  if (own) history.replaceState(null, "", place);
}

/** Call when another address is gone to, by a link or by hand. */
export function onGoing(gone) {
  if (own) return addEventListener("hashchange", gone);
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
  const query = new URLSearchParams(location.search);
  if (!query.has("token")) return;
  query.delete("token");
  history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}${location.hash}`);
}
