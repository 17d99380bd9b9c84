"""A mask as a small picture for the terminal."""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from glasshead.recipe.tile import Tile, three_axes

SHADES = "·░▒▓■"


def picture(visible: Callable[[Tile], Tensor], tile: Tile, index: int, width: int) -> str:
    """Draw what `visible` says of `tile`, at most `width` columns; blocks show their mean shade.

    Only one band of rows is looked at at a time, so that a long mask can be drawn too.
    """
    queries, keys = tile.shape
    block = -(-max(queries, keys) // width)
    lines = []
    for start in range(0, queries, block):
        rows = range(start, min(start + block, queries))
        shares = [part.float().mean().item() for part in _band(visible, tile, rows, index, block)]
        lines.append("".join(_shade(share) for share in shares))
    return "\n".join(lines)


def _band(
    visible: Callable[[Tile], Tensor], tile: Tile, rows: range, index: int, block: int
) -> tuple[Tensor, ...]:
    """A band of rows, cut into blocks of columns."""
    band = three_axes(visible(replace(tile, queries=rows)))
    try:
        band = band.expand(*band.shape[:-2], len(rows), tile.shape[1]).flatten(0, -3)
    except RuntimeError:
        raise ValueError(
            f"picture takes the size that the mask was made for, and got {tile.shape[0]} queries "
            f"and {tile.shape[1]} keys: give the size of its tensor."
        ) from None
    if len(band) == 1:
        return band[0].split(block, dim=-1)  # the same for every row of the batch
    if index >= len(band):
        raise ValueError(f"picture takes an index below {len(band)}, and got {index}.")
    return band[index].split(block, dim=-1)


def _shade(share: float) -> str:
    """All visible and all hidden have a sign of their own; what lies between is shaded."""
    if share in (0.0, 1.0):
        return SHADES[-1] if share else SHADES[0]
    return SHADES[1 + min(int(share * 3), 2)]
