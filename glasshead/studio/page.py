"""The one page of the studio: its modules, its style, and numbers as it takes them."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType

from jaxtyping import Float
from torch import Tensor

from glasshead.drawing.page import paper, style
from glasshead.studio.views.names import VIEWS


def float32(values: Float[Tensor, "*shape"]) -> bytes:
    """A tensor as its little-endian float32, by rows.

    >>> import torch
    >>> float32(torch.tensor([[1.0, -2.0]])).hex(" ", 4)
    '0000803f 000000c0'
    """
    return values.detach().float().cpu().contiguous().numpy().astype("<f4").tobytes()


def page() -> str:
    """The document that the browser opens; all else is loaded by it, from the studio alone.

    It names all modules, so that they are asked for at once, and not each by the one before it.
    """
    links = "".join(f'<link rel="modulepreload" href="static/{name}">\n' for name in modules())
    return _static("index.html").replace("</head>", f"{links}</head>")


def style_sheet() -> str:
    """The style of drawings, the studio's own, and that of each view."""
    views = "".join(_static(f"views/{view}.css") for view in VIEWS)
    return paper() + style() + _static("studio.css") + views


@cache
def modules() -> Mapping[str, str]:
    """The source of each module of the page by its path."""
    return MappingProxyType(dict(_below(files("glasshead.studio").joinpath("static"), "")))


def _below(folder: Traversable, path: str) -> Iterator[tuple[str, str]]:
    for one in sorted(folder.iterdir(), key=lambda one: one.name):
        if one.is_dir():
            yield from _below(one, f"{path}{one.name}/")
        elif one.name.endswith(".js"):
            yield f"{path}{one.name}", one.read_text(encoding="utf-8")


def _static(name: str) -> str:
    return files("glasshead.studio").joinpath("static", name).read_text(encoding="utf-8")
