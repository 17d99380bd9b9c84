"""The studio's single page: its document, modules and style sheet, and its binary tensors."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType

from jaxtyping import Float
from torch import Tensor

from glasshead.drawing.page import paper, style
from glasshead.studio.studio import VIEWS


def float32(values: Float[Tensor, "*shape"]) -> bytes:
    """Serialize a tensor to little-endian float32, in row-major order.

    >>> import torch
    >>> float32(torch.tensor([[1.0, -2.0]])).hex(" ", 4)
    '0000803f 000000c0'
    """
    return values.detach().float().cpu().contiguous().numpy().astype("<f4").tobytes()


def page() -> str:
    """Return the HTML document of the page, which loads all else from the studio alone."""
    return static("index.html")


def style_sheet() -> str:
    """Return the CSS of drawings, of the studio and of each view."""
    views = "".join(static(f"views/{view}.css") for view in VIEWS)
    return paper() + style() + static("studio.css") + views


# Comments that have lines of their own; no string or template of the modules has several lines.
_COMMENT = re.compile(r"^[ \t]*(?://.*|/\*\*(?:(?!\*/)[\s\S])*\*/)\n", re.MULTILINE)


@cache
def modules() -> Mapping[str, str]:
    """Return the page's JavaScript modules by path, without their comments."""
    found = _below(files("glasshead.studio").joinpath("static"), "")
    return MappingProxyType({path: _COMMENT.sub("", source) for path, source in found})


def _below(folder: Traversable, path: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _below(entry, f"{path}{entry.name}/")
        elif entry.name.endswith(".js"):
            yield f"{path}{entry.name}", entry.read_text(encoding="utf-8")


def static(name: str) -> str:
    """Return a text file of the page, such as "index.html"."""
    return files("glasshead.studio").joinpath("static", name).read_text(encoding="utf-8")
