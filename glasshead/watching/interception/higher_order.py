"""Higher-order operators, such as `torch.cond`, whose functions run operators of their own."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor
from torch.fx import GraphModule

from glasshead.private_names import lacking, private
from glasshead.watching.captured_call import CapturedCall
from glasshead.watching.interception.explicit_capture import capture_scores
from glasshead.watching.interception.explicit_trace import trace_of_scores
from glasshead.watching.interception.interfaces import CallContext
from glasshead.watching.interception.session import Session

# Higher-order operators that run their functions unchanged, any number of times.
_RUNNING = {
    "cond",
    "hints_wrapper",
    "invoke_subgraph",
    "local_map_hop",
    "map_impl",
    "scan",
    "strict_mode",
    "while_loop",
    "while_loop_stack_output",
}
# The place of the scale among its arguments after query, key and value.
_FLEX_SCALE = 2
_FLEX_SCORES = "torch._higher_order_ops.flex_attention._math_attention_inner"
_MODE_KEYS = "torch._C._TorchDispatchModeKey.__members__"
_MODE_OF_KEY = "torch._C._get_dispatch_mode"


def run_higher_order(
    session: Session,
    mode: AbstractContextManager[Any],
    func: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    """Run a higher-order operator, and intercept the operators that its functions run.

    Args:
        session: The session of this thread.
        mode: The intercepting mode, which PyTorch leaves while an operator runs.
        func, args, kwargs: The operator and its arguments.
    """
    if func.name() == "flex_attention":
        output = func(*args, **kwargs)
        if session.enabled and private(_FLEX_SCORES) is None:
            session.record_unobserved(
                lacking(
                    "watch cannot see eager FlexAttention",
                    _FLEX_SCORES,
                    "Call F.scaled_dot_product_attention in {module}, or exclude it with layers=",
                )
            )
        elif session.enabled:
            capture = partial(capture_flex, session.context(output[0]), *args, **kwargs)
            session.observe(None, capture, output[0])
        return output
    if func.name() in _RUNNING:
        missing = next((name for name in (_MODE_KEYS, _MODE_OF_KEY) if private(name) is None), None)
        if missing is not None:
            session.record_unobserved(
                lacking(
                    "watch cannot see attention within torch.cond and other higher-order operators",
                    missing,
                    "Call none in {module}, or exclude it with layers=",
                )
            )
        elif not _traced():
            args = [_within(mode, one) for one in args]
            kwargs = {name: _within(mode, one) for name, one in kwargs.items()}
    return func(*args, **kwargs)


def capture_flex(
    context: CallContext,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *others: Any,
    **named: Any,
) -> CapturedCall:
    """Capture a call of eager FlexAttention, with its scores after `score_mod` and mask."""
    groups = query.shape[1] // key.shape[1]
    vectors = [query.detach(), *(x.detach().expand(len(query), -1, -1, -1) for x in (key, value))]
    query, key, value = vectors[0], *(x.repeat_interleave(groups, 1) for x in vectors[1:])
    _, scores = private(_FLEX_SCORES)(query, key, value, *others, **named)
    captured = capture_scores(scores, context, value=value)
    scale = named.get("scale", others[_FLEX_SCALE] if len(others) > _FLEX_SCALE else None)
    if not isinstance(scale, float):
        return captured
    trace = partial(trace_of_scores, *vectors, scores.detach(), beta=scale, product=scores.dtype)
    return replace(captured, trace=trace)


def _traced() -> bool:
    """Return whether operators are being traced, so that functions do not run."""
    keys = private(_MODE_KEYS).values()
    return any(private(_MODE_OF_KEY)(key) is not None for key in keys)


def _within(mode: AbstractContextManager[Any], one: Any) -> Any:
    """Wrap a function so that it runs within the mode; return anything else unchanged."""
    if isinstance(one, Tensor) or not callable(one):
        return one

    def run(*inputs: Any, **named: Any) -> Any:
        with mode:
            return called(*inputs, **named)

    if not isinstance(one, GraphModule):
        called: Callable[..., Any] = one
        run.__dict__.update(vars(one) if hasattr(one, "_boxed_call") else {})
        return run
    # Operators check the type, so make a shallow copy of the graph module.
    called = one.forward
    wrapped = object.__new__(type(one))
    wrapped.__dict__ = one.__dict__ | {"forward": run}
    return wrapped
