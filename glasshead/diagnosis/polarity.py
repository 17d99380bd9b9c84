"""Polarity: whether True shows or hides, read from what the cells look like."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from glasshead.diagnosis.layout import Layout
from glasshead.diagnosis.rows import total

# How much likelier one reading must be than the other.
_ENOUGH = 0.5


@dataclass(frozen=True)
class Evidence:
    """How much more True looks like "may attend" than like "hidden": above 0 it does.

    Attributes:
        balance: From about -3 to 3; 0 where nothing tells.
        reason: What tells, in words.
    """

    balance: float
    reason: str

    @property
    def decides(self) -> bool:
        """Whether it is enough to take one for the other."""
        return abs(self.balance) >= _ENOUGH


def evidence(marks: Bool[Tensor, "*leading queries keys"], layout: Layout) -> Evidence:
    """What the True cells look like.

    In nearly every mask a query sees itself, unless its key is padding, and sees the past at least
    as much as the future. Where all queries see the same keys, a batch row that would see none
    tells instead.
    """
    if marks.shape[-2] == 1 or bool((marks == marks[..., :1, :]).all()):
        return _of_keys(marks[..., 0, :])
    offsets = {layout.position} if layout.offset is not None else {layout.position, 0}
    attend = max(_likeness(marks, offset) for offset in offsets)
    hidden = max(_likeness(~marks, offset) for offset in offsets)
    if attend >= hidden:
        reason = "most queries see themselves, and not more of the future than of the past"
    else:
        reason = "the cells that are False look like what queries see: themselves and the past"
    return Evidence(attend - hidden, reason)


def _of_keys(shown: Bool[Tensor, "*leading keys"]) -> Evidence:
    full, empty = bool(shown.all(-1).any()), bool((~shown).all(-1).any())
    if full == empty:
        return Evidence(0.0, "True and False could both be the padding")
    if full:
        return Evidence(1.0, "the longest row is True throughout")
    return Evidence(-1.0, "the longest row is False throughout")


def _likeness(visible: Bool[Tensor, "*leading queries keys"], offset: int) -> float:
    """How many queries see themselves, and how much more of the past is seen than of the future."""
    own = visible.diagonal(offset, -2, -1)
    if not own.numel():
        return 0.0
    queries, keys = visible.shape[-2:]
    seen = visible.any(-2)[..., max(offset, 0) : max(offset, 0) + own.shape[-1]]
    sees_itself = float(own.sum() / seen.sum().clamp(min=1))
    outer = visible[..., 0, 0].numel()
    past_cells, future_cells = _triangles(queries, keys, offset)
    if not past_cells or not future_cells:
        return sees_itself
    past = total(visible.tril(offset - 1)) / (past_cells * outer)
    future = total(visible.triu(offset + 1)) / (future_cells * outer)
    return sees_itself + past - future


def _triangles(queries: int, keys: int, offset: int) -> tuple[int, int]:
    """How many cells lie before and after the diagonal."""
    before = (torch.arange(queries) + offset).clamp(0, keys)
    after = keys - (torch.arange(queries) + offset + 1).clamp(0, keys)
    return int(before.sum()), int(after.sum())
