"""The lazy matrix of attention weights: each part is computed when it is read."""

import os
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.attention import io as saved
from glasshead.attention.indexing import (
    checked_range,
    full_index,
    inside,
    range_of,
)
from glasshead.attention.plan import decimal_prefix
from glasshead.attention.recompute import (
    KnownRows,
    check_operand,
    complete_weights,
    is_complete,
    known_weights,
    left_product,
    right_product,
    rounded_alike,
    scores_are_coarse,
)
from glasshead.engines import reductions_of
from glasshead.recipe.part import HeadIndex
from glasshead.recipe.problem import Problem
from glasshead.recipe.tile import Span
from glasshead.recipe.validation import whole_number
from glasshead.statistics.reductions import BlockSum, Largest, LogSum


class Transposed:
    """Transpose Pᵀ of a `Weights`, for products from the left."""

    def __init__(self, weights: "Weights") -> None:
        self._weights = weights

    @property
    def shape(self) -> torch.Size:
        """Return `[..., keys, queries]`."""
        *leading, queries, keys = self._weights.shape
        return torch.Size([*leading, keys, queries])

    @property
    def T(self) -> "Weights":  # noqa: N802 - as a tensor's
        """Return P itself."""
        return self._weights

    @torch.no_grad()
    def __matmul__(self, left: Tensor) -> Float[Tensor, "... keys n"]:
        """Compute Pᵀ·L for L `[..., queries, n]`, without materializing P.

        Errors: a TypeError or ValueError where L is not a tensor of that shape.
        """
        problem = self._weights._problem
        per_query = check_operand(problem, left, self.shape, "W.T @ L")
        return self._weights._times_queries(per_query)

    def __repr__(self) -> str:
        return f"{self._weights!r}, transposed"


_BUDGET = 2**31


