"""The gate: what a pass reads and writes, checked just before the kernels, which check nothing.

A kernel takes addresses and sizes. A tensor of another shape or dtype, an index beyond an axis, or
memory that was freed would be read as numbers, or written to.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from glasshead.engines.streaming.kernels.streamed import ASKED, OutputSpec
from glasshead.engines.streaming.operands import GradOutputs, LoweredProblem
from glasshead.recipe.validation import FLOATS, check_memory

_ANY = -1


def check_forward(problem: LoweredProblem, spec: OutputSpec) -> None:
    """Raise a ValueError where the kernels of a forward pass would read something else.

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
    """Raise a ValueError where the kernels of a backward pass would read something else."""
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
            raise ValueError(f"{name} must be given where its gradient is wanted, got None.")
    _check("row_stats", row_stats, (batch, heads, 2, queries), (real,))
    context = gradients.context
    if context is not None and problem.value is None:
        raise ValueError("value must be given where the context has a gradient, got None.")
    if context is not None and problem.value is not None:
        width = problem.value.shape[3]
        _check("the gradient of the context", context, (*rows, width), _LIKE[problem.query.dtype])
    _check("the gradient of the logsumexp", gradients.logsumexp, rows, (real,))
    _check("the gradient of the entropy", gradients.entropy, rows, (real,))
    right = gradients.per_key
    _check("per_key", right, (batch, heads, _ANY, problem.key.shape[2]), (real,), broadcast=2)
    if gradients.by_key is not None:
        if right is None:
            raise ValueError("per_key must be given where P·R has a gradient, got None.")
        shape = (batch, heads, right.shape[2], queries)
        _check("the gradient of P·R", gradients.by_key, shape, (real,))


def _check_problem(problem: LoweredProblem) -> None:
    query, key, value, recipe = problem
    _check("query", query, (_ANY,) * 4, FLOATS)
    batch, heads, queries, dim = query.shape
    _check("key", key, (batch, _ANY, _ANY, dim), (query.dtype,))
    _, kv_heads, keys, _ = key.shape
    if kv_heads == 0 or heads % kv_heads:
        raise ValueError(f"the heads of query, {heads}, must be a multiple of key's, {kv_heads}.")
    _check("value", value, (batch, kv_heads, keys, _ANY), _LIKE[query.dtype])
    real, whole = (_REAL[query.dtype],), (torch.int64,)
    _check("bounds", recipe.bounds, (batch, 2, queries), whole, broadcast=1)
    _check("offsets", recipe.offsets, (batch,), whole, broadcast=1)
    pairs = batch, heads, queries, keys
    _check("visible", recipe.visible, pairs, (torch.bool,), broadcast=3)
    _check("bias", recipe.bias, pairs, real, broadcast=3)
    _check("table", recipe.table, (batch, heads, queries + keys - 1), real, broadcast=2)
    _check("sink", recipe.sink, (heads,), real, broadcast=1)
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
