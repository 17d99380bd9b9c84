"""Direct calls: attention on inputs as they are, and keys that each batch row sees."""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glasshead.recipe.masks.kinds import LengthMask
from glasshead.recipe.problem import Problem
from glasshead.recipe.scores import Dot, ScaledDot
from glasshead.recipe.tile import Span
from glasshead.recipe.validation import is_traced, is_transformed

# Computes the context from query, key, value, the mask of the call, which is read where it is one
# of lengths, and its sink, if that is a tensor; None where its numbers take another way.
Direct = Callable[..., Tensor | None]
Attend = Callable[[Tensor, Tensor, Tensor], Tensor | None]
# Types of tensors that dispatch nothing.
ORDINARY = (Tensor, nn.Parameter)


def is_softmax_of_products(problem: Problem) -> bool:
    """Return whether what is weighed is q·kᵀ times a number, masked, and biases, if any."""
    query, key, value = problem.query, problem.key, problem.value
    return not (
        is_traced()
        or is_transformed()
        or type(problem.score) not in (Dot, ScaledDot)
        or isinstance(problem.scale, Tensor)
        or problem.dropout
        or query.ndim != 4
        or not all(type(x) in ORDINARY for x in (query, key, value))
    )


class ByLengths(NamedTuple):
    """Attention over the keys that a mask of lengths shows to each batch row.

    Attributes:
        attend: Computes the context where all is seen.
    """

    attend: Attend

    @classmethod
    def of(cls, mask: LengthMask, attend: Attend) -> "ByLengths | None":
        """Return it for calls with a mask such as this; None if it cannot be read each time."""
        lengths = mask.lengths
        readable = type(lengths) is Tensor and lengths.device.type == "cpu"
        return cls(attend) if readable else None

    def __call__(
        self,
        query: Float[Tensor, "batch heads queries dim"],
        key: Float[Tensor, "batch kv_heads keys dim"],
        value: Float[Tensor, "batch kv_heads keys dim"],
        mask: Any,
    ) -> Float[Tensor, "batch heads queries dim"] | None:
        """Compute the context; None if the lengths of the call's mask take a mask tensor."""
        spans = _spans_of_lengths(cast("LengthMask", mask), query, key)
        return None if spans is None else by_spans(self.attend, query, key, value, spans)


# With fewer scores a batch row, calls of their own cost more than what they skip.
_FEW_A_ROW = 2**15


def pays_by_row(query: Tensor, key: Tensor) -> bool:
    """Return whether batch rows have so many scores that calls of their own pay."""
    return query.shape[-3] * query.shape[-2] * key.shape[-2] >= _FEW_A_ROW


def _spans_of_lengths(mask: LengthMask, query: Tensor, key: Tensor) -> list[Span] | None:
    """Return the keys that each batch row sees, or one span for all rows.

    None if a row sees none, or rows that see others are small.
    """
    lengths, keys = mask.lengths.tolist(), key.shape[-2]
    stops = [min(stop, keys) for stop in (lengths if isinstance(lengths, list) else [lengths])]
    least = min(stops, default=0)
    if least < 1:
        return None
    if max(stops) == least:
        return [Span(0, least)]
    return [Span(0, stop) for stop in stops] if pays_by_row(query, key) else None


def by_spans(
    attend: Attend, query: Tensor, key: Tensor, value: Tensor, spans: list[Span]
) -> Float[Tensor, "batch heads queries value_dim"] | None:
    """Compute the context of each batch row over its own span of keys, or of all over one.

    None if one of them cannot be computed.
    """
    if len(spans) == 1:
        return attend(query, _cut(key, spans[0]), _cut(value, spans[0]))
    # Whose gradients are put together again once, not added row by row.
    rows = (x.split_with_sizes([1] * len(spans)) for x in (query, key, value))
    contexts = []
    for q, k, v, span in zip(*rows, spans, strict=True):
        context = attend(q, _cut(k, span), _cut(v, span))
        if context is None:
            return None
        contexts.append(context)
    return torch.cat(contexts)


def _cut(x: Float[Tensor, "*leading keys dim"], span: Span) -> Float[Tensor, "*leading span dim"]:
    """Return the keys of a span, and the tensor itself where these are all."""
    return x if span == (0, x.shape[-2]) else x[..., span.start : span.stop, :]