class Weights:
    """Lazy weights P, `[..., queries, keys]`: queries, keys, the recipe and two numbers a row.

    P_ij = exp(s_ij - max_i) · p_max_i, with the largest score and the largest weight of a row: any
    row, column or tile is exact, at the cost of its own size in every head, or in one, of `head`.
    Nothing here has a gradient. Queries and keys are copied, the recipe is not; what of it is
    changed in place afterwards, as by a step of training, no longer matches these numbers.

    Rows, tiles, columns, products and maps agree with `Attention.trace(…).weights` to 1e-5, and a
    row sums to 1 to 1e-6, whatever the size of the scores: with scores of 1e6, and where a finite
    number such as -1e9 was added to a whole row. Large scores are rounded, to 1e-3 at 1e4 in
    float32, and all parts round them as the trace does; where a library of matrix products sums in
    another order for another shape, its results differ by that rounding.

    Source: Dao et al. 2022 (FlashAttention), section 3.1, whose backward pass recomputes the
    weights in this way.

    >>> import torch
    >>> import glasshead as gh
    >>> _ = torch.manual_seed(0)
    >>> query, key = torch.randn(2, 8, 5000, 64), torch.randn(2, 8, 5000, 64)
    >>> W = gh.Attention(mask=gh.causal()).weights(query, key)
    >>> W
    Weights [2, 8, 5000, 5000], 1.6 GB if it were there
    >>> W[..., 4321, :].shape, W[..., 100:103, :7].shape
    (torch.Size([2, 8, 5000]), torch.Size([2, 8, 3, 7]))
    >>> (W @ torch.ones(5000, 1)).allclose(torch.ones(2, 8, 5000, 1))
    True
    >>> W.pooled(rows=2, columns=4).shape
    torch.Size([2, 8, 2, 4])

    Attributes:
        logsumexp: ln Σ_j exp s_ij of each row, in nats, `[..., queries]`.
        shape: Of the matrix.
    """

    @torch.no_grad()
    def __init__(
        self, problem: Problem, logsumexp: Tensor | None = None, rows: KnownRows | None = None
    ) -> None:
        if problem.query.is_meta:
            raise ValueError(
                "weights takes queries and keys with numbers in them, and these are on the meta "
                "device: make them on another, or ask plan(…) what it would cost."
            )
        # Copied, as a cache may be written to later; contiguous, as when read from a file, so
        # that the same numbers round alike.
        whole = torch.contiguous_format
        query, key = (x.detach().clone(memory_format=whole) for x in (problem.query, problem.key))
        self._problem = problem = replace(problem, query=query, key=key, value=key, dropout=0.0)
        if logsumexp is None:
            (logsumexp,), (weight, _, score) = reductions_of(problem, [LogSum(), Largest()])
            rows = KnownRows(score, weight)
        self._logsumexp, self._known = logsumexp, rows

    @property
    def logsumexp(self) -> Float[Tensor, "... queries"]:
        """Return ln Σ_j exp s_ij of each row, in nats; -inf where a query sees nothing."""
        return self._problem.as_given(self._logsumexp)

    @property
    def shape(self) -> torch.Size:
        """Return `[..., queries, keys]`."""
        shape = list(self._problem.scores_shape)
        if self._problem.axes < 4:
            del shape[-3]
        return torch.Size(shape)

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of the weights: float32, or float64 where the inputs are."""
        return self._problem.dtype

    @property
    def device(self) -> torch.device:
        """Return the device on which the weights are computed."""
        return self._problem.query.device

    @property
    def numbers_a_pair(self) -> int:
        """Return how many numbers are held at once for each computed pair."""
        # Scores, visible pairs and weights are in memory together.
        a_pair = 4 + self._problem.score.numbers_a_pair(self._problem.query.shape[-1])
        return a_pair * self.shape[:-2].numel()

    @property
    def T(self) -> Transposed:  # noqa: N802 - as a tensor's
        """Return Pᵀ, for `W.T @ L`."""
        return Transposed(self)

    @torch.no_grad()
    def tile(self, rows: range, columns: range) -> Float[Tensor, "... rows columns"]:
        """Compute the weights of a range of queries on a range of keys.

        Errors: a TypeError or ValueError where these are not ranges of step 1 in the matrix.
        """
        rows = checked_range(rows, self.shape[-2], "tile(rows)")
        columns = checked_range(columns, self.shape[-1], "tile(columns)")
        problem, (high, wide) = self._problem, self._computed(rows, columns)
        tile = replace(
            problem.tile(),
            queries=Span(high.start, high.stop),
            keys=Span(wide.start, wide.stop),
        )
        # Dividing rows by their sums takes as long as their exponentials.
        if is_complete(problem, wide) and (self._known is None or self._coarse):
            weights = complete_weights(problem, tile)
        else:
            weights = known_weights(problem, tile, self._rows())
        if (high, wide) != (rows, columns):
            weights = weights[
                ...,
                rows.start - high.start : rows.stop - high.start,
                columns.start - wide.start : columns.stop - wide.start,
            ].clone()
        return problem.as_given(weights)

    def _computed(self, rows: range, columns: range) -> tuple[range, range]:
        """Return the rows and columns to compute for a tile of these."""
        if not rows or not columns or not self._coarse:
            return rows, columns
        return rounded_alike(self._problem, rows, columns)

    @cached_property
    def _coarse(self) -> bool:
        """Return whether scores are rounded so coarsely that the order of a sum shows."""
        return scores_are_coarse(self._problem, self._logsumexp)

    def _rows(self) -> KnownRows:
        """Return row statistics for weights: the logsumexp alone where scores are small.

        Where only the logsumexp is known, as from a kernel or an older file, the others are
        computed on first use.
        """
        if self._known is None:
            if not self._coarse:
                return KnownRows(self._logsumexp)
            ((weight, _, score),) = reductions_of(self._problem, [Largest()])
            self._known = KnownRows(score, weight)
        return self._known

    def head(self, *index: int) -> "Weights":
        """Select one head, `[queries, keys]`: `W.head(0, 3)` is `W[0, 3]`, as lazy as W.

        Its parts are computed without those of other heads, but where the score or the normalizer
        is custom. Queries, keys and logsumexp are not copied; numbers per head or distance,
        such as those of a learned β or a RelativeBias, are taken as they are now.

        Args:
            index: A place along each axis before the queries.

        Errors: a TypeError for another index, a ValueError for more or fewer than these axes, an
        IndexError where it lies outside of them.

        >>> import torch
        >>> import glasshead as gh
        >>> W = gh.Attention(bias=gh.ALiBi(8)).weights(*torch.randn(2, 2, 8, 5, 3).unbind(0))
        >>> W.head(1, -1), W.head(1, -1)[2:].allclose(W[1, -1, 2:])
        (Weights [5, 5], 100 B if it were there, True)
        """
        return one_head(self, index)

    def seen(self, rows: range) -> range:
        """Return the range of keys that these queries may see; others have weight 0.

        Errors: a TypeError or ValueError where this is not a range of step 1 in the matrix.
        """
        rows = checked_range(rows, self.shape[-2], "seen(rows)")
        keys = range(self.shape[-1] if rows else 0)
        if self._problem.mask is None or not keys:
            return keys
        tile = replace(self._problem.tile(), queries=rows, keys=keys)
        return self._problem.mask.key_range(tile)

    def __getitem__(self, index: Any) -> Tensor:
        """Compute a part of the matrix, as `W[..., i, :]` or `W[..., rows, columns]` of a tensor.

        It takes whole numbers, slices that go forwards, and an ellipsis. The rows and columns are
        computed for every head, whichever are indexed; `head` computes one.

        Errors: a TypeError for another index, an IndexError where it lies outside of the matrix, a
        ValueError where the part would take more than 2 GiB.
        """
        index = full_index(index, len(self.shape))
        for part, length in zip(index[:-2], self.shape, strict=False):
            if not isinstance(part, slice):
                inside(part, length, "entries along a leading axis")
        rows, row_index = range_of(index[-2], self.shape[-2], "queries")
        columns, column_index = range_of(index[-1], self.shape[-1], "keys")
        high, wide = self._computed(rows, columns)
        self._check_budget(len(high), len(wide), _BUDGET, "this part of W", "ask for less")
        return self.tile(rows, columns)[(*index[:-2], row_index, column_index)]

    def dense(self, budget: int = _BUDGET) -> Float[Tensor, "... queries keys"]:
        """Compute the whole matrix.

        Errors: a ValueError where it would take more than `budget` bytes.
        """
        budget = whole_number(budget, "budget")
        queries, keys = self.shape[-2:]
        self._check_budget(queries, keys, budget, "W.dense()", "raise budget=, or take tiles")
        return self.tile(range(queries), range(keys))

    def _check_budget(self, rows: int, columns: int, budget: int, what: str, remedy: str) -> None:
        needed = self.numbers_a_pair * rows * columns * self.dtype.itemsize
        if needed > budget:
            raise ValueError(
                f"{what} takes at most {budget} bytes, and would need {needed}: {remedy}."
            )

    @torch.no_grad()
    def __matmul__(self, right: Tensor) -> Float[Tensor, "... queries r"]:
        """Compute P·R for R `[..., keys, r]`, without materializing P.

        Errors: a TypeError or ValueError where R is not a tensor of that shape.
        """
        per_key = check_operand(self._problem, right, self.shape, "W @ R")
        return self._problem.as_given(right_product(self._problem, per_key))

    def _times_queries(self, per_query: Tensor) -> Tensor:
        return self._problem.as_given(left_product(self._problem, per_query))

    @torch.no_grad()
    def pooled(self, rows: int, columns: int) -> Float[Tensor, "... rows columns"]:
        """Sum over blocks of keys and average over blocks of queries, as `PooledMap` does.

        Errors: a TypeError or ValueError where rows and columns are not whole numbers of at least
        1, or there are fewer queries than rows, or fewer keys than columns.
        """
        sizes = []
        for name, parts, length in zip(
            ("rows", "columns"), (rows, columns), self.shape[-2:], strict=True
        ):
            sizes.append(whole_number(parts, f"pooled({name})", least=1))
            if sizes[-1] > length:
                raise ValueError(f"pooled({name}) takes at most {length}, and got {parts}.")
        ((result,),) = reductions_of(self._problem, [BlockSum(*sizes)])
        return self._problem.as_given(result)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write queries, keys, recipe and row statistics as safetensors, to be read by `load`.

        Errors: an OSError where the file cannot be written; then an older one is as it was. A
        TypeError where the recipe has a custom score, bias, mask or normalizer.

        >>> import tempfile
        >>> from pathlib import Path
        >>> import glasshead as gh
        >>> x, file = torch.eye(3), Path(tempfile.mkdtemp()) / "weights.safetensors"
        >>> W = gh.Attention(mask=gh.causal()).weights(x, x)
        >>> W.save(file)
        >>> gh.Weights.load(file)[1].equal(W[1])
        True
        """
        saved.save_weights(file, self._problem, self._logsumexp, self._known)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> "Weights":
        """Read what `save` has written; nothing in the file is executed, and nothing computed.

        Errors: an OSError where the file cannot be read; a ValueError where it holds no weights.
        """
        return cls(*saved.load_weights(file))

    def __repr__(self) -> str:
        size = decimal_prefix(self.shape.numel() * self.dtype.itemsize)
        return f"Weights {list(self.shape)}, {size}B if it were there"


