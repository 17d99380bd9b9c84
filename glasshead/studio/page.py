"""The studio's single page: its document, style sheet and scripts, served or in one file."""

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from glasshead.drawing.page import rendered
from glasshead.message import Message


def page() -> str:
    """Return the HTML document of the page, which loads all else from the studio alone."""
    return static("index.html")


def typeface(name: str) -> bytes:
    """Return a file of letters, one of `TYPEFACES`."""
    return files("glasshead.studio").joinpath("static", name).read_bytes()


TYPEFACES = ("source-sans-3.woff2", "source-sans-3-turkish.woff2", "glasshead-signs.woff2")
"""Subsets of Source Sans 3, under the SIL Open Font License; the last one with another name."""


def static(name: str) -> str:
    """Return a text file of the page, such as "index.html"."""
    return files("glasshead.studio").joinpath("static", name).read_text(encoding="utf-8")


def document(
    answers: str,
    title: str,
    language: str,
    without_script: str,
    *,
    script: str = "report.js",
    story: str = "",
) -> str:
    """Assemble the page as one HTML file with a content security policy that allows no other code.

    Args:
        answers: Answers to its views' requests, as JSON that may stand in a script element.
        title: Title of the window, as plain text.
        language: Language code of the document.
        without_script: Message shown where JavaScript is disabled.
        script: Name of the bundle of its scripts.
        story: A model that the page runs itself, as JSON; it comes last, as the page starts before.
    """
    css, code = f"\n{bundles()['report.css']}", f"\n{bundles()[script]}"
    # A page on a site may load a tour from beside it.
    connects = "connect-src 'self'; " if story else ""
    policy = (
        f"default-src 'none'; script-src '{_hash(code)}'; style-src '{_hash(css)}'; "
        f"img-src data: blob:; {connects}base-uri 'none'; form-action 'none'"
    )
    made = rendered(
        "report.html",
        package="glasshead.studio",
        language=language,
        policy=policy,
        title=title,
        icon=icon(),
        style=css,
        without_script=without_script,
        answers=answers,
        code=code,
        story=story,
    )
    return made + "\n"


def framed(page: str, title: str) -> str:
    """Wrap the page in a sandboxed iframe, isolated from the notebook that shows it.

    Args:
        page: HTML, as from `document`.
        title: Title of the frame, as plain text.
    """
    return rendered("frame.html", package="glasshead.studio", page=page, title=title)


def icon() -> str:
    """Return the favicon as a data: URL."""
    content = files("glasshead.studio").joinpath("static", "icon.svg").read_bytes()
    return f"data:image/svg+xml;base64,{base64.b64encode(content).decode()}"


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


@cache
def bundles() -> Mapping[str, str]:
    """Return the bundled scripts and style sheets, and the source maps of scripts, by name.

    A server's page begins with "style.css" and "app.js", which imports others. "report.css" and
    "report.js" hold all that a page in one file needs.

    Errors: a FileNotFoundError if this checkout has no bundles, or those of an older one.
    """
    every = _bundled()
    if "style.css" not in every:
        raise FileNotFoundError(
            Message("the studio's scripts are not bundled yet. Run: make setup")
        )
    texts = {name: content.decode() for name, content in every.items() if not name.endswith(".br")}
    return MappingProxyType(texts)


def brotli(name: str) -> bytes | None:
    """Return a bundle as Brotli compressed it; None if it has no compressed form."""
    return _bundled().get(f"{name}.br")


@cache
def _bundled() -> Mapping[str, bytes]:
    """Read all bundles at once: those of two builds do not fit each other."""
    folder = files("glasshead.studio").joinpath("bundles")
    held = folder.iterdir() if folder.is_dir() else ()
    return {entry.name: entry.read_bytes() for entry in held if entry.is_file()}
