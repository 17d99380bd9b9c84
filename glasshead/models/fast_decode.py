"""Fast decoding: a step of one token per row without the overhead of modules."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead import layers
from glasshead.attention import Attention
from glasshead.layers import FeedForward, KeyValueCache, KVCache, MultiHeadAttention
from glasshead.layers.blocks import Dropout
from glasshead.layers.layer_cache import hides_by_band, lookback
from glasshead.layers.multi_head_attention import Projections
from glasshead.models.config import TransformerConfig
from glasshead.models.layer_factory import Embedding, check_tokens
from glasshead.private_names import private
from glasshead.recipe.normalizers import Softmax
from glasshead.recipe.scores import ScaledDot

_Function = Callable[[Tensor], Tensor]
# A sublayer, or a residual around one: of a state and what the sublayer takes besides.
_Sublayer = Callable[..., Tensor]
_Rotations = dict[layers.Rotary, tuple[Tensor, Tensor]]
# A watch patches this function, and then the modules have to be called.
_FORWARD = Attention.forward


class DecoderModel(Protocol):
    """A decoder-only model: an embedding, blocks and a final norm."""

    @property
    def config(self) -> TransformerConfig: ...
    @property
    def embedding(self) -> Embedding: ...
    @property
    def blocks(self) -> nn.ModuleList: ...
    @property
    def norm(self) -> nn.Module: ...
    @property
    def training(self) -> bool: ...


class FastDecodeStep:
    """A decoding step equal to `model.hidden` of one token per row, bit for bit, without modules.

    In a small model most of a step is Python overhead between kernels: modules are called, shapes
    checked, an engine chosen. Here everything that is the same for every token is looked up once,
    and only the kernels are left. A model with unknown parts, hooks or an open watch runs its
    modules instead.

    Args:
        model: A model in evaluation mode, for which `prepared` returns a step.
    """

    def __init__(self, model: DecoderModel) -> None:
        self._model = model
        self._blocks = [_Block(block) for block in model.blocks]
        self._norm = _norm(model.norm)
        modules = [module for part in _parts(model) for module in part.modules()]
        self._hooks = [hooks for module in modules for hooks in _hooks(module)]
        words = model.embedding
        self._words_alone = words.positions is None and words.norm is None and words.scale == 1.0
        blocks: Any = model.blocks
        # Layers share them, so that each angle is computed once.
        self._rotaries = {block.attention.rotary for block in blocks} - {None}

    def _embed(self, tokens: Tensor, position: int) -> Tensor:
        embedding = self._model.embedding
        if self._words_alone:
            return F.embedding(tokens, embedding.tokens.weight)
        return embedding(tokens, torch.arange(position, position + 1, device=tokens.device))

    @staticmethod
    def prepared(model: DecoderModel) -> "FastDecodeStep | None":
        """Prepare a step for a model; None if it has unknown parts."""
        return FastDecodeStep(model) if _is_known(model) else None

    def fits(self, tokens: Tensor, cache: KVCache) -> bool:
        """Return whether a step can be computed this way now."""
        return (
            tokens.shape[1] == 1
            and cache.policy is None
            and cache.length > 0
            and not self._model.training
            and Attention.forward is _FORWARD
            and not any(self._hooks)
            and not torch.is_autocast_enabled(tokens.device.type)
        )

    def __call__(
        self, tokens: Int[Tensor, "batch 1"], cache: KVCache
    ) -> Float[Tensor, "batch d_model"]:
        """Compute the normalized output of the last block, and append the tokens to the cache."""
        position, config = cache.length, self._model.config
        check_tokens(tokens, "tokens", config.vocab_size, config.context_length - position)
        x = self._embed(tokens, position)[:, 0]  # [batch, d_model]
        rotations = {rotary: rotary.at(position, position + 1, x) for rotary in self._rotaries}
        for number, block in enumerate(self._blocks):
            x = block(x, cache.own[number], rotations)
        return self._norm(x)


class _Block:
    """The step of an `EncoderBlock`."""

    def __init__(self, block: Any) -> None:
        self._attend = _around(block.around_attention, _Attend(block.attention))
        self._feed_forward, self._parallel = None, block.parallel
        if block.feed_forward is not None:
            around, sublayer = block.around_feed_forward, _feed_forward(block.feed_forward)
            self._feed_forward = (_update if block.parallel else _around)(around, sublayer)

    def __call__(self, x: Tensor, cache: KeyValueCache, rotations: _Rotations) -> Tensor:
        attended = self._attend(x, cache, rotations)
        if self._feed_forward is None:
            return attended
        return attended + self._feed_forward(x) if self._parallel else self._feed_forward(attended)


class _Attend:
    """The step of a `MultiHeadAttention`, whose single query sees every key of its cache."""

    def __init__(self, layer: MultiHeadAttention) -> None:
        self._project, self._output = _linear(layer.projections.stacks[0]), _linear(layer.output)
        self._rotary, self._head_dim = layer.rotary, layer.head_dim
        self._norm = layer.query_key_norm
        self._num_heads, self._num_kv_heads = layer.num_heads, layer.num_kv_heads
        self._reach = lookback(layer.attention)
        scale = layer.attention.score.scale(layer.head_dim)
        self._sdpa = partial(F.scaled_dot_product_attention, scale=float(scale))

    def __call__(self, x: Tensor, cache: KeyValueCache, rotations: _Rotations) -> Tensor:
        queries, keys = self._num_heads, self._num_kv_heads
        heads = self._project(x).view(len(x), -1, 1, self._head_dim)  # [batch, all heads, 1, …]
        rotated, value = heads.split([queries + keys, keys], dim=1)
        if self._norm is None:
            query, key = self._turned(rotated, rotations).split([queries, keys], dim=1)
        else:
            # Apart, as in the modules: the kernel's last digits depend on how numbers lie.
            parts = self._norm(*rotated.split([queries, keys], dim=1))
            query, key = (self._turned(part, rotations) for part in parts)
        # As in the fused engine, the queries that share a key head are adjacent.
        query = query.reshape(len(x), keys, -1, self._head_dim)
        context = self._sdpa(query, *cache.append(key, value, self._reach))
        return self._output(context.flatten(1))  # [batch, d_model]

    def _turned(self, heads: Tensor, rotations: _Rotations) -> Tensor:
        rotary = self._rotary
        return heads if rotary is None else rotary.turned(heads, *rotations[rotary])


def _feed_forward(layer: nn.Module) -> _Function:
    activation: Any = layer.activation
    output = _linear(layer.output)
    if isinstance(layer, FeedForward):
        hidden = _linear(layer.hidden)
        return lambda x: output(activation(hidden(x)))
    both = _linear(layer.hidden.stacks[0])  # type: ignore[union-attr]

    def gated(x: Tensor) -> Tensor:
        gate, hidden = both(x).chunk(2, dim=-1)
        return output(activation(gate) * hidden)

    return gated


def _around(residual: Any, sublayer: _Sublayer) -> _Sublayer:
    """Return a residual around a sublayer."""
    if isinstance(residual, layers.PreNorm):
        update = _update(residual, sublayer)
        return lambda x, *more: x + update(x, *more)
    norm = _norm(residual.norm)
    return lambda x, *more: norm(x + sublayer(x, *more))


def _update(residual: Any, sublayer: _Sublayer) -> _Sublayer:
    """Return what a residual adds."""
    norm = _norm(residual.norm)
    if isinstance(residual, layers.ResPostNorm):
        return lambda x, *more: norm(sublayer(x, *more))
    if isinstance(residual, layers.SandwichNorm):
        after = _norm(residual.after)
        return lambda x, *more: after(sublayer(norm(x), *more))
    return lambda x, *more: sublayer(norm(x), *more)


def _norm(norm: Any) -> _Function:
    if isinstance(norm, nn.Identity):
        return _same
    named = {"weight": norm.weight, "eps": norm.eps, "normalized_shape": norm.normalized_shape}
    if isinstance(norm, nn.RMSNorm):
        return partial(F.rms_norm, **named)
    return partial(F.layer_norm, bias=norm.bias, **named)


def _linear(linear: Any) -> _Function:
    return partial(F.linear, weight=linear.weight, bias=linear.bias)


def _same(x: Tensor) -> Tensor:
    return x


# Exact types only, as a subclass may compute something else.
_PARTS = {
    nn.Embedding,
    nn.ModuleList,
    nn.Linear,
    nn.LayerNorm,
    nn.RMSNorm,
    nn.Identity,
    Attention,
    Dropout,
    Embedding,
    layers.EncoderBlock,
    FeedForward,
    layers.GatedFeedForward,
    layers.Learned,
    MultiHeadAttention,
    layers.PostNorm,
    layers.PreNorm,
    Projections,
    layers.QueryKeyNorm,
    layers.ResPostNorm,
    layers.Rotary,
    layers.SandwichNorm,
    ScaledDot,
    layers.Sinusoidal,
    Softmax,
}


def _is_known(model: DecoderModel) -> bool:
    """Return whether all parts of a model are of known types, without global hooks."""
    within = [module for part in _parts(model) for module in part.modules()]
    return (
        _has_no_global_hook()
        and all(type(one) in _PARTS and not one.training for one in within)
        and all(_is_plain(one) for one in within if isinstance(one, MultiHeadAttention))
    )


def _has_no_global_hook() -> bool:
    """Return whether no hook of all modules is there, as far as PyTorch tells."""
    has_any = private("torch.nn.modules.module._has_any_global_hook")
    return has_any is not None and not has_any()


def _parts(model: DecoderModel) -> tuple[nn.Module, ...]:
    """Return the parts of a model that a fast step replaces."""
    return model.embedding, model.blocks, model.norm


def _hooks(module: nn.Module) -> tuple[dict[int, Callable], ...]:
    """Return the hook dictionaries of a module, which stay the same objects."""
    return module._forward_hooks, module._forward_pre_hooks  # noqa: SLF001 - they have no other name


def _is_plain(layer: MultiHeadAttention) -> bool:
    """Return whether PyTorch's kernel alone computes a layer's last query, which sees every key."""
    rule = layer.attention
    return (
        layer.projections.one
        and rule.engine in ("auto", "fused")
        and rule.softcap is None
        and rule.bias is None
        and hides_by_band(rule)
        and not isinstance(rule.score.scale(layer.head_dim), Tensor)
        and rule.score.scale(layer.head_dim) > 0
    )
