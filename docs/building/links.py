"""Find the links of a built site that lead to no file, or to no place on its page."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """The places of a page, and where its links lead."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the names and the links of an element."""
        given = {name: value for name, value in attrs if value}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        # A `use` draws a part of the page itself.
        names = ("href", "src", "action") if tag != "use" else ()
        self.links |= {given[name] for name in names if name in given}


def dead_links(site: Path) -> list[str]:
    """Return the links that lead nowhere within the site, each as "page: link".

    Addresses of other sites are not asked for.
    """
    pages = {file.resolve(): _Page(file) for file in sorted(site.rglob("*.html"))}
    dead = []
    for file, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            place = unquote(parts.fragment)
            lost = place and target in pages and place not in pages[target].places
            if lost or not target.is_file():
                dead.append(f"{file.relative_to(site.resolve())}: {link}")
    return dead
