"""Operands and results of the passes: the recipe's tensors, the requested outputs, the gradients.

A request has one encoding, `OutputSpec`: made of reductions, carried by the operator, and read by
the kernels, head by head. What they fill is one `Results`, of which each reduction takes its part.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from glasshead.engines.streaming.kernels.arguments import (
    DISTANCES,
    ENTROPY,
    KEY,
    LOG_SUM,
    MANY,
    MANY_KEYS,
    MAX_SCORE,
    MAX_WEIGHT,
    ROW_STATS,
    SCORES,
    KernelSpec,
)
from glasshead.recipe.problem import Problem
from glasshead.recipe.tile import four_axes
from glasshead.statistics.reductions import (
    BlockSum,
    DiagonalSum,
    DistanceSum,
    EntropySum,
    Largest,
    LargestWeights,
    LogSum,
    Reduction,
    ScoreSum,
    TimesKeys,
    TimesQueries,
    edges,
)

# The row statistic that is the result of each of these reductions.
_ROWS = {LogSum: LOG_SUM, EntropySum: ENTROPY, ScoreSum: SCORES, DistanceSum: DISTANCES}
_KNOWN = (*_ROWS, BlockSum, DiagonalSum, Largest, LargestWeights, TimesKeys, TimesQueries)

# Products of numbers of a call of machine code, which Ctrl-C does not end: some tenths of a second.
LONGEST = 2**36

VisibleRule = Callable[[range, range], Tensor]
Allocate = Callable[[tuple[int, ...], torch.dtype], Tensor]


class RecipeTensors(NamedTuple):
    """Tensors and numbers of the recipe that the passes read beside query, key and value.

    Attributes:
        bounds: The first key that each query sees, and the one after the last,
            `[#batch, 2, queries]`; `visible`, `rule` and `bias` hide more of them.
        offsets: The position of query 0 among the keys, `[#batch]`.
        visible: Which pairs are visible, `[#batch, #heads, #queries, keys]`.
        bias: Added to the scores, `[#batch, #heads, #queries, keys]`; -inf hides.
        table: Added along the diagonals, `[#batch, #heads, queries + keys - 1]`: pair
            (i, j) reads place queries - 1 - i + j.
        sink: A score without a key for each head, `[#heads]`.
        scale: β.
        softcap: Scores become softcap · tanh(score / softcap); 0 leaves them.
        rule: A function of some queries and keys that returns `visible` for them.
    """

    bounds: Tensor
    offsets: Tensor
    visible: Tensor | None = None
    bias: Tensor | None = None
    table: Tensor | None = None
    sink: Tensor | None = None
    scale: float = 1.0
    softcap: float = 0.0
    rule: VisibleRule | None = None


class LoweredProblem(NamedTuple):
    """Query and key whose inner product times β is the score, the values, and the recipe.

    Attributes:
        query: `[batch, heads, queries, dim]`.
        key, value: `[batch, kv_heads, keys, dim]`; without a value there is no context.
        recipe: What is read beside them.
    """

    query: Tensor
    key: Tensor
    value: Tensor | None
    recipe: RecipeTensors

    def in_rows(self) -> "LoweredProblem":
        """Return the problem with keys of pairs that are contiguous, as a compiler may not keep."""
        recipe = self.recipe
        visible, bias = (
            x if x is None or x.stride(-1) == 1 else x.contiguous()
            for x in (recipe.visible, recipe.bias)
        )
        return self._replace(recipe=recipe._replace(visible=visible, bias=bias))


def real_of(tensor: Tensor) -> np.dtype:
    """Return the NumPy dtype in which a tensor is computed."""
    return np.dtype(np.float64 if tensor.dtype == torch.float64 else np.float32)


def in_rows(x: Tensor) -> Tensor:
    """Return vectors each of which is contiguous in memory, and after the one before."""
    *_, row, step = x.stride()
    return x if step == 1 and row >= x.shape[-1] else x.contiguous()


def at(tensor: Tensor, batch: int, head: int) -> Tensor:
    """Select one head of `[#batch, #heads, …]`; axes of size 1 broadcast."""
    return tensor[batch if len(tensor) > 1 else 0, head if tensor.shape[1] > 1 else 0]


class OutputSpec(NamedTuple):
    """Output specification: the sums to compute beside the context.

    Attributes:
        keyed: Whether each row's maximum has its key.
        far: Whether each row's sum of weights times distance is one.
        diagonal: Whether the sums along the diagonals are.
        top: The number of each row's largest weights.
        maps: The rows and columns of block maps, one map after the other.
        per_key: Right operand R of P·R, `[#batch, #heads, r, keys]`.
        per_query: Left operand L of Pᵀ·L, `[#batch, #heads, l, queries]`.
    """

    keyed: int = 0
    far: int = 0
    diagonal: int = 0
    top: int = 0
    maps: tuple[int, ...] = ()
    per_key: Tensor | None = None
    per_query: Tensor | None = None

    @classmethod
    def of(cls, problem: Problem, reductions: Sequence[Reduction]) -> "OutputSpec":
        """Encode the request for built-in reductions."""
        kinds = {type(reduction) for reduction in reductions}
        return cls(
            keyed=int(Largest in kinds),
            far=int(DistanceSum in kinds),
            diagonal=int(DiagonalSum in kinds),
            top=max([0, *(r.k for r in reductions if isinstance(r, LargestWeights))]),
            maps=tuple(
                size for r in reductions if isinstance(r, BlockSum) for size in (r.rows, r.columns)
            ),
            per_key=_stack_rows(
                problem, [r.per_key for r in reductions if isinstance(r, TimesKeys)]
            ),
            per_query=_stack_rows(
                problem, [r.per_query for r in reductions if isinstance(r, TimesQueries)]
            ),
        )

    @classmethod
    def of_operands(
        cls, per_key: Tensor | None, per_query: Tensor | None, numbers: Sequence[int]
    ) -> "OutputSpec":
        """Decode what `operands` returned."""
        keyed, far, diagonal, top, *maps = numbers
        return cls(keyed, far, diagonal, top, tuple(maps), per_key, per_query)

    def operands(self) -> tuple[Tensor | None, Tensor | None, list[int]]:
        """Return the specification as an operator takes it: tensors and a list of numbers."""
        numbers = [self.keyed, self.far, self.diagonal, self.top, *self.maps]
        return self.per_key, self.per_query, numbers

    def spans(self) -> np.ndarray:
        """Return where the rows of R begin and end to be other than 0, `[#batch, #heads, r, 2]`."""
        if self.per_key is None:
            return np.empty((0, 0, 0, 2), np.int64)
        present = self.per_key.detach().numpy() != 0
        first, last = present.argmax(-1), present.shape[-1] - present[..., ::-1].argmax(-1)
        ends = np.stack([first, last], -1).astype(np.int64)
        return np.where(present.any(-1)[..., None], ends, 0)

    def of_head(self, batch: int, head: int, real: np.dtype) -> KernelSpec:
        """Return the specification of one head, in arrays for the kernels."""
        empty = np.empty((0, 0), real)
        right, left = (
            empty if operand is None else np.ascontiguousarray(at(operand, batch, head).numpy())
            for operand in (self.per_key, self.per_query)
        )
        return KernelSpec(
            keyed=self.keyed,
            far=self.far,
            maps=np.array(self.maps, np.int64).reshape(-1, 2),
            per_key=right,
            per_query=left,
            spans=np.array([_span(row) for row in right], np.int64).reshape(-1, 2),
        )


def knows(reduction: Reduction) -> bool:
    """Return whether the kernels compute this reduction within their pass."""
    return type(reduction) in _KNOWN


def _stack_rows(problem: Problem, parts: Sequence[Tensor]) -> Tensor | None:
    """Stack columns `[..., length, n]` of all parts as rows `[#batch, #heads, n, length]`."""
    if not parts:
        return None
    batch = problem.scores_shape[:-3]
    flat = [four_axes(part.to(problem.dtype).transpose(-1, -2), batch) for part in parts]
    # Computed by hand, as torch.broadcast_shapes imports SymPy on its first call.
    leading = [max(sizes) for sizes in zip(*(x.shape[:2] for x in flat), strict=True)]
    return torch.cat([x.expand(*leading, *x.shape[2:]) for x in flat], 2).contiguous()


def _span(row: np.ndarray) -> tuple[int, int]:
    """Return the index of the first nonzero number, and one past the last."""
    (present,) = row.nonzero()
    return (present[0], present[-1] + 1) if len(present) else (0, 0)


class Results(NamedTuple):
    """Results of a forward pass, `[batch, heads, …]` each, or arrays of one head.

    What was not requested has size 0.

    Attributes:
        context: `[…, queries, value_dim]`.
        rows: The statistics of each row, `[…, 9, queries]`.
        by_key: P·R, `[…, r, queries]`.
        top, keys: The largest weights and their keys, `[…, queries, k]`.
        by_query: Pᵀ·L, `[…, l, keys]`; the kernels add in float64 to it and to those that follow.
        diagonals: Sums along them, `[…, queries + keys - 1]`.
        maps: The numbers of all maps, sums over the queries until `divide_maps`.
    """

    context: Tensor
    rows: Tensor
    by_key: Tensor
    top: Tensor
    keys: Tensor
    by_query: Tensor
    diagonals: Tensor
    maps: Tensor

    @classmethod
    def allocate(cls, problem: LoweredProblem, spec: OutputSpec, zeros: Allocate) -> "Results":
        """Allocate zeros in the shapes of the results, from shapes alone, so that tracing works."""
        query, value = problem.query, problem.value
        batch, heads, queries, _ = query.shape
        keys = problem.key.shape[2]
        exact = torch.promote_types(query.dtype, torch.float32)
        right = 0 if spec.per_key is None else spec.per_key.shape[2]
        left = 0 if spec.per_query is None else spec.per_query.shape[2]

        def made(*shape: int, dtype: torch.dtype = exact) -> Tensor:
            return zeros((batch, heads, *shape), dtype)

        return cls(
            context=made(queries, 0 if value is None else value.shape[-1]),
            rows=made(ROW_STATS, queries),
            by_key=made(right, queries),
            top=made(queries, spec.top),
            keys=made(queries, spec.top, dtype=torch.int64),
            by_query=made(left, keys),
            diagonals=made(queries + keys - 1 if spec.diagonal else 0),
            maps=made(sum(rows * columns for rows, columns in _sizes(spec))),
        )

    def divide_maps(self, spec: OutputSpec) -> None:
        """Divide each row of blocks by its number of queries, in place."""
        first, queries = 0, self.rows.shape[-1]
        for rows, columns in _sizes(spec):
            ends = torch.tensor(edges(queries, rows), device=self.maps.device)
            sizes = ends.diff().clamp(min=1)
            part = self.maps[..., first : first + rows * columns].unflatten(-1, (rows, columns))
            part /= sizes[:, None]
            first += rows * columns

    def of(self, problem: Problem, reductions: Sequence[Reduction]) -> list[tuple[Tensor, ...]]:
        """Return the results of the reductions that the request was made of, `[*batch, …]`."""
        batch, used = problem.scores_shape[:-3], {"by_key": 0, "by_query": 0, "maps": 0}
        found = []
        for reduction in reductions:
            parts = self._part(reduction, used)
            found.append(tuple(part.reshape(*batch, *part.shape[1:]) for part in parts))
        return found

    def _part(  # noqa: PLR0911 - a result each
        self, reduction: Reduction, used: dict[str, int]
    ) -> tuple[Tensor, ...]:
        """Take the part of one reduction; `used` counts what earlier ones have taken."""

        def take(name: str, width: int) -> slice:
            used[name] += width
            return slice(used[name] - width, used[name])

        # No match statement, as PyTorch 2.8 cannot compile one.
        if isinstance(reduction, TimesKeys):
            part = self.by_key[:, :, take("by_key", reduction.per_key.shape[-1])]
            return (part.transpose(-1, -2),)
        if isinstance(reduction, TimesQueries):
            part = self.by_query[:, :, take("by_query", reduction.per_query.shape[-1])]
            return (part.transpose(-1, -2),)
        if isinstance(reduction, DiagonalSum):
            return (self.diagonals,)
        if isinstance(reduction, LargestWeights):
            return self.top[..., : reduction.k], self.keys[..., : reduction.k]
        if isinstance(reduction, BlockSum):
            part = self.maps[..., take("maps", reduction.rows * reduction.columns)]
            return (part.unflatten(-1, (reduction.rows, reduction.columns)),)
        if isinstance(reduction, Largest):
            key, many = self.rows[:, :, KEY].long(), self.rows[:, :, MANY_KEYS].long()
            return self.rows[:, :, MAX_WEIGHT], key + MANY * many, self.rows[:, :, MAX_SCORE]
        return (self.rows[:, :, _ROWS[type(reduction)]],)


def _sizes(spec: OutputSpec) -> list[tuple[int, int]]:
    """Return the rows and columns of each map."""
    return list(zip(spec.maps[::2], spec.maps[1::2], strict=True))


class GradOutputs(NamedTuple):
    """Incoming gradients of the results; None where there is none.

    Attributes:
        context: `[batch, heads, queries, value_dim]`.
        logsumexp, entropy: `[batch, heads, queries]`.
        by_key: Of P·R, `[batch, heads, r, queries]`.
        per_key: R, `[#batch, #heads, r, keys]`.
    """

    context: Tensor | None
    logsumexp: Tensor | None
    entropy: Tensor | None
    by_key: Tensor | None
    per_key: Tensor | None


class GradInputs(NamedTuple):
    """Gradients of the inputs, in their shapes; size 0 where not required."""

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor
    table: Tensor
    sink: Tensor

    @classmethod
    def allocate(cls, problem: LoweredProblem, wanted: Sequence[bool]) -> "GradInputs":
        """Allocate zeros in the shapes of the gradients, from shapes alone, for tracing.

        Bias, table and sink require gradients where `wanted` says so.
        """
        query, key, value, recipe = problem
        exact = torch.promote_types(query.dtype, torch.float32)
        learned = zip((recipe.bias, recipe.table, recipe.sink), wanted, strict=True)
        inputs = (query, key, value, *(tensor if want else None for tensor, want in learned))
        return cls(*(query.new_zeros((0,) if x is None else x.shape, dtype=exact) for x in inputs))
