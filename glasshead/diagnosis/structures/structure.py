"""Structure: a mask as a rule, and the Python that makes it."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from glasshead.diagnosis.rows import stretches
from glasshead.recipe.masks import Mask
from glasshead.recipe.tile import Tile


@dataclass(frozen=True, eq=False)
class Structure:
    """A mask as a rule.

    Attributes:
        mask: The rule.
        line: Python that makes it.
        kinds: What it consists of, such as {"causal", "padding"}.
    """

    mask: Mask
    line: str
    kinds: frozenset[str] = frozenset()

    def __and__(self, other: "Structure") -> "Structure":
        lines = [f"({line})" if " | " in line else line for line in (self.line, other.line)]
        return Structure(self.mask & other.mask, " & ".join(lines), self.kinds | other.kinds)

    def __or__(self, other: "Structure") -> "Structure":
        line = f"{self.line} | {other.line}"
        return Structure(self.mask | other.mask, line, self.kinds | other.kinds)


def equals(mask: Mask, visible: Bool[Tensor, "*leading queries keys"], offset: int) -> bool:
    """Whether a rule shows exactly these pairs; some rows are compared at a time."""
    keys = range(visible.shape[-1])
    for rows in stretches(visible):
        tile = Tile(rows, keys, offset, headed=visible.ndim != 3, device=visible.device)
        part = visible[..., rows.start : rows.stop, :]
        if not bool((fitted(mask.visible(tile), part.ndim) == part).all()):
            return False
    return True


def fitted(cells: Bool[Tensor, "..."], axes: int) -> Bool[Tensor, "..."]:
    """Cells with as few leading axes of 1 as they need to meet `axes` axes."""
    while cells.ndim > axes and cells.shape[0] == 1:
        cells = cells[0]
    if cells.ndim > axes and cells.shape[-3] == 1:
        cells = cells.squeeze(-3)
    return cells


def same_throughout(numbers: Tensor) -> bool:
    """Whether all rows of `[*leading, n]` are alike."""
    flat = numbers.reshape(-1, numbers.shape[-1])
    return bool((flat == flat[:1]).all())


def of_each_row(numbers: Tensor, axes: int) -> Tensor | None:
    """One number a batch row from one a leading axis of the mask, or None where heads differ.

    Of a mask of three axes, nobody knows whether the first is the batch's or the heads'.
    """
    if bool((numbers == numbers.reshape(-1)[0]).all()):
        return numbers.reshape(-1)[0]
    if axes < 4:
        return numbers if axes == 2 else None
    if not bool((numbers == numbers[..., :1]).all()):
        return None
    return numbers[..., 0]


def arange(count: int, like: Tensor) -> Tensor:
    """0, 1, … up to before `count`, where `like` lives."""
    return torch.arange(count, device=like.device)
