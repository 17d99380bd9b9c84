"""Scripts: the page's own modules as one."""

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from glasshead.studio.report.linker import linked

_ENTRY = "app.js"


@cache
def script() -> str:
    """What the studio's page runs, as one script."""
    return linked(modules(), _ENTRY)


def modules() -> dict[str, str]:
    """The source of each module of the page by its path."""
    return dict(_below(files("glasshead.studio").joinpath("static"), ""))


def _below(folder: Traversable, path: str) -> list[tuple[str, str]]:
    found = []
    for one in sorted(folder.iterdir(), key=lambda one: one.name):
        if one.is_dir():
            found += _below(one, f"{path}{one.name}/")
        elif one.name.endswith(".js"):
            found.append((f"{path}{one.name}", one.read_text(encoding="utf-8")))
    return found
