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
    block = -(-max(len(tile.queries), len(tile.keys)) // width) or 1
    lines = []
    for start in range(tile.queries.start, tile.queries.stop, block):
        rows = range(start, min(start + block, tile.queries.stop))
        band = three_axes(visible(replace(tile, queries=rows)))
        band = band.expand(*band.shape[:-2], len(rows), len(tile.keys)).flatten(0, -3)
        shares = [part.float().mean().item() for part in band[index].split(block, dim=-1)]
        lines.append("".join(_shade(share) for share in shares))
    return "\n".join(lines)


def _shade(share: float) -> str:
    """All visible and all hidden have a sign of their own; what lies between is shaded."""
    if share in (0.0, 1.0):
        return SHADES[-1] if share else SHADES[0]
    return SHADES[1 + min(int(share * 3), 2)]
