"""Plain calls: all heads of an attention in one call of machine code, without Python in between.

Of a few hundred tokens Python takes more time to hand heads to the kernels than these take. So a
program is made once for inputs of the same shapes and strides, and run by all calls like the first.
The programs are those of `passes`, and so are all bits.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from glasshead.engines.streaming.kernels.streamed import FACTOR, MAX_SCORE, ROW_STATS, OutputSpec
from glasshead.engines.streaming.lowering import backward_program, forward_program
from glasshead.engines.streaming.operands import (
    GradInputs,
    GradOutputs,
    LoweredProblem,
    RecipeTensors,
    in_rows,
)
from glasshead.engines.streaming.operator import no_second_gradient, streaming_backward
from glasshead.engines.streaming.passes import stripe_sums, summed
from glasshead.engines.streaming.programs import Program, Schedule, kept
from glasshead.private_names import private
from glasshead.recipe.masks.kinds import LengthMask
from glasshead.recipe.validation import check_memory, extent

_CPU = torch.device("cpu")
# The position of query 0, which nothing reads here. Autograd saves no tensor of inference mode.
with torch.inference_mode(mode=False):
    _OFFSETS = torch.zeros(1, dtype=torch.int64, device=_CPU)
_NONE = torch.empty(0, device=_CPU)
# How many programs a call finds by strides alone.
_MOST_BY_STRIDES = 8


class PlainCall:
    """Attention whose scores need nothing but products, numbers, and the bounds of each query.

    Args:
        name: Of what the queries see: `PlainCall`s of one name have the same bounds.
        bounds: The first key that each query sees, and the one after the last, `[1, 2, queries]`;
            None if each sees all. Every query sees a key, and every key is seen.
        scale: The number that multiplies the products.
        softcap: 0 for none.
        by_lengths: Whether the mask of each call has the number of keys of each batch row, which
            hide the keys from there on.
        table: As of `RecipeTensors`, without -inf; or what makes it.
        sink: As of `RecipeTensors`, if calls give none.
    """

    def __init__(
        self,
        name: object,
        bounds: Tensor | None,
        scale: float,
        softcap: float,
        *,
        by_lengths: bool = False,
        table: Tensor | Callable[[], Tensor] | None = None,
        sink: Tensor | None = None,
    ) -> None:
        self.bounds, self.scale, self.softcap = bounds, scale, softcap
        self._by_lengths, self._table, self._sink = by_lengths, table, sink
        self._name = name, scale, softcap, by_lengths
        self._by_strides: dict[tuple[object, ...], tuple[Program, KeySpans, tuple[int, ...]]] = {}
        self._backward_by_strides: dict[tuple[object, ...], Program] = {}

    def __call__(
        self,
        query: Float[Tensor, "batch heads queries dim"],
        key: Float[Tensor, "batch kv_heads keys dim"],
        value: Float[Tensor, "batch kv_heads keys value_dim"],
        mask: Any = None,
        sink: Tensor | None = None,
    ) -> Float[Tensor, "batch heads queries value_dim"] | None:
        """Compute the context, differentiably.

        None if others are to see an operator, a batch row sees no key, or an input has no
        memory, or too little. A sink is that of the call, of any float dtype: one for all heads, or
        one each.
        """
        if _sees_operators() or getattr(forward_ad, "_current_level", 0) >= 0:
            return None
        if query.is_neg() or key.is_neg() or value.is_neg():
            query, key, value = (x.resolve_neg() for x in (query, key, value))
        if not (query.data_ptr() and key.data_ptr() and value.data_ptr()):
            return None
        table = self._table() if callable(self._table) else self._table
        sink = self._sink if sink is None else sink.to(torch.float32).reshape(-1)
        # Calls of this attention have the same shapes.
        layout = query.stride(), key.stride(), value.stride(), torch.get_num_threads()
        program, rows, extents = self._by_strides.get(layout) or (
            *(None, None),
            _extents(query, key, value),
        )
        # Written out, as each call pays for it.
        if (
            query.untyped_storage().nbytes() < extents[0] + query.storage_offset() * extents[3]
            or key.untyped_storage().nbytes() < extents[1] + key.storage_offset() * extents[3]
            or value.untyped_storage().nbytes() < extents[2] + value.storage_offset() * extents[3]
        ):
            return None
        if program is None or rows is None:
            query, key, value = in_rows(query), in_rows(key), in_rows(value)
            program, rows = self._forward(layout, extents, query, key, value, table, sink)
        if self._by_lengths:
            found = self._rows_of(mask, query, key)
            if found is None:
                return None
            rows = found
        if torch.is_grad_enabled() and (
            query.requires_grad
            or key.requires_grad
            or value.requires_grad
            or (table is not None and table.requires_grad)
            or (sink is not None and sink.requires_grad)
        ):
            return StreamingAttention.apply(query, key, value, table, sink, self, program, rows)
        context = torch.empty(program.shape, dtype=program.dtype, device=_CPU)
        given = {"query": query, "key": key, "value": value, "context": context, **rows.given}
        program.run(given if table is None and sink is None else given | _added(table, sink))
        return context if context.dtype is query.dtype else context.to(query.dtype)

    def _forward(
        self, layout: tuple[object, ...], extents: tuple[int, ...], *inputs: Any
    ) -> tuple[Program, "KeySpans"]:
        """Return the program of the forward pass, and keep it for inputs that take no copy."""
        problem = self.lowered(*inputs)
        program = kept(lambda: _forward_program(problem), _forward_program, self._name, inputs)
        rows = KeySpans(
            torch.full((len(inputs[0]),), inputs[1].shape[2], device=_CPU), problem.recipe.bounds
        )
        if layout[:3] == tuple(x.stride() for x in inputs[:3]):
            if len(self._by_strides) >= _MOST_BY_STRIDES:
                self._by_strides.clear()
            self._by_strides[layout] = program, rows, extents
        return program, rows

    def _rows_of(self, mask: Any, query: Tensor, key: Tensor) -> "KeySpans | None":
        """Return the keys of each batch row by the lengths of a mask; None if a query sees none."""
        parts = mask.conjuncts or (mask,)
        given = next(part for part in parts if type(part) is LengthMask)
        lengths, (batch, _, queries, _), keys = given.lengths.tolist(), query.shape, key.size(2)
        lengths = lengths if isinstance(lengths, list) else [lengths] * batch
        kind = self._name[0], queries, keys, *lengths
        rows = _ROWS.get(kind)
        if rows is not None:
            return rows
        stops = np.minimum(lengths, keys).astype(np.int64)
        bounds = np.zeros((batch, 2, queries), np.int64)
        bounds[:, 1] = keys
        if self.bounds is not None:
            bounds[:] = self.bounds.numpy()
        bounds[:, 1] = np.minimum(bounds[:, 1], stops[:, None])
        if (bounds[:, 0] >= bounds[:, 1]).any():
            return None
        if len(_ROWS) >= _MOST_ROWS:
            _ROWS.clear()
        of_batch = torch.from_numpy(np.broadcast_to(stops, batch).copy())
        _ROWS[kind] = rows = KeySpans(of_batch, torch.from_numpy(bounds))
        return rows

    def backward(self, gradient: Tensor, wanted: tuple[bool, ...], *inputs: Any) -> Program:
        """Return the program of the backward pass, for the gradient of the context."""
        query, key, value, table, sink = inputs
        layout = (
            *(query.stride(), key.stride(), value.stride(), gradient.stride(), wanted),
            *(table is None or table.shape, sink is None or sink.shape, torch.get_num_threads()),
        )
        program = self._backward_by_strides.get(layout)
        if program is None:
            program = kept(
                lambda: _backward_program(self.lowered(*inputs), gradient, wanted),
                *(_backward_program, self._name, inputs, gradient, wanted),
            )
            if len(self._backward_by_strides) >= _MOST_BY_STRIDES:
                self._backward_by_strides.clear()
            self._backward_by_strides[layout] = program
        return program

    def lowered(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        table: Tensor | None,
        sink: Tensor | None,
        bounds: Tensor | None = None,
    ) -> LoweredProblem:
        """Return the problem as the passes take it, with the bounds of a call if it has some."""
        bounds = self.bounds if bounds is None else bounds
        if bounds is None:
            bounds = torch.tensor([[[0], [key.shape[2]]]], device=_CPU)
        rows = query.shape[0] if self._by_lengths else len(bounds)
        bounds = bounds.expand(rows, 2, query.shape[2])
        recipe = RecipeTensors(
            bounds.contiguous(),
            _OFFSETS,
            table=table,
            sink=sink,
            scale=self.scale,
            softcap=self.softcap,
        )
        return LoweredProblem(query, key, value, recipe)


def _extents(query: Tensor, key: Tensor, value: Tensor) -> tuple[int, ...]:
    """Return the bytes that each of the inputs extends over, and those of a number."""
    return extent(query), extent(key), extent(value), query.itemsize


def _added(table: Tensor | None, sink: Tensor | None) -> dict[str, Tensor | None]:
    """Return what is added to the scores, as a program takes it."""
    return {"table": table, "sink": None if sink is None else sink.detach().double().contiguous()}


def are_there() -> bool:
    """Return whether there are plain calls: none may pass by a mode that is to see operators."""
    return _modes is not None


# Counts the modes that see the operators of this thread.
_modes = private("torch._C._len_torch_dispatch_stack")


def _sees_operators() -> bool:
    """Return whether a mode is to see the operators that run."""
    return bool(_modes())


def _has_memory(x: Tensor) -> bool:
    """Return whether a tensor has numbers of its own, as one has not that a transform wraps."""
    try:
        return bool(x.data_ptr())
    except RuntimeError:
        return False


class KeySpans:
    """Keys that batch rows see.

    Args:
        lengths: The keys that there are, `[batch]`: none beyond are read.
        bounds: The first key that each query sees, and the one after the last,
            `[#batch, 2, queries]`.

    Attributes:
        lengths, bounds: As given.
        given: The arrays of a program, by name.
    """

    def __init__(self, lengths: Tensor, bounds: Tensor) -> None:
        self.lengths = lengths
        # Autograd saves them, and would not if they were made in inference mode.
        with torch.inference_mode(mode=False):
            self.bounds = bounds.clone()
        self.given = {"lengths": lengths, "bounds": self.bounds, "offsets": _OFFSETS}


# Layers of a model are padded alike: what was made for the last few lengths is kept.
_ROWS: dict[tuple[object, ...], KeySpans] = {}
_MOST_ROWS = 8


# What a backward pass reads.
_SAVED = "query", "key", "value", "bounds", "row_stats", "the gradient of the context"


class StreamingAttention(torch.autograd.Function):
    """The context, and its gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        table: Tensor | None,
        sink: Tensor | None,
        call: PlainCall,
        program: Program,
        rows: KeySpans,
    ) -> Tensor:
        """Compute the context, and keep two numbers of each row."""
        context = torch.empty(program.shape, dtype=program.dtype, device=_CPU)
        shape = (*program.shape[:2], ROW_STATS, program.shape[2])
        stats = torch.empty(shape, dtype=torch.float32, device=_CPU)
        inputs = {"query": query, "key": key, "value": value, **_added(table, sink)}
        program.run({**inputs, "context": context, "rows": stats, **rows.given})
        # These two are as far apart as no third one is.
        of_rows = stats[:, :, MAX_SCORE :: FACTOR - MAX_SCORE].contiguous()
        # What the operator saves, as a checkpoint may compute one and then the other.
        ctx.save_for_backward(query, key, value, rows.bounds, _OFFSETS, table, sink, of_rows)
        ctx.call, ctx.rows, ctx.shapes = call, rows, _shapes(query, key, value, table, sink)
        return context if context.dtype is query.dtype else context.to(query.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Compute the gradients, by the operator where others are to see it, or wrap it."""
        query, key, value, bounds, _, table, sink, of_rows = ctx.saved_tensors
        if (
            _shapes(query, key, value, table, sink) != ctx.shapes
            or not (query.dtype == key.dtype == value.dtype == gradient.dtype)
            or (bounds.dtype, of_rows.dtype) != (torch.int64, torch.float32)
        ):
            raise TypeError(
                "a hook of saved tensors must return them in their own shape and dtype, got "
                f"{[(list(x.shape), x.dtype) for x in (query, key, value)]}."
            )
        for name, x in zip(_SAVED, (query, key, value, bounds, of_rows, gradient), strict=True):
            check_memory(name, x)
        # A hook may have changed their strides.
        inputs = [in_rows(x.resolve_neg()) for x in (query, key, value)]
        bounds, of_rows = bounds.contiguous(), of_rows.contiguous()
        inputs += [None if x is None else x.contiguous() for x in (table, sink)]
        wanted = tuple(ctx.needs_input_grad[3:5])
        if _sees_operators() or not _has_memory(gradient):
            *tensors, (*parts, _) = ctx.call.lowered(*inputs, bounds)
            others = [False, *wanted], of_rows, gradient, None, None, None, None
            grads = streaming_backward(*tensors, *parts, 0, *others)
            learned = zip(grads[4:], wanted, strict=True)
            made: tuple[Any, ...] = *grads[:3], *(x if want else None for x, want in learned)
        else:
            given = ctx.call, ctx.rows.lengths, wanted, in_rows(gradient.resolve_neg())
            # A function of autograd takes as long as a small kernel: only where it may be needed.
            again: Callable[..., tuple[Any, ...]] = _gradients
            if torch.is_grad_enabled():
                again = StreamingAttentionGradient.apply
            made = again(*given, bounds, of_rows, *inputs)
        dtype = query.dtype
        rounded = made[:3] if dtype is torch.float32 else (x.to(dtype) for x in made[:3])
        return *rounded, *made[3:], None, None, None


def _shapes(*tensors: Tensor | None) -> tuple[object, ...]:
    """Return the shapes of tensors, and the dtypes of those after the first three."""
    inputs, others = tensors[:3], tensors[3:]
    kinds = (None if x is None else (x.shape, x.dtype) for x in others)
    return *(x.shape for x in inputs if x is not None), *kinds


class StreamingAttentionGradient(torch.autograd.Function):
    """The gradients, which have none of their own."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Any, ...]:
        """Compute the gradients of query, key, value, table and sink."""
        del ctx
        return _gradients(*given)

    backward = staticmethod(no_second_gradient)  # type: ignore[assignment]


def _gradients(
    call: PlainCall,
    lengths: Tensor,
    wanted: tuple[bool, ...],
    gradient: Tensor,
    bounds: Tensor,
    row_stats: Tensor,
    *inputs: Any,
) -> tuple[Any, ...]:
    """Compute the gradients of query, key and value, in float32, and of a table and a sink.

    Those of a table and a sink are None if they are not wanted.
    """
    query, key, value, table, sink = inputs
    program = call.backward(gradient, wanted, *inputs)

    grads = GradInputs(
        torch.empty(query.shape, dtype=torch.float32, device=_CPU),
        key,
        value,
        bias=_NONE,
        table=torch.zeros(table.shape, dtype=torch.float32, device=_CPU) if wanted[0] else _NONE,
        sink=torch.zeros(sink.shape, dtype=torch.float32, device=_CPU) if wanted[1] else _NONE,
    )
    given = {"query": query, "key": key, "value": value, **_added(table, sink)}
    rows = {"lengths": lengths, "bounds": bounds, "offsets": _OFFSETS, "row_stats": row_stats}
    sums = stripe_sums(grads, program)
    program.run({**given, **rows, "of_context": gradient, **sums})
    made = summed(grads, sums)
    learned = zip((made.table, made.sink), wanted, strict=True)
    return made.query, made.key, made.value, *(x if want else None for x, want in learned)


def _forward_program(problem: LoweredProblem) -> Program:
    """Return the program of the context alone."""
    problem = problem.laid_out()
    return forward_program(problem, Schedule.forward(problem), OutputSpec())


def _backward_program(
    problem: LoweredProblem, gradient: Tensor, wanted: tuple[bool, ...]
) -> Program:
    """Return the program of the gradients."""
    problem = problem.laid_out()
    cut = Schedule.backward(problem)
    given = GradOutputs(gradient, None, None, None, None)
    return backward_program(problem, cut, given, GradInputs.allocate(problem, (False, *wanted)))
