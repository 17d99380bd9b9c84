"""Observing: the attention of a subject, its statistics, and how they were had."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

import glasshead as gh
from glasshead.attention import Observation, Plan
from glasshead.cli.explaining.masks import build_mask
from glasshead.cli.observing.options import check_place
from glasshead.cli.observing.pooled import MAP, pooled_map
from glasshead.cli.observing.request import ObserveRequest
from glasshead.cli.observing.statistics import Asked, default_statistics
from glasshead.cli.observing.subject import Subject

if TYPE_CHECKING:
    from glasshead import Mask

_MOST_BYTES = 2**32


@dataclass(frozen=True, eq=False)
class Observed:
    """What was seen, and how.

    Attributes:
        subject: Whose attention it is.
        asked: The statistics; the map is one more.
        mask: Which pairs see each other; None: all.
        seen: Their values.
        plan: Which engine it was, and at what price.
        seconds: How long it took.
    """

    subject: Subject
    asked: tuple[Asked, ...]
    mask: "Mask | None"
    seen: Observation
    plan: Plan
    seconds: float

    def of_heads(self, value: Float[Tensor, "batch heads *rest"], head: int | None) -> Tensor:
        """A value of one head, or its mean over all, over the batch in any case."""
        return (value if head is None else value[:, head : head + 1]).double().mean((0, 1))


def observed(subject: Subject, request: ObserveRequest) -> Observed:
    """The statistics of a subject's attention.

    Errors: a ValueError where the head is not there, a statistic does not fit, the engine does not
    serve or would take more than 4 GiB, or numbers overflow.
    """
    check_place("head", request.head, subject.heads)
    queries, keys = subject.query.shape[-2], subject.key.shape[-2]
    asked = request.statistics() or default_statistics(keys)
    statistics = {one.name: one.build() for one in asked}
    statistics[MAP] = pooled_map(queries, keys)
    mask = build_mask(request.bands())
    attention = gh.Attention(mask=mask, engine=request.engine).eval()
    inputs = subject.query, subject.key, subject.value
    plan = attention.plan(*inputs, statistics=statistics)
    if plan.bytes > _MOST_BYTES:
        raise ValueError(
            f"the {plan.engine} engine would take {plan.bytes / 2**30:.1f} GiB for this, and may "
            f"take {_MOST_BYTES // 2**30}: leave --engine out, or give fewer tokens."
        )
    start = time.perf_counter()
    with torch.no_grad():
        seen = attention.observe(*inputs, statistics, budget=_MOST_BYTES)
    seconds = time.perf_counter() - start
    if not (seen.context.isfinite().all() and seen[MAP].isfinite().all()):
        raise ValueError("the scores grow beyond all numbers: give smaller vectors.")
    return Observed(subject, asked, mask, seen, plan, seconds)