def one_head(weights: Weights, index: tuple[int, ...]) -> Weights:
    """Select the weights of one head, `[queries, keys]`, for `Weights.head`."""
    leading, problem = weights.shape[:-2], weights._problem  # noqa: SLF001 - of one family
    if len(index) != len(leading):
        raise ValueError(
            f"W.head takes a place along each axis before the queries, {list(leading)}, and got "
            f"{list(index)}: give {len(leading)}."
        )
    places = tuple(
        inside(whole_number(place, "W.head", least=None), length, "entries along a leading axis")
        for place, length in zip(index, leading, strict=True)
    )
    if problem.axes == 2:
        return weights
    batch, head = (places[:-1], places[-1]) if problem.axes > 3 else (places, 0)
    place = (*batch, slice(head, head + 1))
    logsumexp, known = weights._logsumexp[place], weights._known  # noqa: SLF001
    one = problem.select_head(batch, head)
    if one is None:
        return OneOfAll(weights, places, logsumexp)
    return _Held(one, logsumexp, None if known is None else known.at(place))


class _Held(Weights):
    """Weights of queries and keys that nobody else writes to, and that need no copy."""

    def __init__(self, problem: Problem, logsumexp: Tensor, rows: KnownRows | None) -> None:
        self._problem, self._logsumexp, self._known = problem, logsumexp, rows


