"""Shortcuts: a short call goes straight to SDPA where one like it has been decided before.

The checks of a call, its engine and the simplest form of its mask follow from its signature: the
shapes, dtype and device of the inputs, and the settings of the attention. On a few tokens they take
more time than SDPA itself, so that what was decided is remembered, for all attentions. As a
signature holds every setting, nothing that is remembered can be out of date.
"""

import math
from typing import Any

import torch
from torch import Tensor

from glasshead.attention.plan import FEWEST_FASTER
from glasshead.engines import FUSED, Engine
from glasshead.engines.sdpa import Direct
from glasshead.engines.streaming.engine import is_differentiated_otherwise
from glasshead.recipe.masks.base import AllOf
from glasshead.recipe.masks.kinds import Band, LengthMask
from glasshead.recipe.normalizers import Softmax
from glasshead.recipe.problem import Problem
from glasshead.recipe.validation import is_transformed

Signature = tuple[object, ...]

# Beyond this many, all are forgotten.
_MOST = 1024
_KNOWN: dict[Signature, Direct] = {}
# Kinds of masks that may be `of_positions`; one is equal to itself alone.
_MASKS = (Band, AllOf)
_STRIDED, _is_tracing = torch.strided, torch.jit.is_tracing  # type: ignore[reportPrivateImportUsage]


def signature_of(  # noqa: PLR0911 - a doubt each
    settings: dict[str, Any], query: Any, key: Any, value: Any, mask: Any, offset: Any
) -> Signature | None:
    """Return all that decides how a call is computed; None where that is not plain to see.

    Args:
        settings: The attributes of the attention, as `vars` gives them.
        query, key, value, mask, offset: Of the call, which has no bias of its own. The lengths of a
            mask are read in each call.
    """
    if mask is not None and (
        type(mask) is not LengthMask
        or type(mask.lengths) is not Tensor
        # With a mask of the attention's own, a tensor is made of both.
        or settings.get("mask") is not None
    ):
        return None
    if type(query) is not Tensor or type(key) is not Tensor or type(value) is not Tensor:
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
        unlike = settings["bias"] is not None or settings["softcap"] is not None
        drops = settings["training"] and settings["dropout"]
        beta = score.__dict__["beta"]
    except (AttributeError, KeyError):
        # One that is a parameter or a buffer is kept elsewhere.
        return None
    if (
        type(normalizer) is not Softmax
        or (beta is not None and type(beta) is not float)
        or (own is not None and type(own) not in _MASKS)
        or (offset is not None and type(offset) is not int)
        or type(engine) is not str
        or unlike
        or drops
    ):
        return None
    lengths = None if mask is None else (mask.lengths.shape, mask.lengths.device)
    return (
        *(query.shape, key.shape, value.shape),
        *(query.dtype, key.dtype, value.dtype),
        *(query.device, key.device, value.device),
        *(type(score), beta, own, lengths, offset, engine),
    )


def remembered(signature: Signature) -> Direct | None:
    """Return what computes calls of this signature, if one has been remembered."""
    return _KNOWN.get(signature)


def remember(signature: Signature, problem: Problem, engine: Engine) -> None:
    """Remember how a call was computed, where SDPA alone computes it."""
    mask = problem.mask
    if (
        engine is not FUSED
        or problem.axes != 4
        # With more, checks take no time beside the rest.
        or math.prod(problem.scores_shape) >= FEWEST_FASTER
        or not (mask is None or mask.of_positions or type(mask) is LengthMask)
        or is_differentiated_otherwise(problem)
    ):
        return
    direct = FUSED.direct(problem)
    if direct is not None:
        if len(_KNOWN) >= _MOST:
            _KNOWN.clear()
        _KNOWN[signature] = direct
