"""`F.scaled_dot_product_attention` of `DTensor`, sharded by heads or batch, or a ring by length."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed
from torch.overrides import TorchFunctionMode

from glasshead.private_names import lacking, private
from glasshead.recipe.masks import causal
from glasshead.watching.captured_call import CapturedCall, problem_from_inputs
from glasshead.watching.errors import unreadable
from glasshead.watching.interception.interfaces import CallContext
from glasshead.watching.interception.session import Session
from glasshead.watching.interception.torch_attention import capture_sdpa, with_output
from glasshead.watching.sharding import Shard

_Function = Callable[..., Any]
_PLACES = (
    "watch observes attention of DTensors whose queries, keys and values are sharded alike, by "
    "batch, heads or length in equal parts, but the tensors of {module} are not. Redistribute "
    "them so, or omit it with layers=."
)
_CROSSES = (
    "watch observes only self-attention without a mask if the length is sharded, but {module} has "
    "a mask or attends to another text. Omit it with layers=."
)
# Of context parallel: its options, and how it has its way with an operator of DTensor.
_OPTIONS = (
    "torch.distributed.tensor.experimental._context_parallel._attention._cp_options",
    "torch.distributed.tensor.experimental._attention._cp_options",
)
_HANDLERS = "torch.distributed.tensor.DTensor._op_dispatcher._custom_op_handlers"
_AXES, _BATCH, _HEADS, _LENGTH = 4, 0, 1, 2


class _Span(NamedTuple):
    """Queries of this rank that stand together in the text.

    Attributes:
        begin, end: Among the queries of this rank.
        position: Of the first of them in the text.
    """

    begin: int
    end: int
    position: int


def is_sharded(original: _Function, query: Any) -> bool:
    """Return whether the inputs of an attention are, or will be, tensors spread over ranks.

    Args:
        original: The function, which context parallel replaces by one that spreads its inputs.
        query: The queries that it is given.
    """
    if "torch.distributed.tensor" not in sys.modules:
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(query, DTensor) or _is_ring(original)


def _is_ring(original: _Function) -> bool:
    # The original of a stand-in of ours is that of context parallel, or of PyTorch.
    home = getattr(original, "__module__", None) or ""
    return home.startswith("torch.distributed.tensor.experimental.")


def run_sharded(session: Session, original: _Function, *inputs: Any, **named: Any) -> Any:
    """Run an attention of tensors that are spread over ranks, and observe the part of this rank.

    Errors: a ValueError if it has interventions.
    """
    session.check_unchanged(
        "intervene changes attention whose inputs are plain tensors, but these are spread over "
        "ranks, as by context parallel. Run the model without it."
    )
    with session.suspended(), _Arguments() as arguments:
        output = original(*inputs, **named)
    if session.watchers and isinstance(output, Tensor):
        args, kwargs = arguments.last or (inputs, named)
        with session.suspended():
            local: Any = output
            made = local.to_local() if hasattr(local, "to_local") else local
        try:
            parts = _parts(*args, **kwargs)
        except _UnplacedError as error:
            session.record_unobserved(str(error))
            return output
        except Exception as error:  # noqa: BLE001 - the model runs on
            session.record_unobserved(unreadable(error))
            return output
        for part in parts:
            own = made[..., part.span.begin : part.span.end, :].detach()
            session.observe(None, partial(part.capture, session.context(own)), own)
    return output


class _Arguments(TorchFunctionMode):
    """Keeps the arguments with which PyTorch's attention is called in the end.

    Attributes:
        last: Its arguments, by position and by name; None: it was not called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.last: tuple[Sequence[Any], dict[str, Any]] | None = None

    def __torch_function__(
        self,
        func: _Function,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        if getattr(func, "__name__", None) == "scaled_dot_product_attention":
            self.last = args, kwargs or {}
        return func(*args, **(kwargs or {}))


class _UnplacedError(Exception):
    """An attention whose place among the ranks is not known; the message, with {module}."""


class _Part(NamedTuple):
    """Some queries of this rank, and what captures their attention."""

    span: _Span
    capture: Callable[[CallContext], CapturedCall]


class _Layout(NamedTuple):
    """The sharding of queries, keys and values.

    Attributes:
        heads: Which heads this rank has, of each axis of the mesh that shards them.
        ring: The mesh and its axis that shards their length; None: none does.
    """

    heads: tuple[Shard, ...]
    ring: tuple[Any, int] | None


def _parts(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **named: Any,
) -> list[_Part]:
    """Return what this rank computes of an attention, in spans of queries that stand together.

    Args:
        query, key, value, attn_mask, dropout_p, is_causal, named: Arguments of the function.

    Errors: an `_UnplacedError`.
    """
    layout = _layout(query, key, value)
    local = [one.to_local().detach() for one in (query, key, value)]
    if layout.ring is None:

        def whole(context: CallContext) -> CapturedCall:
            mask = _whole_mask(attn_mask)
            given = {"attn_mask": mask, "dropout_p": dropout_p, "is_causal": is_causal, **named}
            captured = capture_sdpa(*local, **given, context=context)
            return replace(captured, shards=layout.heads)

        _whole_mask(attn_mask)
        return [_Part(_Span(0, local[0].shape[-2], 0), whole)]
    if attn_mask is not None or query.shape[-2] != key.shape[-2]:
        raise _UnplacedError(_CROSSES)
    mesh, axis = layout.ring
    balanced = _is_balanced(is_causal=is_causal)
    collected: list[Tensor] = []

    def capture(span: _Span, context: CallContext) -> CapturedCall:
        if not collected:
            collected.extend(_collected(one, mesh, axis, balanced=balanced) for one in local[1:])
        captured = _of_span(
            (local[0], *collected), span, context, is_causal=is_causal, scale=named.get("scale")
        )
        output = None if dropout_p else captured.output
        shard = Shard("queries", span.position, query.shape[-2], mesh.get_group(axis))
        return replace(captured, output=output, shards=(*layout.heads, shard))

    spans = _spans(local[0].shape[-2], mesh, axis, balanced=balanced)
    return [_Part(span, partial(capture, span)) for span in spans]


def _layout(*tensors: Any) -> _Layout:
    """Return how tensors are sharded.

    Errors: an `_UnplacedError` if it is not in the same way, nor in equal parts.
    """
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor import Shard as Sharded

    if not all(isinstance(one, DTensor) and one.ndim == _AXES for one in tensors):
        raise _UnplacedError(_PLACES)
    first = tensors[0]
    mesh, heads, ring = first.device_mesh, [], []
    if any(one.placements != first.placements for one in tensors):
        raise _UnplacedError(_PLACES)
    for axis, placement in enumerate(first.placements):
        ranks = mesh.size(axis)
        if ranks == 1 or placement.is_replicate():
            continue
        dim = placement.dim if isinstance(placement, Sharded) else None
        if dim not in (_BATCH, _HEADS, _LENGTH) or any(
            one.to_local().shape[dim] * ranks != one.shape[dim] for one in tensors
        ):
            raise _UnplacedError(_PLACES)
        if dim == _HEADS:
            own, whole = first.to_local().shape[dim], first.shape[dim]
            begin = mesh.get_local_rank(axis) * own
            heads.append(Shard("heads", begin, whole, mesh.get_group(axis)))
        elif dim == _LENGTH:
            ring.append((mesh, axis))
    if len(heads) > 1 or len(ring) > 1:
        raise _UnplacedError(_PLACES)
    return _Layout(tuple(heads), next(iter(ring), None))


def _whole_mask(mask: Any) -> Any:
    """Return a mask that every rank has.

    Errors: an `_UnplacedError` if it is sharded.
    """
    if mask is None or not hasattr(mask, "to_local"):
        return mask
    if not all(one.is_replicate() for one in mask.placements):
        raise _UnplacedError(_PLACES)
    return mask.to_local()


def _is_balanced(*, is_causal: bool) -> bool:
    """Return whether each rank has a span of the beginning and one of the end.

    So context parallel shares the work of causal attention, unless it is told not to.

    Errors: an `_UnplacedError` if this version of PyTorch does not show it.
    """
    handlers = private(_HANDLERS)
    options = next(filter(None, map(private, _OPTIONS)), None)
    if handlers is None or options is None:
        raise _UnplacedError(
            lacking(
                "watch cannot determine how context parallel orders its text",
                _HANDLERS if handlers is None else _OPTIONS[0],
                "Run {module} on one rank, or omit it with layers=",
            )
        )
    operator = torch.ops.aten._scaled_dot_product_flash_attention.default  # noqa: SLF001
    from torch.distributed.tensor import DTensor

    # It is on within its block alone, so it is not to be looked up once.
    rings = operator in DTensor._op_dispatcher._custom_op_handlers  # noqa: SLF001
    return bool(rings and is_causal and options.enable_load_balance)


def _spans(queries: int, mesh: Any, axis: int, *, balanced: bool) -> Iterator[_Span]:
    """Yield the spans of queries of this rank."""
    rank, ranks = mesh.get_local_rank(axis), mesh.size(axis)
    if not balanced:
        yield _Span(0, queries, rank * queries)
        return
    half = queries // 2
    yield _Span(0, half, rank * half)
    yield _Span(half, queries, (2 * ranks - 1 - rank) * half)


def _collected(own: Tensor, mesh: Any, axis: int, *, balanced: bool) -> Tensor:
    """Collect keys or values of all ranks, in the order of the text."""
    ranks = [torch.empty_like(own.contiguous()) for _ in range(mesh.size(axis))]
    distributed.all_gather(ranks, own.contiguous(), group=mesh.get_group(axis))
    if not balanced:
        return torch.cat(ranks, -2)
    heads, tails = zip(*(one.chunk(2, -2) for one in ranks), strict=True)
    return torch.cat([*heads, *reversed(tails)], -2)


def _of_span(
    tensors: tuple[Tensor, ...],
    span: _Span,
    context: CallContext,
    *,
    is_causal: bool,
    scale: float | None,
) -> CapturedCall:
    """Capture some queries of a text on all keys that they may see.

    Args:
        tensors: The queries of this rank, and the keys and values of all.
        span, context, is_causal, scale: Which queries, and how they attend.
    """
    query, key, value = tensors
    query = query[..., span.begin : span.end, :]
    end = span.position + query.shape[-2] if is_causal else key.shape[-2]
    problem = problem_from_inputs(
        query,
        key[..., :end, :],
        value[..., :end, :],
        scale=scale,
        offset=span.position,
        mask=causal(offset=span.position) if is_causal else None,
    )
    # Ring attention merges its parts in float32.
    output = None if context.output is None else context.output.to(torch.float32)
    return with_output(CapturedCall(problem), output, drops=False)