class OneOfAll(Weights):
    """One head where heads cannot be separated: all are computed, and one is selected.

    A custom score or normalizer may read across heads.

    Args:
        whole: The weights of all heads.
        places: A place along each axis before the queries.
        logsumexp: Of the one head, `[1, queries]`.
    """

    def __init__(self, whole: Weights, places: tuple[int, ...], logsumexp: Tensor) -> None:
        self._whole, self._places, self._logsumexp = whole, places, logsumexp
        self._known = None
        problem = whole._problem  # noqa: SLF001 - of one family
        # Only for the shape, dtype and offset of one head; `whole` computes.
        batch, head = (places[:-1], places[-1]) if problem.axes > 3 else (places, 0)
        query = problem.query[(*batch, slice(head, head + 1))]
        of = head // problem.group
        key = problem.key[(*batch, slice(of, of + 1))]
        offset = HeadIndex(problem.tile(), batch, head).offset
        self._problem = replace(problem, query=query, key=key, value=key, offset=offset, axes=2)

    @property
    def numbers_a_pair(self) -> int:
        return self._whole.numbers_a_pair

    @torch.no_grad()
    def tile(self, rows: range, columns: range) -> Float[Tensor, "rows columns"]:
        rows = checked_range(rows, self.shape[-2], "tile(rows)")
        columns = checked_range(columns, self.shape[-1], "tile(columns)")
        return self._whole.tile(rows, columns)[self._places].clone()

    def _computed(self, rows: range, columns: range) -> tuple[range, range]:
        return self._whole._computed(rows, columns)  # noqa: SLF001 - of one family

    def seen(self, rows: range) -> range:
        return self._whole.seen(rows)

    @torch.no_grad()
    def __matmul__(self, right: Tensor) -> Float[Tensor, "queries r"]:
        check_operand(self._problem, right, self.shape, "W @ R")
        return (self._whole @ right)[self._places]

    def _times_queries(self, per_query: Tensor) -> Tensor:
        return (self._whole.T @ per_query)[self._places]

    def pooled(self, rows: int, columns: int) -> Float[Tensor, "rows columns"]:
        return self._whole.pooled(rows, columns)[self._places]

    def save(self, file: str | os.PathLike[str]) -> None:
        self._whole.save(file)  # Raises, as the recipe has a custom part.
