"""Decoding step by step: each token computed once, and single tokens without module overhead."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as torch_module

from glasshead.attention import Attention
from glasshead.layers import (
    EncoderBlock,
    FeedForward,
    GatedFeedForward,
    KeyValueCache,
    KVCache,
    Learned,
    MultiHeadAttention,
    Policy,
    PostNorm,
    PreNorm,
    Rotary,
    Sinusoidal,
)
from glasshead.layers.cache import GrowableBuffer, bands_of, lookback
from glasshead.layers.feed_forward import Dropout
from glasshead.layers.multi_head_attention import Projections
from glasshead.models.checks import check_tokens
from glasshead.models.language_model import LanguageModel
from glasshead.models.layer_factory import Embedding
from glasshead.models.translator import Translator
from glasshead.recipe.normalizers import Softmax
from glasshead.recipe.scores import ScaledDot
from glasshead.recipe.validation import whole_numbers

_Function = Callable[[Tensor], Tensor]
_Turns = tuple[Tensor, Tensor] | None
# While somebody watches, another stands in its place, which is to be asked.
_FORWARD = Attention.forward


class FastDecodeStep:
    """`model.hidden` of one token a row, bit for bit, without the cost of asking.

    In a small model a token costs what Python does between the kernels, again for each: modules are
    called, shapes checked, an engine chosen. Here all that is the same for every token is looked up
    once, and what is left is the kernels. Where a model has parts of another kind, hooks, or
    somebody who watches, its modules are called as ever.

    Args:
        model: In evaluation mode; `prepared` tells whether it is of known parts.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._blocks = [_Block(block) for block in model.blocks]
        self._norm = _norm(model.norm)
        heard = [module for part in _parts(model) for module in part.modules()]
        self._hooks = [hooks for module in heard for hooks in _hooks(module)]
        words = model.embedding
        self._words_alone = words.positions is None and words.norm is None and words.scale == 1.0
        blocks: Any = model.blocks
        # All layers have one: `prepared` asks for it.
        self._rotary: Rotary | None = blocks[0].attention.rotary

    def _embed(self, tokens: Tensor, position: int) -> Tensor:
        embedding = self._model.embedding
        if self._words_alone:
            return F.embedding(tokens, embedding.tokens.weight)
        return embedding(tokens, torch.arange(position, position + 1, device=tokens.device))

    @staticmethod
    def prepared(model: LanguageModel) -> "FastDecodeStep | None":
        """One for a model whose parts are known; None where they are not."""
        return FastDecodeStep(model) if _is_known(model) else None

    def fits(self, tokens: Tensor, cache: KVCache) -> bool:
        """Whether these can be computed in this way, here and now."""
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
        """What the last block makes of the tokens, normed; the cache takes them in."""
        position, config = cache.length, self._model.config
        check_tokens(tokens, "tokens", config.vocab_size, config.context_length - position)
        x = self._embed(tokens, position)[:, 0]  # [batch, d_model]
        turns = None if self._rotary is None else self._rotary.at(position, position + 1, x)
        for number, block in enumerate(self._blocks):
            x = block(x, cache.own[number], turns)
        return self._norm(x)


class _Block:
    """An `EncoderBlock`."""

    def __init__(self, block: Any) -> None:
        self._attend = _Attend(block.attention)
        self._around_attention = _around(block.around_attention)
        self._feed_forward = None
        if block.feed_forward is not None:
            self._feed_forward = _feed_forward(block.feed_forward)
            self._around_feed_forward = _around(block.around_feed_forward)

    def __call__(self, x: Tensor, cache: KeyValueCache, turns: _Turns) -> Tensor:
        before, after = self._around_attention
        x = after(x + self._attend(before(x), cache, turns))
        if self._feed_forward is None:
            return x
        before, after = self._around_feed_forward
        return after(x + self._feed_forward(before(x)))


class _Attend:
    """A `MultiHeadAttention`, whose one query sees every key that its cache gives."""

    def __init__(self, layer: MultiHeadAttention) -> None:
        self._project, self._output = _linear(layer.projections.stacks[0]), _linear(layer.output)
        self._rotary, self._head_dim = layer.rotary, layer.head_dim
        self._asking, self._answering = layer.num_heads, layer.num_kv_heads
        self._reach = lookback(layer.attention)
        scale = layer.attention.score.scale(layer.head_dim)
        self._sdpa = partial(F.scaled_dot_product_attention, scale=float(scale))

    def __call__(self, x: Tensor, cache: KeyValueCache, turns: _Turns) -> Tensor:
        asking, answering = self._asking, self._answering
        heads = self._project(x).view(len(x), -1, 1, self._head_dim)  # [batch, all heads, 1, …]
        turning, value = heads.split([asking + answering, answering], dim=1)
        if self._rotary is not None and turns is not None:
            turning = self._rotary.turned(turning, *turns)
        query, key = turning.split([asking, answering], dim=1)
        # As the fused engine does it: the queries that share a key head stand side by side.
        query = query.reshape(len(x), answering, -1, self._head_dim)
        context = self._sdpa(query, *cache.append(key, value, self._reach))
        return self._output(context.flatten(1))  # [batch, d_model]


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


