"""Layer factory: build the layers of a config and their embedding, and check what they are fed."""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead import layers
from glasshead.attention import Attention
from glasshead.layers.blocks import Activation, Dropout, Norm
from glasshead.layers.positions import scaling_of
from glasshead.models.config import GATED, TransformerConfig
from glasshead.recipe.biases import ALiBi
from glasshead.recipe.masks import Mask
from glasshead.recipe.scores import ScaledDot
from glasshead.recipe.validation import whole_numbers

_NORMS = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}
_ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "swiglu": F.silu,
    "geglu": F.gelu,
    "geglu_tanh": partial(F.gelu, approximate="tanh"),
    "none": F.gelu,
}
_RESIDUALS = {
    "pre": layers.PreNorm,
    "post": layers.PostNorm,
    "sandwich": layers.SandwichNorm,
    "res_post": layers.ResPostNorm,
    "parallel": layers.PreNorm,
}


class LayerFactory:
    """A factory of the layers of a model, from its config; each call builds a new layer.

    >>> LayerFactory(TransformerConfig(vocab_size=7, d_model=8, num_heads=2)).attention()
    MultiHeadAttention(
      8, num_heads=2, head_dim=4
      (projections): Projections(
        (stacks): ModuleList(
          (0): Linear(in_features=8, out_features=24, bias=True)
        )
      )
      (attention): Attention(
        engine='auto'
        (score): ScaledDot()
        (normalizer): Softmax()
      )
      (output): Linear(in_features=8, out_features=8, bias=True)
    )
    """

    def __init__(self, config: TransformerConfig) -> None:
        self.config = config
        options: dict[str, Any] = {"bias": config.bias} if config.norm == "layer" else {}
        if config.norm_eps is not None:
            options["eps"] = config.norm_eps
        self.norm: Norm = partial(_NORMS[config.norm], **options)
        self.residual = _RESIDUALS[config.order]
        self._rotary = self._local_rotary = None
        if config.positions == "rotary":
            # One for all layers, so that each angle is computed once.
            given, widths = config.rotary_scaling, (config.width, config.rotary_dim)
            scaling = None if given is None else scaling_of(given)
            self._rotary = layers.Rotary(*widths, base=config.rotary_base, scaling=scaling)
            self._local_rotary = self._rotary
            if config.local is not None and config.local.rotary_base is not None:
                self._local_rotary = layers.Rotary(*widths, base=config.local.rotary_base)

    def attention(
        self, mask: Mask | None = None, *, crosses: bool = False, local: bool = False
    ) -> layers.MultiHeadAttention:
        """Build an attention layer; cross-attention has no relative positions."""
        config = self.config
        rotary = self._local_rotary if local else self._rotary
        alibi = config.positions == "alibi" and not crosses
        qkv_bias = config.bias if config.qkv_bias is None else config.qkv_bias
        layer = layers.MultiHeadAttention(
            config.d_model,
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            attention=Attention(
                score=None if config.score_scale is None else ScaledDot(config.score_scale),
                softcap=config.softcap,
                mask=mask,
                bias=ALiBi(config.num_heads) if alibi else None,
                dropout=config.attention_dropout,
            ),
            rotary=None if crosses else rotary,
            query_key_norm=self._query_key_norm(),
            bias=qkv_bias,
        )
        output_bias = config.bias if config.output_bias is None else config.output_bias
        if qkv_bias != output_bias:
            heads = config.num_heads * config.width
            layer.output = nn.Linear(heads, config.d_model, bias=output_bias)
        return layer

    def _query_key_norm(self) -> layers.QueryKeyNorm | None:
        """Build the norms of queries and keys; None if the config has none."""
        config = self.config
        if config.query_key_norm == "none":
            return None
        joined = config.query_key_norm == "joined"
        heads = config.num_heads, config.num_kv_heads or config.num_heads
        widths = [config.width * (count if joined else 1) for count in heads]
        return layers.QueryKeyNorm(*map(self.norm, widths), joined=joined)

    def feed_forward(self) -> nn.Module | None:
        """Build a feed-forward; None if the config has none."""
        config = self.config
        if config.feed_forward == "none":
            return None
        widths = config.d_model, config.hidden
        kind = layers.GatedFeedForward if config.feed_forward in GATED else layers.FeedForward
        return kind(*widths, activation=self.activation(), bias=config.bias)

    def activation(self) -> Activation:
        """Return the activation of the feed-forward, or of its gate."""
        return _ACTIVATIONS[self.config.feed_forward]

    def positions(self) -> nn.Module | None:
        """Build the position embedding; None if positions are not added to embeddings."""
        if self.config.positions == "learned":
            return layers.Learned(self.config.context_length, self.config.d_model)
        return (
            layers.Sinusoidal(self.config.d_model)
            if self.config.positions == "sinusoidal"
            else None
        )

    def embedding(self, **options: Any) -> "Embedding":
        """Build the embedding of tokens and positions; options are those of `Embedding`."""
        config = self.config
        options = {"dropout": config.dropout, **options}
        return Embedding(config.vocab_size, config.d_model, self.positions(), **options)

    def encoder_blocks(self) -> nn.ModuleList:
        """Build the blocks of self-attention, `num_layers` of them."""
        config, parallel = self.config, self.config.order == "parallel"
        return nn.ModuleList(
            layers.EncoderBlock(
                self.attention(config.mask(layer), local=config.is_local(layer)),
                self.feed_forward(),
                **self.around(),
                parallel=parallel,
            )
            for layer in range(config.num_layers)
        )

    def last_norm(self) -> nn.Module:
        """Build the final norm of a stack of blocks; the identity for post-norm blocks."""
        return nn.Identity() if self.config.order == "post" else self.norm(self.config.d_model)

    def around(self) -> dict:
        """Return the arguments of a block other than its sublayers."""
        return {"residual": self.residual, "norm": self.norm, "dropout": self.config.dropout}


