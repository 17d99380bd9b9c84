"""The lazy weights of a text that grew call by call with a cache, as one matrix."""

# ruff: noqa: SLF001 - a matrix and its parts are of one family

import os
from collections.abc import Iterator, Sequence
from typing import Any, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.attention.io import read, understood, write
from glasshead.attention.lazy_matrix import LazyMatrix, checked_range
from glasshead.attention.weights import Weights
from glasshead.recipe.validation import whole_number

_KIND = "joined weights"


class JoinedWeights(LazyMatrix):
    """The lazy matrix P, `[..., queries, keys]`, of consecutive calls on one text.

    Each call has its own lazy `Weights`: in the rows i of a call, P_ij is the weight in the call's
    matrix at key j - first_key. Keys outside a call, later ones and those that a sliding cache has
    evicted, have weight 0. A watch joins the calls of a text in this way; it has the operations of
    `Weights`.

    Args:
        parts: The `Weights` of each call, or others that know their `offset`, in order.
        first_keys: For each call, the position in the text of its first key.

    Errors: a TypeError if the parts are not `Weights` or the positions not whole numbers, a
    ValueError if there is no part, not one position a part, or parts differ in their leading
    axes, dtype or device.

    >>> import glasshead as gh
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3)
    >>> model = gh.LanguageModel(config)
    >>> cache = model.new_cache()
    >>> with gh.watch(model, keep="weights", layers="blocks.0") as seen:
    ...     logits = model(torch.tensor([[3, 1, 4]]), cache=cache)
    ...     logits = model(torch.tensor([[1, 5]]), cache=cache)
    >>> W = seen["blocks.0.attention"].weights
    >>> W
    JoinedWeights [1, 3, 5, 5] of 2 calls
    >>> W[0, 0, 2, 3:], W[..., -1, :].sum(-1).allclose(torch.ones(1, 3))
    (tensor([0., 0.]), True)
    """

    def __init__(self, parts: Sequence[Any], first_keys: Sequence[int]) -> None:
        try:
            parts, first_keys = list(parts), list(first_keys)
        except TypeError:
            raise TypeError(
                "JoinedWeights needs a list of Weights and one of their first keys, got "
                f"{type(parts).__name__} and {type(first_keys).__name__}."
            ) from None
        for part in parts:
            if not isinstance(part, LazyMatrix) or not hasattr(part, "offset"):
                raise TypeError(
                    f"the parts of JoinedWeights must be Weights, got {type(part).__name__}."
                )
        if not parts or len(parts) != len(first_keys):
            raise ValueError(
                "JoinedWeights needs at least one part and a first key for each, got "
                f"{len(parts)} parts and {len(first_keys)} first keys."
            )
        kinds = {f"{list(part.shape[:-2])} {part.dtype} on {part.device}" for part in parts}
        if len(kinds) > 1:
            raise ValueError(
                "the parts of JoinedWeights must have the same leading axes, dtype and device, "
                f"got {' and '.join(sorted(kinds))}."
            )
        # Each call with its queries and its keys in the text.
        self._calls: list[tuple[Any, range, range]] = []
        before = 0
        for part, key in zip(parts, first_keys, strict=True):
            first, (queries, keys) = whole_number(key, "JoinedWeights(first_keys)"), part.shape[-2:]
            self._calls.append((part, range(before, before + queries), range(first, first + keys)))
            before += queries
        most = max(keys.stop for _, _, keys in self._calls)
        self._shape = torch.Size([*parts[0].shape[:-2], before, most])

    @property
    def shape(self) -> torch.Size:
        """Return `[..., queries, keys]`."""
        return self._shape

    @property
    def dtype(self) -> torch.dtype:
        return self._calls[0][0].dtype

    @property
    def device(self) -> torch.device:
        return self._calls[0][0].device

    @property
    def numbers_a_pair(self) -> int:
        return max(part.numbers_a_pair for part, _, _ in self._calls)

    @property
    def offset(self) -> int | Tensor:
        """Return the position of the first query among the keys; a tensor if rows differ."""
        part, _, keys = self._calls[0]
        return keys.start + part.offset

    @property
    def logsumexp(self) -> Float[Tensor, "... queries"]:
        """Return ln Σ_j exp s_ij of each row, in nats; -inf if a query sees nothing."""
        return torch.cat([part.logsumexp for part, _, _ in self._calls], -1)

    def _parts_of(self, rows: range) -> Iterator[tuple[Any, range, range]]:
        """Yield each call that has some of the rows, its own rows, and its keys in the text."""
        for part, queries, keys in self._calls:
            if own := _within(rows, queries):
                yield part, own, keys

    def _tile(self, rows: range, columns: range) -> Tensor:
        nothing = torch.empty(0, len(columns), dtype=self.dtype, device=self.device)
        tiles = [nothing.expand(*self.shape[:-2], -1, -1)]
        for part, own_rows, keys in self._parts_of(rows):
            tile = part.tile(own_rows, _within(columns, keys))
            ahead = min(max(keys.start - columns.start, 0), len(columns))
            tiles.append(F.pad(tile, (ahead, len(columns) - ahead - tile.shape[-1])))
        return torch.cat(tiles, -2)

    def _pairs(self, rows: range, columns: range) -> int:
        parts = self._parts_of(rows)
        own = (part._pairs(own_rows, _within(columns, keys)) for part, own_rows, keys in parts)
        return max((super()._pairs(rows, columns), *own))

    def _seen(self, rows: range) -> range:
        seen = [
            (keys.start + own.start, keys.start + own.stop)
            for part, own_rows, keys in self._parts_of(rows)
            if (own := part.seen(own_rows))
        ]
        starts, stops = zip(*seen, strict=True) if seen else ((0,), (0,))
        return range(min(starts), max(stops))

    def visible(self, rows: range) -> Bool[Tensor, "... rows keys"]:
        """Return which keys these queries see, as `Weights.visible` does."""
        rows = checked_range(rows, self.shape[-2], "visible(rows)")
        shown = torch.zeros(*self.shape[:-2], len(rows), self.shape[-1], dtype=torch.bool)
        before = 0
        for part, own_rows, keys in self._parts_of(rows):
            after = before + len(own_rows)
            shown[..., before:after, keys.start : keys.stop] = part.visible(own_rows)
            before = after
        return shown.to(self.device)

    def _head(self, places: tuple[int, ...]) -> "JoinedWeights":
        heads = [part.head(*places) for part, _, _ in self._calls]
        return JoinedWeights(heads, [keys.start for _, _, keys in self._calls])

    def _right_product(self, right: Tensor) -> Tensor:
        return torch.cat(
            [part @ right[..., keys.start : keys.stop, :] for part, _, keys in self._calls], -2
        )

    def _left_product(self, left: Tensor) -> Tensor:
        *leading, _, all_keys = self.shape
        sums = left.new_zeros(*leading, all_keys, left.shape[-1])
        for part, queries, keys in self._calls:
            own = part.T @ left[..., queries.start : queries.stop, :]
            sums[..., keys.start : keys.stop, :] += own
        return sums

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the weights of every call as safetensors, to be read by `load`.

        Errors: as of `Weights.save`, and a TypeError for other weights.

        >>> import tempfile
        >>> from pathlib import Path
        >>> import glasshead as gh
        >>> file = Path(tempfile.mkdtemp()) / "weights.safetensors"
        >>> part = gh.Attention().weights(torch.zeros(2, 1), torch.zeros(3, 1))
        >>> W = gh.JoinedWeights([part, part], first_keys=[0, 1])
        >>> W.save(file)
        >>> gh.JoinedWeights.load(file).dense().equal(W.dense())
        True
        """
        recipes, tensors = [], {}
        for number, (part, _, _) in enumerate(self._calls):
            if not isinstance(part, Weights):
                raise TypeError(f"save needs the Weights of attention, got {type(part).__name__}.")
            recipe, own = part._serialize()
            recipes.append(recipe)
            tensors |= {f"{number}.{name}": tensor for name, tensor in own.items()}
        first_keys = [keys.start for _, _, keys in self._calls]
        write(file, _KIND, {"recipes": recipes, "first_keys": first_keys}, tensors)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Self:
        """Read what `save` has written; nothing in the file is executed, and nothing computed.

        Errors: an OSError if the file cannot be read; a ValueError if it holds no joined
        weights.
        """
        description, tensors = read(file, _KIND)
        with understood(file, _KIND):
            parts = []
            for number, recipe in enumerate(description["recipes"]):
                at = f"{number}."
                own = {k.removeprefix(at): x for k, x in tensors.items() if k.startswith(at)}
                parts.append(Weights._deserialize(recipe, own))
            return cls(parts, description["first_keys"])

    def __repr__(self) -> str:
        return f"JoinedWeights {list(self.shape)} of {len(self._calls)} calls"


def _within(part: range, whole: range) -> range:
    """Return the places of `part` that lie in `whole`, counted from its start."""
    start = min(max(part.start - whole.start, 0), len(whole))
    return range(start, max(start, min(part.stop - whole.start, len(whole))))
