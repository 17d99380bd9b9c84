"""Patches of the attention functions of PyTorch and of this library."""

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from glasshead.attention import Attention
from glasshead.layers import MultiHeadAttention
from glasshead.private_names import lacking, private
from glasshead.recipe.biases import Bias
from glasshead.watching.captured_call import CapturedCall
from glasshead.watching.errors import COMPILED, UnseenError
from glasshead.watching.interception.session import (
    CallContext,
    OneThread,
    Patch,
    Session,
    intercepted,
    without_heads,
)
from glasshead.watching.interception.torch_attention import (
    by_name,
    capture_multi_head,
    capture_sdpa,
    crosses,
    projecting_without,
    shows_itself,
)


class FunctionInterceptMode(OneThread, TorchFunctionMode):
    """A mode that replaces calls of a function, above autograd.

    It also sees calls by names that cannot be patched, as those of `from … import`. While it is
    open, PyTorch's own layers leave their fast paths, in which heads have no separate context.

    Args:
        function: The function to intercept.
        stand_in: The replacement, called with the function before the arguments.
    """

    def __init__(self, function: Callable[..., Any], stand_in: Callable[..., Any]) -> None:
        super().__init__()
        self._function, self._stand_in = function, stand_in

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        if func is self._function:
            return self._stand_in(func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


_Function = Callable[..., Any]
_SDPA = "torch._C._nn.scaled_dot_product_attention"
_COMPILED_GRAPH = "torch._inductor.output_code.CompiledFxGraph"


def functions() -> list[Patch]:
    """Return the patches of PyTorch's functions, and of our own attention and layers.

    Intercepting kernels would suffice, except where PyTorch falls back to matrix products and a
    softmax: with dropout, three axes, or unequal widths.
    """
    replaced = [
        Patch(F, "scaled_dot_product_attention", _sdpa, kernels=True),
        Patch(F, "multi_head_attention_forward", _multi_head),
        Patch(Attention, "forward", _attention),
        Patch(MultiHeadAttention, "forward", _layer),
    ]
    # Without Dynamo nothing is compiled, and importing the compiler takes seconds.
    graph = private(_COMPILED_GRAPH) if "torch._dynamo" in sys.modules else None
    if graph is not None:
        replaced.append(Patch(graph, "__call__", _compiled))
    return replaced


def check_compiled_code_is_seen() -> None:
    """Check that no compiled code can have run that PyTorch does not show.

    Errors: an `UnseenError` where the compiler is loaded, and its graphs cannot be intercepted.
    """
    loaded = any(name.endswith("inductor.compile_fx") for name in sys.modules)
    if loaded and private(_COMPILED_GRAPH) is None:
        raise UnseenError(
            lacking(
                "watch cannot see whether compiled code attends",
                _COMPILED_GRAPH,
                "watch in a process that compiles nothing",
            )
        )


def by_any_name() -> FunctionInterceptMode:
    """Return a mode that intercepts `scaled_dot_product_attention` by any name.

    Errors: an `UnseenError` where only another library's stand-in for that function can be found.
    """
    # The original, whether patched or not.
    original = private(_SDPA) or inspect.unwrap(F.scaled_dot_product_attention)
    if not (original.__module__ or "torch").startswith("torch"):
        raise UnseenError(
            lacking(
                "ablate cannot find F.scaled_dot_product_attention behind the stand-in of "
                f"{original.__module__}",
                _SDPA,
                "undo that",
            )
        )
    return FunctionInterceptMode(original, partial(intercepted, _sdpa))


def _sdpa(session: Session, original: _Function, *inputs: Any, **named: Any) -> Tensor:
    with session.suspended() as logsumexps:
        output = original(*inputs, **named)
    context = session.context(output, logsumexps)
    capture = partial(capture_sdpa, *inputs, **named, context=context)
    session.observe(None, capture, output)
    # Nested tensors have no size along that axis.
    heads = output.shape[-3] if output.ndim > 3 and not output.is_nested else None
    return without_heads(output, session.removed(None, heads), -3)


def _compiled(session: Session, original: _Function, graph: Any, *inputs: Any, **named: Any) -> Any:
    """Run a compiled graph, which calls observable kernels, and generated ones that are not.

    Its source names the operators that it was generated from.
    """
    if session.watchers:
        source = graph.source_code or ""
        if "flex_attention" in source or ("scaled_dot_product" in source and "_softmax" in source):
            session.record_unseen(COMPILED)
        elif "_softmax" in source:
            session.record_softmax(2)
    return original(graph, *inputs, **named)


def _multi_head(session: Session, original: _Function, *inputs: Any, **named: Any) -> Any:
    given = by_name(*inputs, **named)
    with session.in_layer(partial(crosses, given)):
        if shows_itself(given):
            return original(**given)
        if removed := session.removed(None, given["num_heads"]):
            given = projecting_without(removed, given)
        with session.suspended():
            output = original(**given)
        context = CallContext(session.masks, session.crosses)
        session.observe(None, partial(capture_multi_head, given, context), output[0])
        return output


def _attention(
    session: Session,
    original: Callable[..., Tensor],
    rule: Attention,
    *inputs: Tensor,
    **options: Any,
) -> Tensor:
    with session.suspended():
        output = original(rule, *inputs, **options)
    capture = partial(_capture, session.crosses, rule, *inputs, **options)
    session.observe(None, capture, output)
    heads = output.shape[-3] if output.ndim > 3 else None
    return without_heads(output, session.removed(None, heads), -3)


def _layer(
    session: Session,
    original: Callable[..., Tensor],
    layer: MultiHeadAttention,
    /,
    query: Tensor,
    key: Tensor | None = None,
    *inputs: Tensor,
    **options: Any,
) -> Tensor:
    with session.in_layer(lambda: key is not None and key is not query):
        return original(layer, query, key, *inputs, **options)


def _capture(
    crosses: Callable[[], bool], rule: Attention, *inputs: Tensor, **options: Any
) -> CapturedCall:
    problem = replace(rule.problem(*inputs, **options).detached(), dropout=0.0)
    queries, keys = problem.scores_shape[-2:]
    mask = problem.mask is not None and problem.mask.compares_positions
    compares = mask or any(isinstance(bias, Bias) for bias in problem.biases)
    return CapturedCall(problem, crossing=(queries != keys or crosses()) and not compares)
