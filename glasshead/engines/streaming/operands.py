"""Operands and results of the passes: the recipe's tensors, the requested outputs, the gradients.

A request has one encoding, `OutputSpec`: made of reductions, carried by the operator, and read by
the kernels, head by head. What they fill is one `Results`, of which each reduction takes its part.
The fields of both are those of the table in `kernels.streamed`.

`check_forward` and `check_backward` are the gate: what a pass reads and writes is checked just
before the kernels, which check nothing. A kernel takes addresses and sizes. A tensor of another
shape or dtype, an index beyond an axis, or memory that was freed would be read as numbers, or
written to.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from glasshead.engines.streaming.kernels.streamed import (
    ARRAYS,
    ASKED,
    STREAMED,
    OutputSpec,
    Results,
    Streamed,
    sizes_of,
)
from glasshead.recipe.problem import Problem
from glasshead.recipe.tile import four_axes
from glasshead.recipe.validation import FLOATS, check_memory
from glasshead.statistics import reductions as known
from glasshead.statistics.reductions import Reduction

_STREAMED: dict[type, Streamed] = {getattr(known, one.reduction): one for one in STREAMED}

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
        known: About the logsumexp of each row, `[batch, heads, queries]`, if a kernel returned it.
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
    known: Tensor | None = None
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

    def laid_out(self) -> "LoweredProblem":
        """Return the problem as programs take it: a compiler may have laid it out otherwise."""
        query, key, value, recipe = self
        visible, bias = (
            x if x is None or x.stride(-1) == 1 else x.contiguous()
            for x in (recipe.visible, recipe.bias)
        )
        recipe = recipe._replace(
            bounds=recipe.bounds.contiguous(),
            offsets=recipe.offsets.contiguous(),
            visible=visible,
            bias=bias,
            table=None if recipe.table is None else recipe.table.contiguous(),
            sink=None if recipe.sink is None else recipe.sink.double().contiguous(),
            known=None if recipe.known is None else recipe.known.contiguous(),
        )
        value = None if value is None else in_rows(value)
        return LoweredProblem(in_rows(query), in_rows(key), value, recipe)


def real_of(tensor: Tensor) -> np.dtype:
    """Return the NumPy dtype in which a tensor is computed."""
    return np.dtype(np.float64 if tensor.dtype == torch.float64 else np.float32)


def in_rows(x: Tensor) -> Tensor:
    """Return vectors each of which is contiguous in memory, and after the one before."""
    *_, row, step = x.stride()
    return x if step == 1 and row >= x.shape[-1] else x.contiguous()


def knows(reduction: Reduction) -> bool:
    """Return whether the kernels compute this reduction within their pass."""
    return type(reduction) in _STREAMED


def operations_of(reduction: Reduction) -> int:
    """Return the cost of a pair beside its softmax, in operations of a product; 0 if not known."""
    return _STREAMED[type(reduction)].operations if knows(reduction) else 0


def bytes_of(reduction: Reduction, queries: int, keys: int, itemsize: int) -> int:
    """Estimate the memory of one head's result, in a dtype of so many bytes."""
    row = _STREAMED.get(type(reduction))
    if row is None or row.asked is None or not row.arrays:
        return queries * itemsize
    sizes = sizes_of(OutputSpec(), queries, keys, 0)
    sizes[row.asked.name] = row.asked.count(reduction)
    total = 0
    for array in row.arrays:
        # What is merged is there once more, in the dtype that it is summed in.
        each = itemsize if array.dtype == "real" else 8
        total += math.prod(array.shape(sizes)) * (each + (itemsize if array.merged else 0))
    return total


def result_bytes(problem: Problem, reductions: Sequence[Reduction]) -> int:
    """Estimate the memory of the results of reductions, of all heads."""
    *leading, queries, keys = problem.scores_shape
    each = [bytes_of(one, queries, keys, problem.dtype.itemsize) for one in reductions]
    return math.prod(leading) * sum(each)


def asked_for(problem: Problem, reductions: Sequence[Reduction]) -> OutputSpec:
    """Encode the request for built-in reductions."""
    values: list[Any] = []
    for kind, row in _STREAMED.items():
        asked = row.asked
        if asked is None:
            continue
        given = [
            [getattr(one, name) for name in asked.of] for one in reductions if type(one) is kind
        ]
        if asked.kind == "flag":
            values.append(int(any(map(all, given))))
        elif asked.kind == "most":
            values.append(max([0, *(number for (number,) in given)]))
        elif asked.kind == "each":
            values.append(tuple(number for numbers in given for number in numbers))
        else:
            values.append(_stack_rows(problem, [operand for (operand,) in given]))
    return OutputSpec(*values)


