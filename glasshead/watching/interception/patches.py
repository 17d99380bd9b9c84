"""Patches of the attention functions of PyTorch and of this library."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.attention import Attention
from glasshead.attention.followed_classes import LAYERS, VOTING
from glasshead.private_names import lacking, private
from glasshead.recipe.biases import Bias
from glasshead.recipe.masks import as_mask, combined, dense
from glasshead.recipe.scores import Dot, ScaledDot
from glasshead.watching.captured_call import CapturedCall
from glasshead.watching.errors import COMPILED, IN_COMPILED_CODE, UnseenError
from glasshead.watching.foreign import attribute
from glasshead.watching.interception.explicit_changes import InterveneMode
from glasshead.watching.interception.faster_kernel import run_sdpa
from glasshead.watching.interception.opening import PATCHES
from glasshead.watching.interception.session import Patch, Session, intercepted
from glasshead.watching.interception.sharded_attention import is_sharded, run_sharded
from glasshead.watching.interception.torch_attention import (
    capture_change,
    capture_sdpa,
    changed_sdpa,
    with_output,
)
from glasshead.watching.interception.torch_layers import (
    by_name,
    capture_changed_multi_head,
    capture_multi_head,
    changed_multi_head,
    crosses,
    shows_itself,
)
from glasshead.watching.intervener import AttentionChange
from glasshead.watching.sharding import has_ranks

_Function = Callable[..., Any]
_SDPA = "torch._C._nn.scaled_dot_product_attention"
# What `torch.jit.script` calls, by whatever name it was imported.
_SCRIPT = "torch.jit._script._script_impl"
_COMPILED_GRAPH = "torch._inductor.output_code.CompiledFxGraph"


def functions() -> list[Patch]:
    """Return the patches of PyTorch's functions, and of our own attention and layers.

    Intercepting kernels would suffice, except where PyTorch falls back to matrix products and a
    softmax: with dropout, three axes, or unequal widths.
    """
    replaced = [
        Patch(F, "scaled_dot_product_attention", _sdpa, kernels=True, run=run_sdpa),
        Patch(F, "multi_head_attention_forward", _multi_head),
        Patch(Attention, "forward", _attention),
        *(Patch(layer, "forward", _layer) for layer in LAYERS),
        *(Patch(cache, "_vote", _vote) for cache in VOTING),
    ]
    # Without Dynamo nothing is compiled, and importing the compiler takes seconds.
    graph = private(_COMPILED_GRAPH) if "torch._dynamo" in sys.modules else None
    if graph is not None:
        replaced.append(Patch(graph, "__call__", _compiled))
    return replaced


def scripting() -> list[Patch]:
    """Return the patch by which TorchScript compiles the functions of PyTorch, and not ours."""
    if private(_SCRIPT) is None:
        return [_Scripting(torch.jit, "script", _sdpa)]
    home, _, name = _SCRIPT.rpartition(".")
    return [_Scripting(private(home), name, _sdpa)]


class _Scripting(Patch):
    """A patch of the compiler of TorchScript, which reads the source of what a model calls."""

    def standing(self, original: _Function) -> _Function:
        def standing(*inputs: Any, **named: Any) -> Any:
            with PATCHES.originals():
                return original(*inputs, **named)

        return standing


def check_compiled_code_is_seen() -> None:
    """Check that no compiled code can have run that PyTorch does not show.

    Errors: an `UnseenError` if the compiler is loaded, and its graphs cannot be intercepted.
    """
    if "torch._inductor.compile_fx" in sys.modules and private(_COMPILED_GRAPH) is None:
        raise UnseenError(
            lacking(
                "watch cannot see whether compiled code attends",
                _COMPILED_GRAPH,
                "Watch in a process that compiles nothing",
            )
        )


def by_any_name() -> "InterveneMode":
    """Return a mode that intercepts `scaled_dot_product_attention` by any name.

    Errors: an `UnseenError` if only another library's stand-in for that function can be found.
    """
    # The original, whether patched or not.
    original = private(_SDPA) or inspect.unwrap(F.scaled_dot_product_attention)
    if not (original.__module__ or "torch").startswith("torch"):
        raise UnseenError(
            lacking(
                "intervene cannot find F.scaled_dot_product_attention behind the stand-in of "
                f"{original.__module__}",
                _SDPA,
                "Undo that",
            )
        )
    return InterveneMode(original, partial(intercepted, _sdpa_by_another_name))


def _sdpa_by_another_name(
    session: Session, original: _Function, *inputs: Any, **named: Any
) -> Tensor:
    session.check_not_again()
    return _sdpa(session, original, *inputs, **named)


def _sdpa(session: Session, original: _Function, *inputs: Any, **named: Any) -> Tensor:
    if has_ranks() and is_sharded(original, inputs[0] if inputs else named["query"]):
        return run_sharded(session, original, *inputs, **named)
    if session.changes:
        before = partial(capture_sdpa, *inputs, **named, context=session.context(None))
        change = session.change(None, _heads(*inputs, **named), before)
        if change is not None:
            return _changed_sdpa(session, original, change, *inputs, **named)
    with session.suspended() as logsumexps:
        output = original(*inputs, **named)
    context = session.context(output, logsumexps)
    capture = partial(capture_sdpa, *inputs, **named, context=context)
    session.observe(None, capture, output)
    return output


def _compiled(session: Session, original: _Function, graph: Any, *inputs: Any, **named: Any) -> Any:
    """Run a compiled graph, which calls observable kernels, and generated ones that are not.

    Its source names the operators that it was generated from.
    """
    if session.watchers:
        source = attribute(graph, "source_code") or ""
        if "flex_attention" in source or ("scaled_dot_product" in source and "_softmax" in source):
            session.record_unobserved(COMPILED)
        elif "_softmax" in source:
            session.record_softmax(2, IN_COMPILED_CODE)
    return original(graph, *inputs, **named)


def _multi_head(session: Session, original: _Function, *inputs: Any, **named: Any) -> Any:
    given = by_name(*inputs, **named)
    shows = shows_itself(given)
    with session.in_layer(partial(crosses, given)):
        if shows:
            return original(**given)
        before = partial(capture_multi_head, given, session.context(None), original)
        change = session.change(None, given["num_heads"], before)
        with session.suspended():
            if change is None:
                output = original(**given)
                known = session.context(output[0])
                capture = partial(capture_multi_head, given, known, original)
            else:
                output, made = changed_multi_head(original, given, change)
                capture = partial(capture_changed_multi_head, change, given, made)
        session.observe(None, capture, output[0])
        return output


def _changed_sdpa(
    session: Session, original: _Function, change: AttentionChange, *inputs: Any, **named: Any
) -> Tensor:
    with session.suspended() as logsumexps:
        given = changed_sdpa(change, *inputs, **named)
        output = change.emptied(original(**given))
    capture = partial(capture_change, change, output, logsumexps, drops=bool(given["dropout_p"]))
    session.observe(None, capture, output)
    return change.context(output)


def _heads(query: Tensor, *inputs: Any, **named: Any) -> int | None:
    """Return the number of heads of a call of attention; None if it has no axis of heads."""
    named = dict(zip(("key", "value"), inputs, strict=False)) | named
    given = [query, named["key"], named["value"]]
    # Nested tensors have no size along that axis.
    if query.is_nested or max(x.ndim for x in given) < 4 - bool(named.get("enable_gqa")):
        return None
    return max(x.shape[-3] for x in given if x.ndim > 2)


def _attention(
    session: Session,
    original: Callable[..., Tensor],
    rule: Attention,
    *inputs: Tensor,
    **options: Any,
) -> Tensor:
    before = partial(_capture, session.crosses, None, rule, *inputs, **options)
    heads = inputs[0].shape[-3] if inputs[0].ndim > 3 else None
    change = session.change(None, heads, before)
    with session.suspended():
        if change is not None:
            inputs, options = _changed(change, rule, inputs, options)
        output = original(rule, *inputs, **options)
        output = output if change is None else change.emptied(output)
    if change is None:
        capture = partial(_capture, session.crosses, output, rule, *inputs, **options)
    else:
        capture = partial(capture_change, change, output, drops=_drops(rule), follows=False)
    session.observe(None, capture, output)
    return output if change is None else change.context(output)


def _changed(
    change: AttentionChange, rule: Attention, inputs: tuple[Tensor, ...], options: dict[str, Any]
) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """Return the arguments of a call of our attention with interventions.

    Errors: a ValueError if β scales no product of the queries.
    """
    query, key, *others = inputs
    if change.scales:
        if type(rule.score) not in (Dot, ScaledDot):
            raise ValueError(
                "ScaleBeta needs attention whose score is a product of queries and keys, but "
                f"{change.name!r} has {type(rule.score).__name__}. Set the beta of that score."
            )
        query = change.query(query)
    key = change.key(key)
    if change.hides:
        visible = change.visible(key.shape[-2])
        visible = visible.squeeze(-3) if query.ndim < 4 else visible
        options = {**options, "mask": combined([as_mask(options.get("mask")), dense(visible)])}
    return (query, key, *others), options


def _layer(
    session: Session,
    original: Callable[..., Tensor],
    layer: nn.Module,
    /,
    query: Tensor,
    key: Tensor | None = None,
    *inputs: Tensor,
    **options: Any,
) -> Tensor:
    with session.in_layer(lambda: key is not None and key is not query):
        return original(layer, query, key, *inputs, **options)


def _vote(session: Session, original: _Function, cache: Any, /, *inputs: Any) -> None:
    # What a policy computes of the weights is no attention of the model.
    with session.undisturbed():
        original(cache, *inputs)


def _capture(
    crosses: Callable[[], bool],
    output: Tensor | None,
    rule: Attention,
    *inputs: Tensor,
    **options: Any,
) -> CapturedCall:
    problem = replace(rule.problem(*inputs, **options).detached(), dropout=0.0)
    queries, keys = problem.scores_shape[-2:]
    mask = problem.mask is not None and problem.mask.compares_positions
    compares = mask or any(isinstance(bias, Bias) for bias in problem.biases)
    captured = CapturedCall(problem, crossing=(queries != keys or crosses()) and not compares)
    return with_output(captured, output, drops=_drops(rule), follows=False)


def _drops(rule: Attention) -> bool:
    return bool(rule.training and rule.dropout)
