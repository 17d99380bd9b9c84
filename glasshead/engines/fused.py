"""The fused engine: PyTorch's scaled dot product attention, where it can express the recipe."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.engines.engine import Cost
from glasshead.recipe.masks import Band, Mask
from glasshead.recipe.normalizers import Softmax
from glasshead.recipe.problem import Problem, sees_and_seen
from glasshead.recipe.scores import Score


class Fused:
    """Runs `F.scaled_dot_product_attention`, without a mask tensor where it can do without."""

    name = "fused"
    about = "PyTorch's scaled_dot_product_attention"

    def refusal(self, problem: Problem) -> str | None:
        """SDPA knows inner products, a bias, a mask and the softmax."""
        if type(problem.score).features is Score.features:
            return f"the score {type(problem.score).__name__} is not an inner product"
        if problem.softcap is not None:
            return "SDPA has no softcap"
        if type(problem.normalizer) is not Softmax:
            return f"SDPA normalises by softmax, not by {type(problem.normalizer).__name__}"
        if 0 in problem.query.shape or 0 in problem.value.shape:
            return "an axis is empty"
        return None

    def cost(self, problem: Problem) -> Cost:
        """A causal mask halves the work of a square; a mask tensor, bias or dropout cost bytes."""
        mask, is_causal = _mask(problem)
        pairs = math.prod(problem.scores_shape)
        queries, keys = problem.scores_shape[-2:]
        rows = pairs // keys
        width = max(problem.query.shape[-1], problem.value.shape[-1])
        seen = pairs
        if is_causal:
            short = min(queries, keys)
            seen = rows // queries * (short * (short + 1) // 2 + (queries - short) * keys)
        extra = rows * width * problem.query.element_size()
        if mask is not None and not is_causal:
            extra += queries * keys
        if problem.biases:
            extra += pairs * problem.query.element_size()
        if problem.dropout:
            extra += 3 * pairs * problem.query.element_size()
        return Cost(4 * seen * width, extra)

    def run(self, problem: Problem) -> Float[Tensor, "*batch heads queries value_dim"]:
        """The context, with a gradient."""
        mask, is_causal = _mask(problem)
        bias, visible = problem.bias_and_visible(None if is_causal else mask)
        query, key, value = problem.query, problem.key, problem.value
        if visible is not None:
            sees, seen = sees_and_seen(visible)
            query, key, value = (
                torch.where(kept, x, 0.0) for kept, x in ((sees, query), (seen, key), (seen, value))
            )
        if is_causal:
            # Keys past the last query are hidden from all; they may hold anything.
            key, value = (x[..., : query.shape[-2], :] for x in (key, value))
        query, key, scale = _features(problem.score, query, key)
        width, value_width = query.shape[-1], value.shape[-1]
        if width != value_width:
            # SDPA's fast kernels take one width; zeros change neither a score nor a sum.
            query, key, value = (
                F.pad(x, (0, max(width, value_width) - x.shape[-1])) for x in (query, key, value)
            )
        context = F.scaled_dot_product_attention(
            _four_axes(query),
            _four_axes(key),
            _four_axes(value),
            attn_mask=_attn_mask(problem, bias, visible),
            dropout_p=problem.dropout,
            is_causal=is_causal,
            scale=scale,
            **({"enable_gqa": True} if problem.group > 1 else {}),
        )
        if context.ndim != query.ndim:
            context = context.reshape(*query.shape[:-1], context.shape[-1])
        return context if width <= value_width else context[..., :value_width]


def _mask(problem: Problem) -> tuple[Mask | None, bool]:
    """The mask made simple, and whether SDPA's own `is_causal` says the same."""
    if problem.mask is None:
        return None, False
    tile = problem.tile()
    mask = problem.mask.simplified(tile)
    if problem.biases or not isinstance(mask, Band):
        return mask, False
    # A branch, as under torch.compile the answer may be a symbol, which SDPA does not take.
    return (mask, True) if mask.is_top_left_causal(tile) else (mask, False)


def _features(score: Score, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
    """Vectors whose inner product, times a number, is the score."""
    features = score.features(query, key)
    query, key = (query, key) if features is None else features
    scale = score.scale(query.shape[-1])
    if isinstance(scale, Tensor):
        return query * scale.to(query), key, 1.0
    return query, key, float(scale)


def _attn_mask(problem: Problem, bias: Tensor | None, visible: Tensor | None) -> Tensor | None:
    """What SDPA takes as a mask: booleans, or numbers with -inf, on four axes."""
    if bias is None:
        return None if visible is None else _four_axes(visible, problem.scores_shape)
    # SDPA takes float32 numbers beside queries of half precision, which would round them.
    bias = bias.to(torch.promote_types(problem.query.dtype, torch.float32))
    if visible is not None:
        bias = torch.where(visible, bias, -torch.inf)
    return _four_axes(bias, problem.scores_shape)


def _four_axes(tensor: Tensor, whole: tuple[int, ...] | None = None) -> Tensor:
    """SDPA's fast kernels take four axes: batch axes are made one, a missing one is added."""
    if whole is not None and len(whole) > 4 and tensor.ndim > 3:
        tensor = tensor.expand(*whole[:-3], *tensor.shape[-3:])
    if tensor.ndim > 4:
        return tensor.flatten(0, -4)
    return tensor[(None,) * (4 - tensor.ndim)] if tensor.ndim < 4 else tensor
