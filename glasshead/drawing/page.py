"""The frame and style of drawings in HTML, and the colors of weights."""

import math
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import rich.color

from glasshead.drawing.printable import printable

if TYPE_CHECKING:
    from jinja2 import Environment

LEVELS = 64
"""The map has 65 colors, 0 to 64: more steps than the eye can tell apart."""

Color = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""

_INKS: tuple[Color, Color] = ((0, 0, 0), (255, 255, 255))

# (lightness, chroma, hue in degrees) in OKLCH, of nothing and of the largest weight. Lightness
# runs evenly and one way, so the order is seen without color vision and in gray print. The dark
# map is its twin on dark paper.
_LIGHT = ((0.955, 0.014, 215.0), (0.355, 0.135, 262.0))
_DARK = ((0.265, 0.034, 262.0), (0.895, 0.085, 215.0))


def level(value: float, top: float) -> int:
    """Return the place of a weight in the color map.

    Args:
        value: A weight, at least 0.
        top: The weight that gets the last color.

    Returns:
        0 to 64. Nothing, and everything where `top` is 0, is 0.

    Example:
        >>> level(0.0, 1.0), level(0.5, 1.0), level(3.0, 1.0)
        (0, 32, 64)
    """
    if top <= 0:
        return 0
    return min(LEVELS, math.floor(value / top * LEVELS + 0.5))


def paint(place: int, *, dark: bool = False) -> Color:
    """Return the color of a level: pale to deep, or on dark paper dim to bright.

    The map is even in lightness (OKLCH, B. Ottosson 2020, https://bottosson.github.io/posts/oklab/).

    Args:
        place: 0 to 64.
        dark: Whether the paper around is dark.

    Returns:
        The color as red, green and blue.

    Example:
        >>> paint(0), paint(64)
        ((230, 243, 246), (15, 53, 129))
    """
    start, end = _DARK if dark else _LIGHT
    share = place / LEVELS
    lightness, chroma, hue = (a + (b - a) * share for a, b in zip(start, end, strict=True))
    return _rgb(lightness, chroma, math.radians(hue))


def ink(color: Color) -> Color:
    """Return black or white, whichever is read better on a color: the contrast is at least 4.5.

    Example:
        >>> ink((231, 243, 245)), ink((19, 52, 118))
        ((0, 0, 0), (255, 255, 255))
    """
    return max(_INKS, key=lambda candidate: contrast(candidate, color))


def snapped(color: Color) -> Color:
    """Return the nearest of the 256 colors of older terminals.

    Example:
        >>> snapped((15, 53, 129))
        (0, 95, 135)
    """
    near = rich.color.Color.from_rgb(*color).downgrade(rich.color.ColorSystem.EIGHT_BIT)
    red, green, blue = near.get_truecolor()
    return red, green, blue


def contrast(first: Color, second: Color) -> float:
    """Return the contrast of two colors, 1 to 21, as WCAG 2.2 defines it.

    Example:
        >>> contrast((0, 0, 0), (255, 255, 255))
        21.0
    """
    low, high = sorted((_luminance(first), _luminance(second)))
    return (high + 0.05) / (low + 0.05)


def hexadecimal(color: Color) -> str:
    """Write a color for CSS and for rich.

    Example:
        >>> hexadecimal((19, 52, 118))
        '#133476'
    """
    return "#{:02x}{:02x}{:02x}".format(*color)


def _luminance(color: Color) -> float:
    """Return the relative luminance of a color (WCAG 2.2)."""
    red, green, blue = (_linear(part / 255) for part in color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(part: float) -> float:
    """Undo the gamma of sRGB."""
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4


def _gamma(part: float) -> float:
    """Apply the gamma of sRGB."""
    return part * 12.92 if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055


def _rgb(lightness: float, chroma: float, hue: float) -> Color:
    """Turn OKLCH into sRGB; the hue is in radians."""
    a, b = chroma * math.cos(hue), chroma * math.sin(hue)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    parts = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    red, green, blue = (round(255 * _gamma(min(1.0, max(0.0, part)))) for part in parts)
    return red, green, blue


def page(body: str, title: str, language: str) -> str:
    """Return a whole page in one file: no font, picture or script from elsewhere.

    Args:
        body: The HTML of the blocks. If it has code, a script of the page copies it.
        title: The title of the window, as plain text.
        language: The language of the text, as in HTML's `lang`.
    """
    sheet = _file("paper.css") + style()
    script = _file("copy.js") if 'class="copy"' in body else None
    content = {"body": body, "title": title, "language": language, "style": sheet}
    return rendered("page.html", **content, script=script) + "\n"


def fragment(body: str, language: str | None = None) -> str:
    """Return a piece of a page, for a notebook; its style touches nothing but itself.

    Jupyter's style aligns cells to the right, by rules of two classes and a tag: a class that is
    repeated goes before them.
    """
    own = style(".glasshead" * 3)
    return rendered("fragment.html", body=body, language=language, style=own) + "\n"


def rendered(template: str, /, *, package: str = "glasshead.drawing", **content: Any) -> str:
    """Fill in a template of a package's folder `templates`.

    Text is escaped, and made printable: never markup, never invisible.

    Example:
        >>> rendered("paragraph.html", text="1 < 2")
        '<p>1 &lt; 2</p>'
    """
    return _templates(package).get_template(template).render(content)


@cache
def _templates(package: str) -> "Environment":
    # Jinja is loaded by the first page.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )


@cache
def style(root: str = ".glasshead") -> str:
    """Return the style sheet; each rule in it begins with the class `glasshead`.

    Args:
        root: What the rules begin with, but those of colors.
    """
    sheet = "".join(map(_file, ["page.css", "figures.css"])).replace(".glasshead", root)
    dark = _levels(dark=True)
    return f"{sheet}{_levels()}@media (prefers-color-scheme: dark) {{\n{dark}}}\n"


def _file(name: str) -> str:
    return files("glasshead.drawing").joinpath(name).read_text(encoding="utf-8")


def ramp(*, dark: bool = False) -> str:
    """Return the color map as the stops of a CSS gradient."""
    stops = (hexadecimal(paint(place, dark=dark)) for place in range(0, LEVELS + 1, 8))
    return ", ".join(stops)


def _levels(*, dark: bool = False) -> str:
    """Return a rule for each color of the map."""
    bar = f".glasshead .ramp {{ background: linear-gradient(to right, {ramp(dark=dark)}) }}\n"
    return bar + "".join(
        f".glasshead .w{place} "
        f"{{ background: {hexadecimal(color)}; color: {hexadecimal(ink(color))} }}\n"
        for place in range(LEVELS + 1)
        for color in [paint(place, dark=dark)]
    )
