"""Calls of SDPA that the streaming engine computes with their statistics, if a watch allows it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from glasshead.engines.direct import ORDINARY
from glasshead.recipe.problem import Problem
from glasshead.recipe.validation import cast_inputs
from glasshead.watching.interception.circumstances import (
    checkpointing,
    in_backward,
    others_open,
    traced,
)
from glasshead.watching.interception.session import THREADS, Session
from glasshead.watching.interception.torch_attention import capture_sdpa
from glasshead.watching.one_pass import in_one_pass
from glasshead.watching.watcher import Watcher


def run_sdpa(original: Callable[..., Tensor], *inputs: Any, **named: Any) -> Tensor:
    """Run `F.scaled_dot_product_attention`, or compute it with its statistics in one pass."""
    session = THREADS.session
    session.one_pass = made = None
    try:
        watcher = _allowing(session)
        if watcher is not None:
            made = _in_one_pass(session, watcher, *inputs, **named)
    except Exception:  # noqa: BLE001 - the model runs on, and what is wrong is found once more
        made = None
    return original(*inputs, **named) if made is None else made


def _allowing(session: Session) -> Watcher | None:
    """Return the only watcher, if it allows other bits here; None if the model's kernel has to run.

    Gradient checkpointing runs a call again after the block, and compares what both have saved.
    """
    watchers = session.watchers
    if (
        len(watchers) != 1
        or watchers[0].choice.same_bits
        or session.graph is not None
        or session.changes
        or in_backward()
        or checkpointing()
        or traced()
        or others_open(session.modes)
        or not watchers[0].selects()
    ):
        return None
    return watchers[0]


def _in_one_pass(
    session: Session,
    watcher: Watcher,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **named: Any,
) -> Tensor | None:
    """Compute a call with its statistics; None if its own kernel is as fast, or has to run."""
    ordinary = all(type(one) in ORDINARY for one in (query, key, value))
    learned = attn_mask is not None and attn_mask.requires_grad
    if dropout_p or learned or not ordinary or query.is_nested or query.ndim < 4:
        return None
    with session.undisturbed():
        given = {"attn_mask": attn_mask, "is_causal": is_causal, **named}
        captured = capture_sdpa(query, key, value, **given, context=session.context(None))
        problem = _with_gradients(captured.problem, *cast_inputs(query, key, value))
        found = None if problem is None else in_one_pass(problem, watcher.choice.statistics)
    if found is None:
        return None
    context, session.one_pass = found
    # SDPA lays it out as the queries, and models join its heads by a view.
    laid_out = torch.empty_like(query.detach())
    same = context.shape != query.shape or context.stride() == laid_out.stride()
    return context if same else laid_out.copy_(context)


def _with_gradients(problem: Problem, *inputs: Tensor) -> Problem | None:
    """Return a problem of the tensors that were given; None if these are laid out otherwise."""
    query, key, value = inputs
    if not (torch.is_grad_enabled() and any(one.requires_grad for one in inputs)):
        return problem
    keys = problem.key.shape[-2]
    own = {"query": query, "key": key[..., :keys, :], "value": value[..., :keys, :]}
    if any(one.shape != getattr(problem, name).shape for name, one in own.items()):
        return None
    return replace(problem, **own)
