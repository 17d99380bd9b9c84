"""The `Attention` module: a recipe, and the methods that compute, trace and observe it."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glasshead.attention.choice import EngineChoice, choose, engine_name
from glasshead.attention.observe import Observation
from glasshead.attention.plan import Plan, planned
from glasshead.attention.weights import Weights
from glasshead.engines import FUSED, REFERENCE, STREAMING, Engine
from glasshead.engines.direct import ORDINARY, Direct
from glasshead.engines.streaming.engine import is_differentiated_otherwise
from glasshead.engines.streaming.operands import result_bytes
from glasshead.recipe.biases import ALiBi, Bias, as_bias
from glasshead.recipe.masks import Mask, as_mask, combined
from glasshead.recipe.masks.base import AllOf
from glasshead.recipe.masks.kinds import Band, LengthMask
from glasshead.recipe.normalizers import Normalizer, Softmax, SoftmaxOne
from glasshead.recipe.problem import STEPS, Problem, Trace
from glasshead.recipe.scores import ScaledDot, Score
from glasshead.recipe.validation import (
    cast_inputs,
    check_inputs,
    is_transformed,
    offset_of,
    probability,
    register_value,
    softcap_of,
    whole_number,
)
from glasshead.statistics import Statistic
from glasshead.statistics.base import normalize_statistics
from glasshead.statistics.reductions import StatisticRequest

Statistics = Sequence[Statistic] | Mapping[str, Statistic]


class Attention(nn.Module):
    """Attention: context_i = Σ_j p_ij v_j, p_i = normalizer(softcap(β · score(q_i, k_j)) + b_ij).

    `Attention()` alone is softmax(q·k/√d)·v. The object holds the settings of the model (causal,
    window, ALiBi); a call adds the masks of its data (padding, documents). Masks
    are and-ed, biases added.

    Inputs are `[..., heads, length, head_dim]`; `[batch, length, dim]` and `[length, dim]` have no
    heads. Query head i reads key and value head i // (query heads / key heads).

    Args:
        score: The score function of a query and a key; `ScaledDot()` if not given.
        softcap: Scores become softcap · tanh(score / softcap); above 1e30 they stay as they are.
        bias: A tensor `[..., heads, queries, keys]`, or a `Bias`, added to the scores.
        mask: Which pairs may see each other; True = may attend in a boolean tensor.
        normalizer: Turns scores into weights; `Softmax()` if not given.
        dropout: The probability that a weight is dropped, in training only.
        engine: "auto" picks the fastest that is exact for these settings; or "fused", "streaming",
            "reference".

    Source: Vaswani et al. 2017, section 3.2.1. The paper's Q, K, V and QKᵀ/√d_k are `queries`,
    `keys`, `values` and `scaled` of a `Trace`. Softcap: Gemma Team 2024 (Gemma 2), section 2.

    >>> import torch
    >>> import glasshead as gh
    >>> _ = torch.manual_seed(0)
    >>> query, key, value = torch.rand(2, 3, 5, 7), torch.rand(2, 3, 11, 7), torch.rand(2, 3, 11, 7)
    >>> attention = gh.Attention(mask=gh.causal())
    >>> attention(query, key, value, mask=gh.padding([11, 8])).shape
    torch.Size([2, 3, 5, 7])
    """

    bias: Bias | Tensor | None

    def __init__(
        self,
        *,
        score: Score | None = None,
        softcap: float | None = None,
        bias: Bias | Float[Tensor, "..."] | None = None,
        mask: Mask | Tensor | None = None,
        normalizer: Normalizer | None = None,
        dropout: float = 0.0,
        engine: str = "auto",
    ) -> None:
        super().__init__()
        self.score = _part(score, "score", Score, ScaledDot)
        self.softcap = softcap_of(softcap)
        register_value(self, "bias", as_bias(bias))
        self.mask = as_mask(mask)
        self.normalizer = _part(normalizer, "normalizer", Normalizer, Softmax)
        self.dropout = probability(dropout, "dropout")
        self.engine = engine_name(engine)

    def forward(
        self,
        query: Float[Tensor, "... queries dim"],
        key: Float[Tensor, "... keys dim"],
        value: Float[Tensor, "... keys value_dim"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        offset: int | Tensor | None = None,
    ) -> Float[Tensor, "... queries value_dim"]:
        """Compute the context of each query, on the fastest engine that is exact.

        Args:
            query, key, value: The inputs, of one floating dtype.
            mask: Of this call, and-ed with the object's own.
            bias: Of this call, added to the object's own; -inf hides.
            offset: The position of query 0 among the keys, a number or one per batch row,
                `[*batch]`; keys - queries if not given. Masks and biases read it.

        Errors: a TypeError or ValueError if the inputs do not fit each other or the attention
        settings, or if the engine that was named does not support it.
        """
        # While torch.compile traces, what is remembered is not to be part of the graph.
        plain = bias is None and not torch.compiler.is_compiling() and type(self) is Attention
        signature = _signature_of(vars(self), query, key, value, mask, offset) if plain else None
        direct = None if signature is None else _REMEMBERED.get(signature)
        if direct is not None:
            if signature is not None and type(signature[-1]) is tuple:
                context = direct(query, key, value, mask, self.normalizer.sink)
            else:
                context = direct(query, key, value, mask)
            if context is not None:
                return context
        problem = self.problem(query, key, value, mask, bias, offset)
        choice = choose(problem, self.engine)
        if signature is not None and direct is None:
            _remember(signature, problem, choice.engine)
        return problem.as_given(choice.engine.run(problem))

    def trace(
        self,
        query: Float[Tensor, "... queries dim"],
        key: Float[Tensor, "... keys dim"],
        value: Float[Tensor, "... keys value_dim"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        offset: int | Tensor | None = None,
        budget: int = 2**31,
    ) -> Trace:
        """Compute every step of the attention, named and in order, with the reference engine.

        Args:
            query, key, value, mask, bias, offset: As for a call.
            budget: The bytes that the trace may take, all steps together.

        Errors: as for a call, and a ValueError if the trace would not fit the budget.
        """
        problem = self.problem(query, key, value, mask, bias, offset)
        needed = REFERENCE.cost(problem).bytes
        if needed > whole_number(budget, "budget"):
            raise ValueError(
                f"trace needs {needed} bytes for scores of shape {list(problem.scores_shape)}, "
                f"more than budget={budget}. Raise budget=, or trace fewer queries."
            )
        trace = REFERENCE.trace(problem)
        steps = {name: problem.as_given(step) for name, step in trace.steps()}
        return Trace(*(steps[name] for name in STEPS), problem=problem)

    def observe(
        self,
        query: Float[Tensor, "... queries dim"],
        key: Float[Tensor, "... keys dim"],
        value: Float[Tensor, "... keys value_dim"],
        statistics: Statistics,
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        offset: int | Tensor | None = None,
        gradient: bool = False,
        budget: int = 2**31,
    ) -> Observation:
        """Compute the context of a call, bit for bit, and exact statistics of the weights.

        No engine but the reference keeps the matrix; the others take O(queries + keys) memory.
        Statistics are of the weights before dropout, in float32 at least.

        Args:
            query, key, value, mask, bias, offset: As for a call.
            statistics: A list, or a dict that names each.
            gradient: Whether the statistics have a gradient, too; the context has it always.
            budget: The bytes that may be taken beyond the inputs.

        Errors: as for a call; a TypeError or ValueError if a statistic does not fit, is listed
        twice or has no gradient that could be kept, and if the budget does not suffice.
        """
        problem = self.problem(query, key, value, mask, bias, offset)
        named = normalize_statistics(statistics)
        request = StatisticRequest(problem, named, gradient=gradient)
        request.check()
        if query.device.type == "meta":
            raise ValueError(
                "observe needs tensors with numbers, got some on the meta device. Call plan() "
                "instead."
            )
        choice = choose(problem, self.engine)
        if not torch.compiler.is_compiling():
            _check_budget(problem, choice, request, whole_number(budget, "budget"))
        context, reduced = choice.engine.observe(problem, request.reductions, gradient=gradient)
        return Observation(problem.as_given(context), named, request.finished(reduced))

    def weights(
        self,
        query: Float[Tensor, "... queries dim"],
        key: Float[Tensor, "... keys dim"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        offset: int | Tensor | None = None,
    ) -> Weights:
        """Return the attention weights before dropout as a lazy matrix, computed when indexed.

        It holds copies of queries and keys, three numbers a row, and the attention settings, whose
        parameters must not change meanwhile. It has no gradient.

        Errors: as for a call, and a ValueError for a normalizer that has no logsumexp.
        """
        problem = self.problem(query, key, key, mask, bias, offset)
        if not problem.normalizer.exponential:
            raise ValueError(
                "weights needs the normalizer Softmax() or SoftmaxOne(), got "
                f"{type(problem.normalizer).__name__}. Use trace(…).weights, the whole matrix."
            )
        with torch.no_grad():
            return Weights(problem.detached())

    def plan(
        self,
        query: Float[Tensor, "... queries dim"],
        key: Float[Tensor, "... keys dim"],
        value: Float[Tensor, "... keys value_dim"],
        *,
        statistics: Statistics | None = None,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        offset: int | Tensor | None = None,
    ) -> Plan:
        """Return which engine a call would run, why, and at what cost; nothing is computed.

        The inputs' numbers are not read, so that tensors on the meta device will do.

        Args:
            query, key, value, mask, bias, offset: As for a call.
            statistics: As for `observe`, which is planned then.

        Errors: as for a call, or for `observe`.
        """
        problem = self.problem(query, key, value, mask, bias, offset)
        reductions = None
        if statistics is not None:
            request = StatisticRequest(problem, normalize_statistics(statistics))
            request.check()
            reductions = request.reductions
        return planned(problem, choose(problem, self.engine), reductions)

    def problem(
        self,
        query: Float[Tensor, "... queries dim"],
        key: Float[Tensor, "... keys dim"],
        value: Float[Tensor, "... keys value_dim"],
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        offset: int | Tensor | None = None,
    ) -> Problem:
        """Check the inputs of a call, and bundle them with the attention settings for an engine.

        Args:
            query, key, value, mask, bias, offset: As for a call.

        Errors: as for a call.
        """
        query, key, value = cast_inputs(query, key, value)
        check_inputs(query, key, value)
        # Checked again, as the attributes may have been reassigned.
        masks = [as_mask(part) for part in (self.mask, mask) if part is not None]
        biases: list[Any] = [as_bias(part) for part in (self.bias, bias) if part is not None]
        axes = query.ndim
        if axes < 4:
            query, key, value = (x.unsqueeze(-3) for x in (query, key, value))
        problem = Problem(
            query=query,
            key=key,
            value=value,
            score=self.score,
            softcap=self.softcap,
            biases=tuple(biases),
            mask=masks[0] if len(masks) == 1 else combined(masks),
            normalizer=self.normalizer,
            dropout=self.dropout if self.training else 0.0,
            offset=(
                key.shape[-2] - query.shape[-2] if offset is None else offset_of(offset, "offset")
            ),
            axes=axes,
        )
        problem.check()
        return problem

    def extra_repr(self) -> str:
        bias = None if isinstance(self.bias, Bias) or self.bias is None else list(self.bias.shape)
        choices = {"softcap": self.softcap, "bias": bias, "mask": self.mask}
        shown = [f"{name}={choice}" for name, choice in choices.items() if choice is not None]
        if self.dropout:
            shown.append(f"dropout={self.dropout:g}")
        return ", ".join([*shown, f"engine={self.engine!r}"])


def _check_budget(
    problem: Problem, choice: EngineChoice, request: StatisticRequest, budget: int
) -> None:
    """Raise a ValueError if observing would take more than `budget` bytes."""
    engine, reductions = choice.engine, request.reductions
    cost = engine.cost(problem)
    needed = cost.bytes + engine.price(problem, cost, reductions).bytes
    needed += result_bytes(problem, reductions)
    if needed > budget:
        raise ValueError(
            f"observe needs {needed} bytes on the {engine.name} engine, more than "
            f"budget={budget}. Raise budget=, or observe fewer queries."
        )


def _part(given: Any, name: str, kind: type, default: type) -> Any:
    if given is None:
        return default()
    if not isinstance(given, kind):
        hint = f"{default.__name__}()" if not isinstance(given, type) else f"{given.__name__}()"
        raise TypeError(f"{name} must be a {kind.__name__} such as {hint}, got {given!r}.")
    return given


# The checks of a call, its engine and the simplest form of its mask follow from its signature: the
# shapes, dtype and device of the inputs, and the settings of the attention. On a few tokens they
# take more time than the kernel itself, so that what was decided is remembered, for all attentions.
# As a signature holds every setting, nothing that is remembered can be out of date.
Signature = tuple[object, ...]
_REMEMBERED: dict[Signature, Direct] = {}
# Beyond this many, all are forgotten.
_MOST = 1024
# Kinds of masks that may be `of_positions`.
_MASKS = (Band, AllOf)
_STRIDED, _is_tracing = torch.strided, torch.jit.is_tracing  # type: ignore[reportPrivateImportUsage]


def _signature_of(  # noqa: PLR0911 - a doubt each
    settings: dict[str, Any], query: Any, key: Any, value: Any, mask: Any, offset: Any
) -> Signature | None:
    """Return all that decides how a call is computed; None if that is not plain to see.

    Args:
        settings: The attributes of the attention, as `vars` gives them.
        query, key, value, mask, offset: Of the call, which has no bias of its own. The lengths of a
            mask are read in each call.
    """
    if mask is not None and (type(mask) is not LengthMask or type(mask.lengths) is not Tensor):
        return None
    if type(query) not in ORDINARY or type(key) not in ORDINARY or type(value) not in ORDINARY:
        return None
    # Another layout, or a nested tensor, which has no shape.
    if query.layout is not _STRIDED or key.layout is not _STRIDED or value.layout is not _STRIDED:
        return None
    if query.is_nested or key.is_nested or value.is_nested:
        return None
    kind = "cpu" if query.is_cpu else "cuda" if query.is_cuda else None
    if kind is None or torch.is_autocast_enabled(kind) or _is_tracing() or is_transformed():
        return None
    try:
        modules, own = settings["_modules"], settings["mask"]
        score, normalizer, engine = modules["score"], modules["normalizer"], settings["engine"]
        bias = settings["bias"] if "bias" in settings else modules["bias"]
        softcap = settings["softcap"]
        drops = settings["training"] and settings["dropout"]
        beta = score.__dict__["beta"]
    except (AttributeError, KeyError):
        # One that is a parameter or a buffer is kept elsewhere.
        return None
    if (
        (bias is not None and type(bias) is not ALiBi)
        or (beta is not None and type(beta) is not float)
        or (own is not None and type(own) not in _MASKS)
        or (offset is not None and type(offset) is not int)
        or type(engine) is not str
        or (softcap is not None and type(softcap) is not float)
        or drops
    ):
        return None
    sink = _kind_of_sink(normalizer)
    if sink is None:
        return None
    lengths = None if mask is None else (mask.lengths.shape, mask.lengths.device)
    return (
        *(query.shape, key.shape, value.shape),
        *(query.dtype, key.dtype, value.dtype),
        *(query.device, key.device, value.device),
        *(type(score), beta, softcap, own and (own.of_positions or own), lengths, offset, engine),
        *(None if bias is None else bias.heads, sink),
    )


def _kind_of_sink(normalizer: Any) -> str | float | tuple[object, ...] | None:
    """Return "" for no sink, a number, or of a tensor, which each call reads, what it is like.

    None for another normalizer.
    """
    if type(normalizer) is Softmax:
        return ""
    if type(normalizer) is not SoftmaxOne:
        return None
    sink = normalizer.sink
    if not isinstance(sink, Tensor):
        return sink
    return (sink.shape, sink.dtype, sink.device) if type(sink) in ORDINARY else None


def _remember(signature: Signature, problem: Problem, engine: Engine) -> None:
    """Remember how a call was computed, where a kernel alone computes it."""
    mask, direct = problem.mask, None
    fixed = mask is None or all(
        one.of_positions or type(one) is LengthMask for one in mask.conjuncts or (mask,)
    )
    if fixed and problem.axes == 4 and engine is FUSED:
        direct = FUSED.direct(problem)
    elif fixed and problem.axes == 4 and engine is STREAMING:
        direct = STREAMING.direct(problem)
    if direct is not None and not is_differentiated_otherwise(problem):
        if len(_REMEMBERED) >= _MOST:
            _REMEMBERED.clear()
        _REMEMBERED[signature] = direct
