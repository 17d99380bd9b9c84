"""Page: the one document of the studio, and its style, in which drawings look as everywhere."""

from functools import cache
from importlib.resources import files
from pathlib import Path

from glasshead.drawing.page import paper, style
from glasshead.studio.views.names import VIEWS


def page() -> str:
    """The document that the browser opens; all else is loaded by it, from the studio alone.

    It names all modules, so that they are asked for at once, and not each by the one before it.
    """
    links = "".join(f'<link rel="modulepreload" href="static/{name}">\n' for name in _modules())
    return _static("index.html").replace("</head>", f"{links}</head>")


def style_sheet() -> str:
    """The style of drawings, the studio's own, and that of each view."""
    views = "".join(_static(f"views/{view}.css") for view in VIEWS)
    return paper() + style() + _static("studio.css") + views


@cache
def _modules() -> tuple[str, ...]:
    static = Path(str(files("glasshead.studio").joinpath("static")))
    return tuple(sorted(file.relative_to(static).as_posix() for file in static.rglob("*.js")))


def _static(name: str) -> str:
    return files("glasshead.studio").joinpath("static", name).read_text(encoding="utf-8")
