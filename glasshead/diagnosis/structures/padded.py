"""Padded: batch rows whose keys are cut at one end or both."""

import torch
from jaxtyping import Bool
from torch import Tensor

from glasshead.diagnosis.case import Case
from glasshead.diagnosis.structures.structure import Structure, arange, of_each_row
from glasshead.recipe.masks import padding

# Longer lists of lengths are no line of code.
_MOST_ROWS = 256


def padded(case: Case) -> Structure | None:
    """The padding of the keys that no query sees; it has yet to be compared.

    None where there is none, where keys in the middle are hidden, or heads differ.
    """
    axes = 2 if case.layout.by_key else len(case.layout.shape)
    starts, stops = ends(case.seen)
    first, last = of_each_row(starts, axes), of_each_row(stops, axes)
    if first is None or last is None or first.numel() > _MOST_ROWS or last.numel() > _MOST_ROWS:
        return None
    parts = []
    if bool((last < case.keys).any()):
        parts.append(Structure(padding(last.cpu()), f"gh.padding({_written(last)})", _KINDS))
    if bool((first > 0).any()):
        parts.append(Structure(~padding(first.cpu()), f"~gh.padding({_written(first)})", _KINDS))
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else parts[0] & parts[1]


def ends(seen: Bool[Tensor, "*leading keys"]) -> tuple[Tensor, Tensor]:
    """The first key that is seen, and the one after the last; 0 and 0 where none is."""
    keys = arange(seen.shape[-1], seen)
    none = ~seen.any(-1)
    starts = keys.where(seen, seen.shape[-1]).amin(-1).masked_fill(none, 0)
    return starts, (keys + 1).where(seen, 0).amax(-1)


def _written(numbers: Tensor) -> str:
    return str(torch.atleast_1d(numbers).tolist() if numbers.ndim else int(numbers))


_KINDS = frozenset({"padding"})
