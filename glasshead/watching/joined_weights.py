"""The lazy weights of a text that grew call by call with a cache, as one matrix."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.attention.indexing import checked_range, full_index, inside, range_of
from glasshead.attention.recompute import check_operand
from glasshead.attention.weights import Weights
from glasshead.recipe.validation import whole_number
from glasshead.statistics.reductions import membership

_BUDGET = 2**31


class JoinedWeights:
    """The lazy matrix P, `[..., queries, keys]`, of consecutive calls on one text.

    Each call has its own lazy `Weights`. Keys outside a call, later ones and those that a sliding
    cache has evicted, have weight 0.

    Attributes:
        shape: Shape of the matrix.

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

    def __init__(self, parts: Sequence[Weights], first_keys: Sequence[int]) -> None:
        self._parts, self._first_keys = list(parts), list(first_keys)
        queries = sum(part.shape[-2] for part in parts)
        keys = max(first + part.shape[-1] for part, first in zip(parts, first_keys, strict=True))
        self.shape = torch.Size([*parts[0].shape[:-2], queries, keys])

    @property
    def offset(self) -> int | Tensor:
        """Position of the first query among the keys."""
        return self._first_keys[0] + self._parts[0]._problem.offset  # noqa: SLF001 - it has no other name

    @property
    def logsumexp(self) -> Float[Tensor, "... queries"]:
        """ln Σ_j exp s_ij of each row, in nats."""
        return torch.cat([part.logsumexp for part in self._parts], -1)

    @property
    def numbers_a_pair(self) -> int:
        """Numbers held in memory per computed query-key pair."""
        return max(part.numbers_a_pair for part in self._parts)

    @property
    def T(self) -> "JoinedTransposed":  # noqa: N802 - as a tensor's
        """Pᵀ, for `W.T @ L`."""
        return JoinedTransposed(self)

    def tile(self, rows: range, columns: range) -> Float[Tensor, "... rows columns"]:
        """Compute the weights of a range of queries on a range of keys.

        Errors: a TypeError or ValueError where these are not ranges of step 1 in the matrix.
        """
        rows = checked_range(rows, self.shape[-2], "tile(rows)")
        columns = checked_range(columns, self.shape[-1], "tile(columns)")
        made, before = [], 0
        for part, first in zip(self._parts, self._first_keys, strict=True):
            queries, keys = part.shape[-2:]
            start, stop = max(rows.start - before, 0), min(rows.stop - before, queries)
            if start < stop:
                left = min(max(columns.start - first, 0), keys)
                right = max(left, min(columns.stop - first, keys))
                tile = part.tile(range(start, stop), range(left, right))
                ahead = min(max(first - columns.start, 0), len(columns))
                made.append(F.pad(tile, (ahead, len(columns) - ahead - tile.shape[-1])))
            before += queries
        if not made:
            return self._parts[0].logsumexp.new_zeros(*self.shape[:-2], 0, len(columns))
        return torch.cat(made, -2)

    def head(self, *index: int) -> "JoinedWeights":
        """Return the weights of one head, `[queries, keys]`, computed without the other heads.

        Errors: as of `Weights`.
        """
        return JoinedWeights([part.head(*index) for part in self._parts], self._first_keys)

    def seen(self, rows: range) -> range:
        """Return the range of keys visible to any of these queries; all others have weight 0.

        Errors: as of `Weights`.
        """
        rows = checked_range(rows, self.shape[-2], "seen(rows)")
        ends, before = [], 0
        for part, first in zip(self._parts, self._first_keys, strict=True):
            queries = part.shape[-2]
            start, stop = max(rows.start - before, 0), min(rows.stop - before, queries)
            keys = part.seen(range(start, stop)) if start < stop else range(0)
            if keys:
                ends.append((first + keys.start, first + keys.stop))
            before += queries
        starts, stops = zip(*ends, strict=True) if ends else ((0,), (0,))
        return range(min(starts), max(stops))

    def __getitem__(self, index: Any) -> Tensor:
        """Compute a part, as `W[..., i, :]` or `W[..., rows, columns]`, indexed like a tensor.

        Errors: as of `Weights`.
        """
        index = full_index(index, len(self.shape))
        for part, length in zip(index[:-2], self.shape, strict=False):
            if not isinstance(part, slice):
                inside(part, length, "entries along a leading axis")
        rows, row_index = range_of(index[-2], self.shape[-2], "queries")
        columns, column_index = range_of(index[-1], self.shape[-1], "keys")
        self._check_budget(len(rows), len(columns), _BUDGET, "ask for less")
        return self.tile(rows, columns)[(*index[:-2], row_index, column_index)]

    def dense(self, budget: int = _BUDGET) -> Float[Tensor, "... queries keys"]:
        """Compute the whole matrix.

        Errors: a ValueError where it would take more than `budget` bytes.
        """
        queries, keys = self.shape[-2:]
        self._check_budget(queries, keys, whole_number(budget, "budget"), "raise budget=")
        return self.tile(range(queries), range(keys))

    def __matmul__(self, right: Tensor) -> Float[Tensor, "... queries r"]:
        """Compute P·R for R `[..., keys, r]`, without P.

        Errors: as of `Weights`.
        """
        check_operand(self._parts[0]._problem, right, self.shape, "W @ R")
        return torch.cat(
            [
                part @ right[..., first : first + part.shape[-1], :]
                for part, first in zip(self._parts, self._first_keys, strict=True)
            ],
            -2,
        )

    def pooled(self, rows: int, columns: int) -> Float[Tensor, "... rows columns"]:
        """Pool P: sum over blocks of keys and average over blocks of queries, as `PooledMap` does.

        Errors: a ValueError where there are fewer queries than rows, or fewer keys than columns.
        """
        queries, keys = self.shape[-2:]
        for name, blocks, length in (("rows", rows, queries), ("columns", columns, keys)):
            if whole_number(blocks, f"pooled({name})", least=1) > length:
                raise ValueError(f"pooled({name}) takes at most {length}, and got {blocks}.")
        sums = self @ membership(keys, columns, self.logsumexp).T
        of_rows = membership(queries, rows, sums)
        return (of_rows / of_rows.sum(-1, keepdim=True)) @ sums

    def _check_budget(self, rows: int, columns: int, budget: int, remedy: str) -> None:
        needed = self.numbers_a_pair * rows * columns * self.logsumexp.dtype.itemsize
        if needed > budget:
            raise ValueError(
                f"this part of W takes at most {budget} bytes, and would need {needed}: {remedy}."
            )

    def __repr__(self) -> str:
        return f"JoinedWeights {list(self.shape)} of {len(self._parts)} calls"


class JoinedTransposed:
    """The transpose Pᵀ of a `JoinedWeights`."""

    def __init__(self, weights: JoinedWeights) -> None:
        self._weights = weights

    @property
    def shape(self) -> torch.Size:
        """`[..., keys, queries]`."""
        *leading, queries, keys = self._weights.shape
        return torch.Size([*leading, keys, queries])

    @property
    def T(self) -> JoinedWeights:  # noqa: N802 - as a tensor's
        """P itself."""
        return self._weights

    def __matmul__(self, left: Tensor) -> Float[Tensor, "... keys n"]:
        """Compute Pᵀ·L for L `[..., queries, n]`, without P.

        Errors: as of `Weights`.
        """
        W = self._weights
        check_operand(W._parts[0]._problem, left, self.shape, "W.T @ L")
        *leading, keys, _ = self.shape
        sums = W.logsumexp.new_zeros(*leading, keys, left.shape[-1])
        before = 0
        for part, first in zip(W._parts, W._first_keys, strict=True):
            queries, own = part.shape[-2:]
            sums[..., first : first + own, :] += part.T @ left[..., before : before + queries, :]
            before += queries
        return sums

    def __repr__(self) -> str:
        return f"{self._weights!r}, transposed"