def _stack_rows(problem: Problem, parts: Sequence[Tensor]) -> Tensor | None:
    """Stack columns `[..., length, n]` of all parts as rows `[#batch, #heads, n, length]`."""
    if not parts:
        return None
    batch = problem.scores_shape[:-3]
    flat = [four_axes(part.to(problem.dtype).transpose(-1, -2), batch) for part in parts]
    # Computed by hand, as torch.broadcast_shapes imports SymPy on its first call.
    leading = [max(sizes) for sizes in zip(*(x.shape[:2] for x in flat), strict=True)]
    return torch.cat([x.expand(*leading, *x.shape[2:]) for x in flat], 2).contiguous()


def allocated(problem: LoweredProblem, spec: OutputSpec, zeros: Allocate) -> Results:
    """Allocate zeros in the shapes of the results, from shapes alone, so that tracing works."""
    (batch, heads, queries, _), value = problem.query.shape, problem.value
    exact = torch.promote_types(problem.query.dtype, torch.float32)
    width = 0 if value is None else value.shape[-1]
    sizes = sizes_of(spec, queries, problem.key.shape[2], width)
    return Results(
        *(
            zeros(
                (batch, heads, *array.shape(sizes)),
                torch.int64 if array.dtype == "int64" else exact,
            )
            for array in ARRAYS
        )
    )


def results_of(
    found: Results, problem: Problem, reductions: Sequence[Reduction]
) -> list[tuple[Tensor, ...]]:
    """Return the results of the reductions that a request was made of, `[*batch, …]`."""
    batch, taken, results = problem.scores_shape[:-3], {}, []
    for reduction in reductions:
        row = _STREAMED[type(reduction)]
        first = stop = 0
        if row.asked is not None:
            first = taken.get(row.asked.name, 0)
            stop = first + row.asked.count(reduction)
            taken[row.asked.name] = stop
        parts = row.result(found, reduction, slice(first, stop))
        results.append(tuple(part.reshape(*batch, *part.shape[1:]) for part in parts))
    return results


