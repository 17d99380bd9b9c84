"""Rows of masks that grow by a key in each step of generation, kept as one."""

from collections.abc import Callable

import torch
from jaxtyping import Shaped
from torch import Tensor

# Rows of one shape that are remembered, as a model may alternate between a few masks.
_RECENT = 4


class _GrowingRow:
    """A row with room at its end.

    Attributes:
        tensor: The row, `[…, 1, room]`.
        used: Number of keys that are there.
    """

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.used = tensor, tensor.shape[-1]

    def begins_like(self, row: Tensor) -> bool:
        """Return whether one of this row and another is the beginning of the other."""
        same = min(self.used, row.shape[-1])
        return torch.equal(self.tensor[..., :same], row[..., :same])

    def grow(self, row: Tensor, charge: Callable[[int], None]) -> None:
        """Append the keys that a longer row has."""
        keys, room = row.shape[-1], self.tensor.shape[-1]
        if keys > room:
            # Earlier rows are views that keep the old memory: doubled, all of it is a few rows.
            grown = row.new_empty(*row.shape[:-1], max(keys, 2 * room))
            charge(grown.numel() * grown.itemsize)
            grown[..., : self.used] = self.tensor[..., : self.used]
            self.tensor = grown
        self.tensor[..., self.used : keys] = row[..., self.used :]
        self.used = keys


class MaskRows:
    """Copies of the rows of single queries, which share what they have in common.

    >>> rows, row = MaskRows(), torch.tensor([[True, False, True, True]])
    >>> charged = []
    >>> first, second = rows.of(row[:, :3], charged.append), rows.of(row, charged.append)
    >>> first.equal(row[:, :3]), second.equal(row), rows.of(row, charged.append).equal(row)
    (True, True, True)
    >>> charged                                         # three keys, and then room for six
    [3, 6]
    """

    def __init__(self) -> None:
        self._known: dict[object, list[_GrowingRow]] = {}

    def of(
        self, row: Shaped[Tensor, "*leading 1 keys"], charge: Callable[[int], None]
    ) -> Shaped[Tensor, "*leading 1 keys"]:
        """Return a copy of a row, which nothing writes to.

        Args:
            row: The row.
            charge: Called with bytes before they are taken; it may raise.
        """
        recent = self._known.setdefault((row.shape[:-1], row.dtype, row.device), [])
        # A tensor of inference mode could not be appended to outside of it.
        with torch.inference_mode(mode=False), torch.no_grad():
            one = next((known for known in recent if known.begins_like(row)), None)
            if one is None:
                charge(row.numel() * row.itemsize)
                one = _GrowingRow(row.clone(memory_format=torch.contiguous_format))
            elif one.used < row.shape[-1]:
                one.grow(row, charge)
            recent[:] = [one, *(known for known in recent if known is not one)][:_RECENT]
            return one.tensor[..., : row.shape[-1]]