def _around(residual: Any) -> tuple[_Function, _Function]:
    """What stands before a sublayer, and after its result was added."""
    norm = _norm(residual.norm)
    return (norm, _same) if isinstance(residual, PreNorm) else (_same, norm)


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


# Nothing that is derived of these, which may do something else.
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
    EncoderBlock,
    FeedForward,
    GatedFeedForward,
    Learned,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    Projections,
    Rotary,
    ScaledDot,
    Sinusoidal,
    Softmax,
}


def _is_known(model: LanguageModel) -> bool:
    """Whether all parts do what they are known to do."""
    within = [module for part in _parts(model) for module in part.modules()]
    return (
        type(model) is LanguageModel
        and not torch_module._has_any_global_hook()  # noqa: SLF001 - it has no other name
        and all(type(one) in _PARTS and not one.training for one in within)
        and all(_is_plain(one) for one in within if isinstance(one, MultiHeadAttention))
        and len({one.rotary for one in within if isinstance(one, MultiHeadAttention)}) == 1
    )


def _parts(model: LanguageModel) -> tuple[nn.Module, ...]:
    """What is computed on the short way."""
    return model.embedding, model.blocks, model.norm


def _hooks(module: nn.Module) -> tuple[dict[int, Callable], ...]:
    """Those that listen to a module, now and later."""
    return module._forward_hooks, module._forward_pre_hooks  # noqa: SLF001 - they have no other name


def _is_plain(layer: MultiHeadAttention) -> bool:
    """Whether its newest query sees every key, by PyTorch's kernel alone."""
    rule = layer.attention
    return (
        layer.projections.one
        and rule.engine in ("auto", "fused")
        and rule.softcap is None
        and rule.bias is None
        and (rule.mask is None or bands_of(rule.mask) is not None)
        and not isinstance(rule.score.scale(layer.head_dim), Tensor)
        and rule.score.scale(layer.head_dim) > 0
    )


class LanguageModelSteps:
    """A language model that goes on from what it was fed; a `Steps` of `models.decoding`.

    A text may grow beyond the model's context. Where it would, it is seen from half a context back
    on, as if it began there, so that the same tokens follow with a cache as without.

    Args:
        model: What tells the next token.
        padding: How many tokens at the left of each row are none.
        policy: Which keys its cache keeps; None: all that a later query can see.

    >>> import glasshead as gh
    >>> model = gh.LanguageModel(gh.LanguageModelConfig(vocab_size=11, d_model=8, num_heads=2))
    >>> LanguageModelSteps(model.eval()).next(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 11])
    """

    def __init__(
        self,
        model: LanguageModel,
        padding: Int[Tensor, " rows"] | None = None,
        policy: Policy | None = None,
    ) -> None:
        self.model = model
        self._padding = None if padding is None else whole_numbers(padding, "padding")
        self._policy = policy
        self._cache = model.new_cache(policy)
        self._single = FastDecodeStep.prepared(model)
        self._text = GrowableBuffer()

    @torch.inference_mode()
    def next(self, tokens: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        """The logits of the token that follows these."""
        self._text.append(tokens[..., None])
        if self._cache.length + tokens.shape[1] > self.model.config.context_length:
            tokens = self._new_page()
        padding = self._padding
        if padding is not None and not padding.any():
            padding = None
        single = self._single
        if single is not None and padding is None and single.fits(tokens, self._cache):
            return self.model.logits(single(tokens, self._cache))
        hidden = self.model.hidden(tokens, padding=padding, cache=self._cache)
        return self.model.logits(hidden[:, -1])

    def reorder(self, rows: Int[Tensor, " rows"]) -> None:
        """Row i becomes what row `rows[i]` was."""
        self._cache.reorder(rows)
        self._text.reorder(rows)
        if self._padding is not None:
            # It may have been left on the CPU.
            self._padding = self._padding[rows.to(self._padding.device)]

    def _new_page(self) -> Int[Tensor, "rows kept"]:
        """The end of the text, for a new cache."""
        gone = self._text.length - max(1, self.model.config.context_length // 2)
        self._text.forget(gone)
        if self._padding is not None:
            self._padding = (self._padding - gone).clamp(min=0)
        self._cache = self.model.new_cache(self._policy)
        return self._text.held[..., 0]


class TranslatorSteps:
    """A translator that goes on with translations of its sources; a `Steps` of `models.decoding`.

    Args:
        model: What translates.
        source: The texts, padded at the right.
        lengths: How many tokens of each are real.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Translator,
        source: Int[Tensor, "rows source_length"],
        lengths: Int[Tensor, " rows"],
    ) -> None:
        self.model = model
        self._lengths = lengths
        self._memory = model.encode(source, lengths)
        self._cache = model.new_cache()

    @torch.inference_mode()
    def next(self, tokens: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        """The logits of the token that follows these."""
        logits = self.model.decode(tokens, self._memory, self._lengths, cache=self._cache)
        return logits[:, -1]

    def reorder(self, rows: Int[Tensor, " rows"]) -> None:
        """Row i becomes what row `rows[i]` was."""
        self._cache.reorder(rows)
        self._memory = self._memory[rows]
        self._lengths = self._lengths[rows.to(self._lengths.device)]
