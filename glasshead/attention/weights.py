"""The lazy weights of one call: each part is computed from queries and keys when it is read."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glasshead.attention.io import deserialize, read, serialize, understood, write
from glasshead.attention.lazy_matrix import LazyMatrix, checked_range
from glasshead.attention.plan import decimal_prefix
from glasshead.attention.recompute import (
    KnownRows,
    complete_weights,
    is_complete,
    known_weights,
    right_product,
    rounded_alike,
    scores_are_coarse,
)
from glasshead.attention.weight_gradients import Elementwise
from glasshead.engines import reduce_by_fastest
from glasshead.recipe.masks import Mask, dense
from glasshead.recipe.normalizers import Normalizer
from glasshead.recipe.part import HeadIndex
from glasshead.recipe.problem import Problem, bias_values
from glasshead.recipe.scores import Score
from glasshead.recipe.tile import Span, with_heads
from glasshead.recipe.validation import check_inputs, offset_of, softcap_of, whole_number
from glasshead.statistics.reductions import BlockSum, Largest, LogSum, TimesQueries

_KIND = "weights"
_RECIPE = ("score", "softcap", "biases", "mask", "normalizer", "offset", "axes")
_ROWS = ("largest_score", "largest_weight")


class Weights(LazyMatrix):
    """Lazy weights P, `[..., queries, keys]`: queries, keys, settings and two numbers a row.

    P_ij = exp(s_ij - max_i) · p_max_i, with the largest score and the largest weight of a row: any
    row, column or tile is exact, at the cost of its own size in every head, or in one, of `head`.
    Nothing here has a gradient. Queries and keys are copied. The attention settings are not: a
    parameter that changes in place afterwards, as in a training step, no longer matches these
    numbers.

    Rows, tiles, columns, products and maps agree with `Attention.trace(…).weights` to 1e-5, and a
    row sums to 1 to 1e-6, whatever the size of the scores: with scores of 1e6, and if a finite
    number such as -1e9 was added to an entire row. Large scores are rounded, to 1e-3 at 1e4 in
    float32, and all parts round them as the trace does; if a library of matrix products sums in
    another order for another shape, its results differ by that rounding.

    Source: Dao et al. 2022 (FlashAttention), section 3.1, whose backward pass recomputes the
    weights in this way.

    >>> import torch
    >>> import glasshead as gh
    >>> _ = torch.manual_seed(0)
    >>> query, key = torch.randn(2, 8, 5000, 64), torch.randn(2, 8, 5000, 64)
    >>> W = gh.Attention(mask=gh.causal()).weights(query, key)
    >>> W
    Weights [2, 8, 5000, 5000], 1.6 GB if it were dense
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
                "weights needs queries and keys with numbers, got some on the meta device. Create "
                "them on another, or call plan(…) for the cost."
            )
        # Copied, as a cache may be written to later; contiguous, as when read from a file, so
        # that the same numbers round alike.
        whole = torch.contiguous_format
        query, key = (x.detach().clone(memory_format=whole) for x in (problem.query, problem.key))
        self._problem = problem = replace(problem, query=query, key=key, value=key, dropout=0.0)
        if logsumexp is None:
            (logsumexp,), (weight, _, score) = reduce_by_fastest(
                problem, [LogSum(), Largest(keyed=False)]
            )
            rows = KnownRows(score, weight)
        self._logsumexp, self._known = logsumexp, rows

    @property
    def _outline(self) -> Problem:
        """The problem, whose shapes and recipe count, and whose keys need not be there."""
        return self._problem

    @property
    def logsumexp(self) -> Float[Tensor, "... queries"]:
        """Return ln Σ_j exp s_ij of each row, in nats; -inf if a query sees nothing."""
        return self._outline.as_given(self._logsumexp)

    @property
    def offset(self) -> int | Tensor:
        """Return the position of the first query among the keys; a tensor if rows differ."""
        return self._outline.offset

    @property
    def key_heads(self) -> int:
        """Return the number of heads of the keys, fewer than the query heads if grouped."""
        return self._outline.key.shape[-3]

    @property
    def shape(self) -> torch.Size:
        """Return `[..., queries, keys]`."""
        shape = list(self._outline.scores_shape)
        if self._outline.axes < 4:
            del shape[-3]
        return torch.Size(shape)

    @property
    def dtype(self) -> torch.dtype:
        return self._outline.dtype

    @property
    def device(self) -> torch.device:
        return self._outline.query.device

    @property
    def numbers_a_pair(self) -> int:
        # Scores, visible pairs and weights are in memory together.
        a_pair = 4 + self._outline.score.numbers_a_pair(self._outline.query.shape[-1])
        return a_pair * self.shape[:-2].numel()

    def __mul__(self, other: LazyMatrix) -> Elementwise:
        """Return the product element by element with another lazy matrix, as lazy.

        Of gradients it is attention × gradient, P ⊙ ∇P; `(W * G).relu()` is its positive part.

        Errors: a ValueError if the shapes differ.

        >>> import torch
        >>> import glasshead as gh
        >>> x = torch.zeros(1, 2, 3, 1)
        >>> W, G = gh.Attention().weights(x, x), gh.WeightGradients(x - 1, x + 1)
        >>> (W * G)[0, 0, 0], (W * G).relu()[0, 0, 0]
        (tensor([-0.3333, -0.3333, -0.3333]), tensor([0., 0., 0.]))
        """
        return Elementwise(self, other) if isinstance(other, LazyMatrix) else NotImplemented

    def _tile(self, rows: range, columns: range) -> Tensor:
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
            weights = known_weights(problem, tile, self._row_statistics())
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

    def _pairs(self, rows: range, columns: range) -> int:
        high, wide = self._computed(rows, columns)
        return len(high) * len(wide)

    @cached_property
    def _coarse(self) -> bool:
        """Return whether scores are rounded so coarsely that the order of a sum shows."""
        return scores_are_coarse(self._problem, self._logsumexp)

    def _row_statistics(self) -> KnownRows:
        """Return row statistics for weights: the logsumexp alone where scores are small.

        Where only the logsumexp is known, as from a kernel or an older file, the others are
        computed on first use.
        """
        if self._known is None:
            if not self._coarse:
                return KnownRows(self._logsumexp)
            ((weight, _, score),) = reduce_by_fastest(self._problem, [Largest(keyed=False)])
            self._known = KnownRows(score, weight)
        return self._known

    def _seen(self, rows: range) -> range:
        keys = range(self.shape[-1] if rows else 0)
        outline = self._outline
        if outline.mask is None or not keys:
            return keys
        return outline.mask.key_range(replace(outline.tile(), queries=rows, keys=keys))

    @torch.no_grad()
    def visible(self, rows: range) -> Bool[Tensor, "... rows keys"]:
        """Return which keys these queries see; the weight of one may be too small, so that it is 0.

        Errors: a TypeError or ValueError if this is not a range of step 1 in the matrix.

        >>> import torch
        >>> import glasshead as gh
        >>> x = torch.tensor([[0.0], [200.0]])
        >>> W = gh.Attention(mask=gh.causal()).weights(x, -x)
        >>> W.dense(), W.visible(range(2))
        (tensor([[1., 0.],
                [1., 0.]]), tensor([[ True, False],
                [ True,  True]]))
        """
        rows = checked_range(rows, self.shape[-2], "visible(rows)")
        outline = self._outline
        _, shown = outline.bias_and_visible(outline.mask, replace(outline.tile(), queries=rows))
        if shown is None:
            shown = torch.ones((), dtype=torch.bool, device=self.device)
        *leading, _, keys = outline.scores_shape
        return outline.as_given(shown.expand(*leading, len(rows), keys))

    def _head(self, places: tuple[int, ...]) -> "Weights":
        problem = self._problem
        batch, head = (places[:-1], places[-1]) if problem.axes > 3 else (places, 0)
        place = (*batch, slice(head, head + 1))
        logsumexp, known = self._logsumexp[place], self._known
        one = problem.select_head(batch, head)
        if one is None:
            return OneOfAll(self, places, logsumexp)
        return _Uncopied(one, logsumexp, None if known is None else known.at(place))

    @torch.no_grad()
    def selected(
        self, rows: Int[Tensor, " rows"] | None, queries: int, keys: int | None = None
    ) -> "Weights":
        """Return the weights of some rows of the batch, and of its first queries and keys.

        Args:
            rows: The rows; None: all.
            queries: The number of queries.
            keys: The number of keys, after which these queries see none; None: all.
        """
        problem, tile = self._problem, self._problem.tile()
        keys = problem.key.shape[-2] if keys is None else min(keys, problem.key.shape[-2])
        if rows is None and (queries, keys) == tuple(problem.scores_shape[-2:]):
            return self

        def part(x: Tensor, axes: int, *cut: tuple[int, int]) -> Tensor:
            if rows is not None and x.ndim == axes and x.shape[0] > 1:
                x = x.index_select(0, rows.to(x.device))
            for axis, count in cut:
                x = x if x.shape[axis] == 1 else x.narrow(axis, 0, count)
            return x

        def of_pairs(x: Tensor) -> Tensor:
            return part(x, axes, (-2, queries), (-1, keys))

        def of_rows(x: Tensor) -> Tensor:
            return part(x, axes - 1, (-1, queries))

        axes, mask, offset, known = problem.query.ndim, problem.mask, problem.offset, self._known
        key = part(problem.key, axes, (-2, keys))
        one = replace(
            problem,
            query=part(problem.query, axes, (-2, queries)),
            key=key,
            value=key,
            biases=tuple(of_pairs(bias_values(each, tile)) for each in problem.biases),
            mask=None if mask is None else dense(of_pairs(mask.visible(tile))),
            offset=part(offset, 1) if isinstance(offset, Tensor) else offset,
        )
        if known is not None:
            weight = None if known.weight is None else of_rows(known.weight)
            known = KnownRows(of_rows(known.score), weight)
        return _Uncopied(one, of_rows(self._logsumexp), known)

    def _right_product(self, right: Tensor) -> Tensor:
        problem = self._problem
        right = with_heads(right, headed=problem.axes > 3)
        return problem.as_given(right_product(problem, right, self._logsumexp))

    def _left_product(self, left: Tensor) -> Tensor:
        problem = self._problem
        left = with_heads(left, headed=problem.axes > 3)
        ((result,),) = reduce_by_fastest(problem, [TimesQueries(left)], self._logsumexp)
        return problem.as_given(result)

    def _pooled(self, rows: int, columns: int) -> Tensor:
        wanted = [BlockSum(rows, columns)]
        ((result,),) = reduce_by_fastest(self._problem, wanted, self._logsumexp)
        return self._problem.as_given(result)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write queries, keys, settings and row statistics as safetensors, to be read by `load`.

        Errors: an OSError if the file cannot be written; then an older one is as it was. A
        TypeError if the attention has a custom score, bias, mask or normalizer.

        >>> import tempfile
        >>> from pathlib import Path
        >>> import glasshead as gh
        >>> x, file = torch.eye(3), Path(tempfile.mkdtemp()) / "weights.safetensors"
        >>> W = gh.Attention(mask=gh.causal()).weights(x, x)
        >>> W.save(file)
        >>> gh.Weights.load(file)[1].equal(W[1])
        True
        """
        recipe, tensors = self._serialize()
        write(file, _KIND, {"recipe": recipe}, tensors)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Self:
        """Read what `save` has written; nothing in the file is executed, and nothing computed.

        Errors: an OSError if the file cannot be read; a ValueError if it holds no weights.
        """
        description, tensors = read(file, _KIND)
        with understood(file, _KIND):
            return cls._deserialize(description["recipe"], tensors)

    def _serialize(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the recipe as JSON, and the tensors that it refers to."""
        problem, known = self._problem, self._known
        tensors = {"query": problem.query, "key": problem.key, "logsumexp": self._logsumexp}
        if known is not None and known.weight is not None:
            tensors |= {_ROWS[0]: known.score, _ROWS[1]: known.weight}
        return {name: serialize(getattr(problem, name), name, tensors) for name in _RECIPE}, tensors

    @classmethod
    def _deserialize(cls, data: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild what `_serialize` has described; files of earlier versions know no `_ROWS`.

        Errors: any, if the description is corrupted.
        """
        recipe = {name: deserialize(data[name], name, tensors) for name in _RECIPE}
        recipe["offset"] = offset_of(recipe["offset"], "offset")
        recipe["axes"] = whole_number(recipe["axes"], "axes", least=2)
        recipe["softcap"] = softcap_of(recipe["softcap"])
        query, key = tensors["query"], tensors["key"]
        problem = Problem(query=query, key=key, value=key, dropout=0.0, **recipe)
        rows = KnownRows(*(tensors[name] for name in _ROWS)) if {*_ROWS} & {*tensors} else None
        parts = (("score", Score), ("normalizer", Normalizer), ("mask", Mask | None))
        for name, kind in parts:
            part = getattr(problem, name)
            if not isinstance(part, kind):
                raise TypeError(f"{name} must be a {name.title()}, got {type(part).__name__}.")
        check_inputs(query, key, key)
        problem.check()
        for numbers in (tensors["logsumexp"], *(rows or ())):
            if (
                numbers is None
                or numbers.shape != query.shape[:-1]
                or not numbers.is_floating_point()
            ):
                raise ValueError("what is known of rows is not one number a query")
        return cls(problem, tensors["logsumexp"], rows)

    def __repr__(self) -> str:
        size = decimal_prefix(self.shape.numel() * self.dtype.itemsize)
        return f"Weights {list(self.shape)}, {size}B if it were dense"


class _Uncopied(Weights):
    """Weights of queries and keys that nobody else writes to."""

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

    def _tile(self, rows: range, columns: range) -> Tensor:
        return self._whole.tile(rows, columns)[self._places].clone()

    def _pairs(self, rows: range, columns: range) -> int:
        return self._whole._pairs(rows, columns)  # noqa: SLF001 - of one family

    def _seen(self, rows: range) -> range:
        return self._whole.seen(rows)

    def visible(self, rows: range) -> Bool[Tensor, "rows keys"]:
        return self._whole.visible(rows)[self._places]

    def _right_product(self, right: Tensor) -> Tensor:
        return (self._whole @ right)[self._places]

    def _left_product(self, left: Tensor) -> Tensor:
        return (self._whole.T @ left)[self._places]

    def _pooled(self, rows: int, columns: int) -> Tensor:
        return self._whole.pooled(rows, columns)[self._places]

    def _serialize(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        return self._whole._serialize()  # noqa: SLF001 - raises, as the recipe has a custom part
