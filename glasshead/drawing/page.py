"""Page: the frame and the style of drawings in HTML, with nothing from outside."""

from functools import cache
from html import escape
from importlib.resources import files

from glasshead.drawing.colors import LEVELS, hexadecimal, ink, paint
from glasshead.drawing.printable import printable


def page(body: str, title: str, language: str) -> str:
    """Return a whole page in one file: no script, no font or picture from elsewhere.

    Args:
        body: The HTML of the blocks.
        title: The title of the window, as plain text.
        language: The language of the text, as in HTML's `lang`.
    """
    return (
        "<!doctype html>\n"
        f'<html lang="{quoted(language)}">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{quoted(title)}</title>\n"
        f"<style>\n{paper()}{style()}</style>\n</head>\n"
        f'<body>\n<main class="glasshead">\n{body}\n</main>\n</body>\n</html>\n'
    )


def fragment(body: str, language: str | None = None) -> str:
    """Return a piece of a page, for a notebook; its style touches nothing but itself."""
    lang = f' lang="{quoted(language)}"' if language else ""
    return f'<div class="glasshead inset"{lang}>\n<style>\n{style()}</style>\n{body}\n</div>\n'


def quoted(text: str) -> str:
    """Return a user's text as HTML, in an element or an attribute: never markup, never invisible.

    Example:
        >>> quoted('<b title="x">')
        '&lt;b title=&quot;x&quot;&gt;'
    """
    return escape(printable(text))


def region(label: str, content: str) -> str:
    """Return a frame that scrolls sideways, by keyboard too, and says what it holds."""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{quoted(label)}">'
        f"\n{content}\n</div>"
    )


@cache
def style() -> str:
    """Return the style sheet; each rule in it begins with the class `glasshead`."""
    sheet = files("glasshead.drawing").joinpath("page.css").read_text(encoding="utf-8")
    dark = _levels(dark=True)
    return f"{sheet}{_levels()}@media (prefers-color-scheme: dark) {{\n{dark}}}\n"


def ramp(*, dark: bool = False) -> str:
    """Return the colour map as the stops of a CSS gradient."""
    stops = (hexadecimal(paint(place, dark=dark)) for place in range(0, LEVELS + 1, 8))
    return ", ".join(stops)


def _levels(*, dark: bool = False) -> str:
    """Return a rule for each colour of the map."""
    bar = f".glasshead .ramp {{ background: linear-gradient(to right, {ramp(dark=dark)}) }}\n"
    return bar + "".join(
        f".glasshead .w{place} "
        f"{{ background: {hexadecimal(color)}; color: {hexadecimal(ink(color))} }}\n"
        for place in range(LEVELS + 1)
        for color in [paint(place, dark=dark)]
    )


def paper() -> str:
    """Return the rules of a whole page, which a fragment must not have."""
    return (
        "html { background: #fbfaf7; color-scheme: light dark; -webkit-text-size-adjust: 100% }\n"
        "body { margin: 0 }\n"
        "@media (prefers-color-scheme: dark) { html { background: #14171a } }\n"
    )
