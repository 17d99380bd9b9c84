"""Plain calls: all heads of an attention in one call of machine code, without Python in between.

Of a few hundred tokens Python takes more time to hand heads to the kernels than these take. So a
program is made once for inputs of the same shapes and strides, and run by all calls like the first.
The kernels are those of `passes`, and so are all bits.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from glasshead.engines.streaming.kernels.arguments import FACTOR, MAX_SCORE, ROW_STATS
from glasshead.engines.streaming.kernels.processor import columns_of
from glasshead.engines.streaming.machine_code import in_package
from glasshead.engines.streaming.operands import LoweredProblem, RecipeTensors
from glasshead.engines.streaming.operator import no_second_gradient
from glasshead.engines.streaming.programs import Program, backward_program, forward_program
from glasshead.private_names import private

_CPU = torch.device("cpu")
# Programs by what they are of; beyond this many, all are made anew.
_PROGRAMS: dict[tuple[object, ...], Program] = {}
_MOST = 256
# How many of them a call finds by strides alone.
_MOST_BY_STRIDES = 8


class PlainCall:
    """Attention whose scores need nothing but products, a scale, and the bounds of each query.

    It holds no tensor of a caller.

    Args:
        name: Of what the queries see: `PlainCall`s of one name have the same bounds.
        bounds: The first key that each query sees, and the one after the last, `[1, 2, queries]`;
            None where each sees all. Every query sees a key, and every key is seen.
        scale: The number that multiplies the products.
        softcap: 0 for none.
    """

    def __init__(self, name: object, bounds: Tensor | None, scale: float, softcap: float) -> None:
        self.bounds, self.scale, self.softcap = bounds, scale, softcap
        self._name = name, scale, softcap
        self._by_strides: dict[tuple[object, ...], Program] = {}

    def __call__(
        self,
        query: Float[Tensor, "batch heads queries dim"],
        key: Float[Tensor, "batch kv_heads keys dim"],
        value: Float[Tensor, "batch kv_heads keys value_dim"],
        mask: object = None,
    ) -> Float[Tensor, "batch heads queries value_dim"] | None:
        """Compute the context, differentiably; None where others are to see an operator."""
        if _modes() or getattr(forward_ad, "_current_level", 0) >= 0:
            return None
        # Of the shapes, batch rows and keys alone change from call to call.
        kind = (
            *(query.stride(), key.stride(), value.stride()),
            *(query.size(0), key.size(2), torch.get_num_threads()),
        )
        program = self._by_strides.get(kind)
        if program is None:
            query, key, value = _in_rows(query), _in_rows(key), _in_rows(value)
            program = self._forward(kind, query, key, value)
        if torch.is_grad_enabled() and (
            query.requires_grad or key.requires_grad or value.requires_grad
        ):
            return _Differentiable.apply(query, key, value, self, program)
        context = torch.empty(program.shape, dtype=torch.float32, device=_CPU)
        program.run(query, key, value, context)
        return context if query.dtype is torch.float32 else context.to(query.dtype)

    def _forward(self, kind: tuple[object, ...], *inputs: Tensor) -> Program:
        """Return the program of the forward pass, and keep it for inputs that take no copy."""
        program = self.program(forward_program, *inputs)
        if kind[:3] == tuple(x.stride() for x in inputs):
            if len(self._by_strides) >= _MOST_BY_STRIDES:
                self._by_strides.clear()
            self._by_strides[kind] = program
        return program

    def program(
        self, make: Callable[..., Program], *inputs: Tensor, gradient: tuple[Tensor, ...] = ()
    ) -> Program:
        """Return the program of a pass over such inputs, made by the first of such calls.

        Args:
            make: Makes it of the problem, and the gradient.
            inputs: Query, key and value.
            gradient: Of the context, in a backward pass.
        """
        kind: list[object] = [make, self._name, inputs[0].dtype, torch.get_num_threads()]
        for x in (*inputs, *gradient):
            kind += (x.shape, x.stride())
        known = tuple(kind)
        program = _PROGRAMS.get(known)
        if program is None:
            if len(_PROGRAMS) >= _MOST:
                _PROGRAMS.clear()
            _PROGRAMS[known] = program = make(self._lowered(*inputs), *gradient)
        return program

    def _lowered(self, query: Tensor, key: Tensor, value: Tensor) -> LoweredProblem:
        """Return the problem as the passes take it."""
        bounds = self.bounds
        if bounds is None:
            bounds = torch.tensor([[[0], [key.shape[2]]]]).expand(1, 2, query.shape[2])
        recipe = RecipeTensors(
            bounds.contiguous(),
            torch.zeros(1, dtype=torch.int64),
            scale=self.scale,
            softcap=self.softcap,
        )
        return LoweredProblem(query, key, value, recipe)


def serves(dim: int, value_dim: int) -> bool:
    """Return whether plain calls take vectors of such widths: a product's tile fills up no others.

    They need machine code that is installed, as no call is to wait for a compiler.
    """
    width = columns_of(torch.float32.itemsize)
    return dim % width == value_dim % width == 0 and in_package() and _modes is not _always


def _always() -> int:
    """Stand in for what this version of PyTorch lacks."""
    return 1


# How many modes see the operators of this thread.
_modes = private("torch._C._len_torch_dispatch_stack") or _always


def _in_rows(x: Tensor) -> Tensor:
    """Return vectors each of which is contiguous in memory, and after the one before."""
    *_, row, step = x.stride()
    return x if step == 1 and row >= x.shape[-1] else x.contiguous()


class _Differentiable(torch.autograd.Function):
    """The context, and its gradients."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, call: PlainCall, program: Program
    ) -> Tensor:
        """Compute the context, and keep two numbers of each row."""
        context = torch.empty(program.shape, dtype=torch.float32, device=_CPU)
        rows = context.new_empty((*program.shape[:2], ROW_STATS, program.shape[2]))
        program.run(query, key, value, context, rows)
        stats = rows[:, :, MAX_SCORE :: FACTOR - MAX_SCORE].contiguous()
        ctx.save_for_backward(query, key, value, stats)
        ctx.call = call
        return context.to(query.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Compute the gradients."""
        return *_Gradient.apply(ctx.call, gradient, *ctx.saved_tensors), None, None


class _Gradient(torch.autograd.Function):
    """The gradients, which have none of their own."""

    @staticmethod
    def forward(ctx: Any, call: PlainCall, gradient: Tensor, *saved: Tensor) -> tuple[Tensor, ...]:
        """Compute the gradients of query, key and value."""
        del ctx
        # Hooks of saved tensors may have laid them out anew.
        query, key, value, gradient = (_in_rows(x) for x in (*saved[:3], gradient))
        return _backward(call, gradient, query, key, value, saved[3].contiguous())

    backward = staticmethod(no_second_gradient)  # type: ignore[assignment]


def _backward(
    call: PlainCall, gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, row_stats: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients of query, key and value."""
    program = call.program(backward_program, query, key, value, gradient=(gradient,))
    of_query = query.new_empty(query.shape, dtype=torch.float32)
    # Sums over the queries: of each stripe by itself, and with the rows that fill up a panel.
    sums = [
        query.new_zeros(
            (program.stripes, *x.shape[:2], program.padded, x.shape[3]), dtype=torch.float32
        )
        for x in (key, value)
    ]
    program.run(query, key, value, gradient, row_stats, of_query, *sums)
    of_key, of_value = (
        (one[0] if len(one) == 1 else one.sum(0))[:, :, : key.shape[2]].contiguous() for one in sums
    )
    return of_query.to(query.dtype), of_key.to(key.dtype), of_value.to(value.dtype)
