"""Explain an attention in words: a trace, or a module that writes its attention by hand."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, cast

import torch
from torch import Tensor, nn

from glasshead.explanation import Explanation
from glasshead.explanation.embeddings import Projection
from glasshead.explanation.explain_trace import explain as explain_trace
from glasshead.explanation.explain_trace import module_notes
from glasshead.explanation.projected_input import ProjectedInput
from glasshead.explanation.settings import ExplanationSettings
from glasshead.ladder.worked_example import WorkedExample
from glasshead.layers.torch_weights import named_weights
from glasshead.recipe.problem import Trace
from glasshead.recipe.validation import UnfitError
from glasshead.watching.errors import BudgetError
from glasshead.watching.layer_record import Call
from glasshead.watching.module_calls import module_of
from glasshead.watching.seen import Seen
from glasshead.watching.watch_and_intervene import watch


def explain(  # noqa: PLR0913 - each is an option of its own
    explained: Trace | nn.Module,
    *inputs: Any,
    tokens: Sequence[str] | None = None,
    query: str | int | None = None,
    lang: str = "en",
    keys: Sequence[str] | None = None,
    index: tuple[int, ...] | None = None,
    layers: str | None = None,
    projection: Projection | None = None,
    printed: WorkedExample | None = None,
    columns: bool = False,
) -> Explanation:
    r"""Explain an attention in words: the formula of each step, its numbers, and the reason for it.

    It is given as a trace, or as a module and its inputs. The module computes explicit attention: a
    product, a softmax and a product; or calls `nn.MultiheadAttention`,
    `F.scaled_dot_product_attention` or eager `flex_attention`. It runs as it is, without gradients,
    and the steps have its own numbers. Matrices named as `W_query` make the projections a step.

    Args:
        explained: The result of `Attention().trace(query, key, value)`, of any layout; or a module.
        inputs: What the module is called with.
        tokens: The words of the queries, and in self-attention of the keys; else "1", "2", …
        query: The query to explain: a word (its first occurrence) or a position; else the last.
        lang: The language: en, tr, es, zh-Hant or zh-Hans, or a code such as "es_ES" or "zh-TW".
        keys: The words of the keys if they differ, as in cross-attention.
        index: The index of the leading axes, (batch…, head); zeros if not given.
        layers: The name of the module that attends, or a pattern of it, if several do.
        projection: The embeddings and the matrices that gave queries, keys and values of a trace;
            they are explained in a first step.
        printed: A worked example, whose printed numbers are compared with the exact ones.
        columns: Whether to show the result in columns too, H = XA, as some tutorials write it.

    Errors: a TypeError or a ValueError if an argument does not fit the trace or the module, if a
    module attends several times or drops weights, and, as an `UnseenError`, as of `watch`.

    >>> import torch
    >>> import glasshead as gh
    >>> x = torch.tensor([[0.34, 0.22, 0.54], [0.53, 0.34, 0.98], [0.29, 0.54, 0.93]])
    >>> trace = gh.Attention(score=gh.Dot()).trace(x, x, x)
    >>> explanation = gh.explain(trace, tokens=["Hello", "shiny", "sun"], query="shiny")
    >>> print("\n".join(explanation["context"].numbers[2:6]))
    c(shiny) = 0.2291·[0.34, 0.22, 0.54]
             + 0.4063·[0.53, 0.34, 0.98]
             + 0.3646·[0.29, 0.54, 0.93]
             = [0.3990, 0.3854, 0.8610]
    """
    settings = ExplanationSettings(query=query, lang=lang, columns=columns)
    words = {"tokens": tokens, "keys": keys, "index": index, "printed": printed}
    if not isinstance(explained, nn.Module):
        if inputs or layers is not None:
            raise TypeError(
                "explain needs a module with inputs and layers=, got them with a "
                f"{type(explained).__name__}. Omit them."
            )
        return explain_trace(explained, settings, projection=projection, **words)
    if projection is not None:
        raise TypeError("explain reads the projection of a module itself. Omit projection.")
    return _of_module(explained, inputs, layers, settings, words)


def _of_module(
    module: nn.Module,
    inputs: Sequence[Any],
    layers: str | None,
    settings: ExplanationSettings,
    words: Mapping[str, Any],
) -> Explanation:
    """Run a module, and explain the one attention that it computed."""
    kind = type(module).__name__
    if not inputs:
        raise TypeError(
            "explain needs a Trace, as Attention().trace(query, key, value) returns, or a module "
            f"and its inputs, got {kind} alone."
        )
    given: dict[str, tuple[Any, ...]] = {}
    name, call, output = _run(module, inputs, layers, given)
    part, trace = module_of(module, name), cast("Trace", call.trace)
    made = ProjectedInput.of(part, given.get(name, ()), trace, words["index"])
    explanation = None
    if made.projection is not None:
        # It is not that of the trace where queries are rotated before the product.
        with suppress(ValueError):
            explanation = explain_trace(made.trace, settings, projection=made.projection, **words)
    if explanation is None:
        explanation = explain_trace(made.trace, settings, **words)
    ends = _is_context(output, made.trace)
    for note in module_notes(
        settings,
        type(part).__name__,
        ends=ends,
        factors=made.factors,
        mixed=made.mixed,
    ):
        explanation = explanation.with_note(note)
    return explanation


def _run(
    module: nn.Module,
    inputs: Sequence[Any],
    layers: str | None,
    given: dict[str, tuple[Any, ...]],
) -> tuple[str, Call, Any]:
    """Run a module, and return the name and call of its one attention, and its output.

    Args:
        module, inputs, layers: As of `explain`.
        given: Filled with what its modules are called with, by name.

    Errors: a ValueError if its attention does not follow from queries, keys and values.
    """
    kind = type(module).__name__
    try:
        seen, output = _watched(module, inputs, layers, given)
    except BudgetError:
        raise
    except UnfitError as error:
        if module.training and _follows_in_evaluation(module, inputs, layers):
            raise ValueError(_DROPS.format(kind=repr(kind))) from error
        raise ValueError(
            "explain needs attention that follows from its queries, keys and values, but "
            f"{kind!r} computes it otherwise. Pass the trace of gh.Attention().trace(query, key, "
            "value)."
        ) from error
    return *_one_call(seen, kind), output


def _watched(
    module: nn.Module,
    inputs: Sequence[Any],
    layers: str | None,
    given: dict[str, tuple[Any, ...]],
) -> tuple[Seen, Any]:
    with ExitStack() as stack:
        for name, part in module.named_modules():
            # Others are called in too many ways.
            if isinstance(part, nn.MultiheadAttention) or named_weights(part) is not None:
                handle = part.register_forward_pre_hook(_keep(given, name), with_kwargs=True)
                stack.callback(handle.remove)
        stack.enter_context(warnings.catch_warnings())
        # The step of the mask says so.
        warnings.filterwarnings("ignore", message=".* looks inverted")
        with torch.no_grad(), watch(module, layers=layers, keep="trace") as seen:
            output = module(*inputs)
    return seen, output


def _follows_in_evaluation(module: nn.Module, inputs: Sequence[Any], layers: str | None) -> bool:
    """Return whether the attention of a module can be explained in evaluation mode."""
    modes = {part: part.training for part in module.modules()}
    try:
        module.eval()
        _watched(module, inputs, layers, {})
    except (RuntimeError, ValueError):
        return False
    finally:
        for part, mode in modes.items():
            part.training = mode
    return True


_DROPS = (
    "explain needs numbers that are the same in each run, but {kind} drops weights at random. "
    "Call .eval() on the module first."
)


def _keep(given: dict[str, tuple[Any, ...]], name: str) -> Any:
    """Return a hook that keeps what a module is called with."""

    def hook(_module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        given[name] = (*inputs, *named.values())

    return hook


def _one_call(seen: Seen, kind: str) -> tuple[str, Call]:
    """Return the name and the call of the one attention that was seen.

    Errors: a ValueError if there are several, and if its weights were changed on their way.
    """
    if len(seen) > 1:
        named = ", ".join(map(repr, seen))
        raise ValueError(
            f"explain needs one attention, but {kind} has {len(seen)}. Name one of {named} with "
            f"layers=."
        )
    ((name, watched),) = seen.items()
    if len(watched) > 1:
        raise ValueError(
            f"explain needs one call of an attention, but {name or kind!r} attends {len(watched)} "
            f"times. Watch it with keep='trace', and explain the trace of one call."
        )
    call = watched[0]
    steps = (call.by_hand or "").split(", ")
    after = steps[steps.index("softmax") + 1 : -1] if "softmax" in steps else []
    if "a dropout" in after:
        raise ValueError(_DROPS.format(kind=repr(name or kind)))
    if after:
        raise ValueError(
            f"explain needs attention whose weights go unchanged from the softmax to the values, "
            f"but {name or kind!r} has {', '.join(after)} in between. Omit that from the class."
        )
    return name, call


def _is_context(output: Any, trace: Trace) -> bool:
    """Return whether the output of a module is the context of its heads, in rows or columns."""
    output = output[0] if isinstance(output, tuple) and output else output
    if not isinstance(output, Tensor) or output.numel() != trace.context.numel():
        return False
    context = trace.context
    joined = context.transpose(-3, -2).flatten(-2) if context.ndim > 3 else context
    ways = [joined.reshape(output.shape)]
    if output.ndim > 1 and joined.ndim > 1 and joined.mT.shape == output.shape:
        ways.append(joined.mT)
    # NaN is close to nothing, so that it is compared by its places.
    undefined = output.isnan()
    return any(
        bool((way.isnan() == undefined).all())
        and torch.allclose(way.to(output)[~undefined], output[~undefined], rtol=1e-4, atol=1e-6)
        for way in ways
    )