def initialize(model: nn.Module, blocks: Iterable[nn.Module], std: float = 0.02) -> None:
    """Initialize weights with N(0, std²), and biases with 0.

    Output projections into the residual stream are scaled by 1/√(number of additions), so that the
    variance of their sum does not grow with depth.

    Source: Radford et al. 2019 (GPT-2), section 2.3.
    """
    outputs = [
        module.output
        for block in blocks
        for module in block.modules()
        if isinstance(
            module, layers.MultiHeadAttention | layers.FeedForward | layers.GatedFeedForward
        )
    ]
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            scale = math.sqrt(len(outputs)) if any(module is one for one in outputs) else 1.0
            nn.init.normal_(module.weight, std=std / scale)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)


class Embedding(nn.Module):
    """x_p = dropout(norm(scale · W_token + E(p) + S_segment)).

    Args:
        vocab_size: Vocabulary size.
        d_model: Model width.
        positions: E, a position embedding; None: positions enter in the attention, or not at all.
        dropout: Dropout probability.
        scale: Factor of token embeddings; √d_model in the paper.
        norm: A norm of the sum, as in BERT; None: no norm.
        segments: S, segment embeddings, as in BERT; None: no segments.

    Source: Vaswani et al. 2017, sections 3.4 and 3.5; segments: Devlin et al. 2019, section 3.

    >>> Embedding(11, 6)(torch.tensor([[3, 5]]), torch.tensor([0, 1])).shape
    torch.Size([1, 2, 6])
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        positions: nn.Module | None = None,
        *,
        dropout: float = 0.0,
        scale: float = 1.0,
        norm: nn.Module | None = None,
        segments: nn.Embedding | None = None,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = positions
        self.dropout = Dropout(dropout)
        self.scale = scale
        self.norm = norm
        self.segments = segments

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        where: Int[Tensor, "*#batch length"],
        segment: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        """Embed tokens at the positions `where`, by default in the first segment."""
        x = self.tokens(tokens)
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            x = x + self.positions(where).to(x.dtype)
        if self.segments is not None:
            x = x + (self.segments.weight[0] if segment is None else self.segments(segment))
        if self.norm is not None:
            x = self.norm(x)
        return self.dropout(x)


def check_tokens(tokens: Tensor, name: str, vocab_size: int, room: int) -> None:
    """Check that `tokens` are a batch of texts of this vocabulary, at most `room` long.

    Errors: a TypeError or ValueError that says which.
    """
    if not isinstance(tokens, Tensor):
        kind = type(tokens).__name__
        raise TypeError(f"{name} must be a tensor of token ids, got {kind}.")
    if tokens.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name} must be whole numbers, got {tokens.dtype}. Pass token ids.")
    if tokens.ndim != 2:
        raise ValueError(
            f"{name} must be [batch, length], got {list(tokens.shape)}. Pass one text as "
            f"{name}[None]."
        )
    if tokens.shape[-1] > room:
        raise ValueError(
            f"{name} must have at most {room} tokens, got {tokens.shape[-1]}. Shorten the text, "
            "or build the model with a longer context_length."
        )
    if tokens.is_cpu and tokens.numel() and not torch.compiler.is_compiling():
        least, most = (int(x) for x in tokens.aminmax())
        if least < 0 or most >= vocab_size:
            raise ValueError(
                f"{name} must be ids from 0 to {vocab_size - 1}, got "
                f"{least if least < 0 else most}. Use the tokenizer that belongs to the model."
            )


def one_each(counts: Any, name: str, tokens: Tensor) -> Int[Tensor, " batch"]:
    """Return `counts` as a tensor of one whole number per text of `tokens`.

    Errors: a TypeError or ValueError if they are not.
    """
    numbers = whole_numbers(counts, name).to(tokens.device)
    # Elsewhere the values are unknown, or would need a synchronization.
    known = numbers.is_cpu and not torch.compiler.is_compiling()
    if known and numbers.numel() and int(numbers.min()) < 0:
        least = int(numbers.min())
        raise ValueError(f"{name} must be numbers of at least 0, got {least}.")
    if numbers.shape != tokens.shape[:1]:
        raise ValueError(
            f"{name} must have a number for each text, [{len(tokens)}], got {list(numbers.shape)}."
        )
    return numbers


def cached_length(cache: Any, count: int) -> int:
    """Return the number of tokens in the cache of a model with so many layers.

    Errors: a TypeError if it is no cache of a model; a ValueError if the layers differ in
    their number of tokens, as in the cache of another model, or after an interrupted call.
    """
    if cache is None:
        return 0
    if not isinstance(cache, layers.KVCache):
        raise TypeError(
            f"cache must be made by model.new_cache(), got {type(cache).__name__}. Pass a policy "
            "to new_cache()."
        )
    lengths = [one.length for one in cache.own.values() if one.length]
    if lengths and lengths != lengths[:1] * count:
        raise ValueError(
            f"a cache must hold all {count} layers of one model, got {len(lengths)} with "
            f"{lengths} tokens. Create a new cache."
        )
    return cache.length