class GradOutputs(NamedTuple):
    """Incoming gradients of the results; None if there is none.

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

    def laid_out(self) -> "GradOutputs":
        """Return them as programs take them, R where P·R has a gradient."""
        context, *others = self
        rest = [None if x is None else x.contiguous() for x in others]
        if self.by_key is None or self.per_key is None:
            rest[-2:] = None, None
        return GradOutputs(None if context is None else in_rows(context), *rest)


class GradInputs(NamedTuple):
    """Gradients of the inputs, in their shapes; size 0 if not required."""

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


_ANY = -1


def check_forward(problem: LoweredProblem, spec: OutputSpec) -> None:
    """Raise a ValueError if the kernels of a forward pass would read something else.

    Axes marked `#` in `RecipeTensors` and `OutputSpec` have their size, or 1.
    """
    _check_problem(problem)
    batch, heads, queries, _ = problem.query.shape
    lengths = {"queries": queries, "keys": problem.key.shape[2]}
    reals = (_REAL[problem.query.dtype],)
    for asked, value in zip(ASKED, spec, strict=True):
        if asked.kind == "rows":
            rows = (batch, heads, _ANY, lengths[asked.along])
            _check(asked.name, value, rows, reals, broadcast=2)
        elif asked.kind == "each" and (len(value) % len(asked.of) or min(value, default=1) < 1):
            many = " and ".join(asked.of)
            raise ValueError(f"{asked.name} must be {many} of at least 1 each, got {list(value)}.")
        elif asked.kind in ("flag", "most") and value < 0:
            raise ValueError(f"{asked.name} must be at least 0, got {value}.")


def check_backward(
    problem: LoweredProblem, row_stats: Tensor, gradients: GradOutputs, wanted: Sequence[bool]
) -> None:
    """Raise a ValueError if the kernels of a backward pass would read something else."""
    _check_problem(problem)
    batch, heads, queries, _ = problem.query.shape
    rows, real = (batch, heads, queries), _REAL[problem.query.dtype]
    recipe = problem.recipe
    learned = ("bias", recipe.bias), ("table", recipe.table), ("sink", recipe.sink)
    if len(wanted) != len(learned):
        raise ValueError(
            f"wanted must have a boolean each for bias, table and sink, got {list(wanted)}."
        )
    for (name, tensor), is_wanted in zip(learned, wanted, strict=True):
        if is_wanted and tensor is None:
            raise ValueError(f"{name} must be a tensor if its gradient is requested, got None.")
    _check("row_stats", row_stats, (batch, heads, 2, queries), (real,))
    context = gradients.context
    if context is not None and problem.value is None:
        raise ValueError("value must be a tensor if the context has a gradient, got None.")
    if context is not None and problem.value is not None:
        width = problem.value.shape[3]
        _check("the gradient of the context", context, (*rows, width), _LIKE[problem.query.dtype])
    _check("the gradient of the logsumexp", gradients.logsumexp, rows, (real,))
    _check("the gradient of the entropy", gradients.entropy, rows, (real,))
    right = gradients.per_key
    _check("per_key", right, (batch, heads, _ANY, problem.key.shape[2]), (real,), broadcast=2)
    if gradients.by_key is not None:
        if right is None:
            raise ValueError("per_key must be given if P·R has a gradient, got None.")
        shape = (batch, heads, right.shape[2], queries)
        _check("the gradient of P·R", gradients.by_key, shape, (real,))


def _check_problem(problem: LoweredProblem) -> None:
    query, key, value, recipe = problem
    _check("query", query, (_ANY,) * 4, FLOATS)
    batch, heads, queries, dim = query.shape
    _check("key", key, (batch, _ANY, _ANY, dim), (query.dtype,))
    _, kv_heads, keys, _ = key.shape
    if kv_heads == 0 or heads % kv_heads:
        raise ValueError(
            "the number of query heads must be a multiple of the number of key heads, got "
            f"{heads} and {kv_heads}."
        )
    _check("value", value, (batch, kv_heads, keys, _ANY), _LIKE[query.dtype])
    real, whole = (_REAL[query.dtype],), (torch.int64,)
    _check("bounds", recipe.bounds, (batch, 2, queries), whole, broadcast=1)
    _check("offsets", recipe.offsets, (batch,), whole, broadcast=1)
    pairs = batch, heads, queries, keys
    _check("visible", recipe.visible, pairs, (torch.bool,), broadcast=3)
    _check("bias", recipe.bias, pairs, real, broadcast=3)
    _check("table", recipe.table, (batch, heads, queries + keys - 1), real, broadcast=2)
    _check("sink", recipe.sink, (heads,), real, broadcast=1)
    _check("known", recipe.known, (batch, heads, queries), real)
    if not recipe.bounds.is_cpu:
        return  # To read them would wait for the device.
    ends = recipe.bounds.numpy()
    if ends.size and (ends.min() < 0 or ends.max() > keys):
        raise ValueError(
            f"bounds must be keys from 0 to {keys}, got some from {ends.min()} to {ends.max()}."
        )


def _check(
    name: str,
    tensor: Tensor | None,
    wanted: tuple[int, ...],
    dtypes: Sequence[torch.dtype],
    *,
    broadcast: int = 0,
) -> None:
    """Check a tensor, if there is one, of whose axes the first few may be of size 1."""
    if tensor is None:
        return
    shape = tensor.shape
    # Most tensors have exactly this shape, so the first comparison decides.
    if shape != wanted and not _fits(shape, wanted, broadcast):
        sizes = ["any" if size == _ANY else size for size in wanted]
        may = f", of which the first {broadcast} may be 1" if broadcast else ""
        raise ValueError(
            f"{name} must have the axes [{', '.join(map(str, sizes))}]{may}, got {list(shape)}."
        )
    if tensor.dtype not in dtypes:
        raise TypeError(f"{name} must be of {' or '.join(map(str, dtypes))}, got {tensor.dtype}.")
    check_memory(name, tensor)


def _fits(shape: Sequence[int], wanted: Sequence[int], broadcast: int) -> bool:
    if len(shape) != len(wanted):
        return False
    for size, whole in zip(shape, wanted, strict=True):
        # Each call passes here: a generator would take three times as long.
        if whole not in (size, _ANY) and (size != 1 or broadcast <= 0):
            return False
        broadcast -= 1
    return True


# The dtype that each is computed in, and the dtypes that are computed in the same one.
_REAL = {dtype: torch.promote_types(dtype, torch.float32) for dtype in FLOATS}
_LIKE = {one: tuple(two for two in FLOATS if _REAL[two] == _REAL[one]) for one in FLOATS}
