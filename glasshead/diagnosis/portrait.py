"""Portrait: what a report says and draws of a mask, made once."""

from dataclasses import dataclass

from jaxtyping import Bool
from torch import Tensor

from glasshead.diagnosis.finding import Finding
from glasshead.diagnosis.laying import LaidOut
from glasshead.recipe.masks.picture import picture
from glasshead.recipe.tile import Tile

# As wide as fits the narrowest report, with its margin.
_WIDTH = 16


@dataclass(frozen=True)
class Portrait:
    """What a report says and draws of a mask.

    Attributes:
        subject: Its type and shape in words.
        drawing: A small picture.
        legend: What the picture shows.
    """

    subject: str
    drawing: str
    legend: str


def portrait(
    laid: LaidOut,
    cells: Bool[Tensor, "..."],
    findings: tuple[Finding, ...],
    *,
    decided: bool,
    size: str,
) -> Portrait:
    """Draw the batch row and head where the first finding is, else the first.

    Args:
        laid: The mask.
        cells: What is drawn, in the mask's own axes: visible cells, or True ones.
        findings: What was found.
        decided: Whether the cells are the visible ones.
        size: The type of its numbers, in words.
    """
    layout = laid.layout
    shown = "visible" if decided else "other than 0"
    hidden = "hidden" if decided else "0"
    shape = f"{size} {list(laid.given.values.shape)}"
    if layout.by_key:
        rows = cells.reshape(-1, cells.shape[-1])
        drawing, axes = _drawn(rows), "a line a batch row, a column a key"
    else:
        index = _leading(findings, len(layout.leading))
        drawing, axes = _drawn(cells[index]), "a line a query, a column a key"
        if index:
            axes += f", of {layout.told(index)}"
    return Portrait(shape, drawing, f"■ {shown}, · {hidden}; {axes}")


def _leading(findings: tuple[Finding, ...], axes: int) -> tuple[int, ...]:
    place = next((finding.where[0] for finding in findings if finding.where), (0,) * axes)
    return place[:axes] if len(place) >= axes else (0,) * axes


def _drawn(cells: Bool[Tensor, "rows columns"]) -> str:
    rows, columns = cells.shape
    tile = Tile(range(rows), range(columns), device=cells.device)
    return picture(lambda part: part.cut(cells), tile, 0, _WIDTH)
