"""Parts: the layers that a config names."""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

from torch import nn
from torch.nn import functional as F

from glasshead.attention import Attention
from glasshead.layers import (
    FeedForward,
    GatedFeedForward,
    Learned,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    Rotary,
    Sinusoidal,
)
from glasshead.layers.encoder_block import Norm
from glasshead.layers.feed_forward import Activation
from glasshead.layers.positions import scaling_of
from glasshead.models.config import TransformerConfig
from glasshead.recipe.biases import ALiBi
from glasshead.recipe.masks import Mask

_RESIDUALS = {"pre": PreNorm, "post": PostNorm}
_NORMS = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}
_ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "swiglu": F.silu,
    "none": F.gelu,
}


class Parts:
    """Makes the layers of a model from its config, each new.

    >>> Parts(TransformerConfig(vocab_size=7, d_model=8, num_heads=2)).attention()
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
        self.norm: Norm = partial(_NORMS[config.norm], **self._of_norms())
        self.residual: type[PostNorm] = _RESIDUALS[config.order]
        # One for all layers, so that each angle is computed once.
        self._rotary = self._turning() if config.positions == "rotary" else None

    def attention(self, mask: Mask | None = None, *, crosses: bool = False) -> MultiHeadAttention:
        """An attention; across two texts, distances between positions mean nothing."""
        config = self.config
        alibi = config.positions == "alibi" and not crosses
        qkv_bias = config.bias if config.qkv_bias is None else config.qkv_bias
        layer = MultiHeadAttention(
            config.d_model,
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            attention=Attention(
                mask=mask,
                bias=ALiBi(config.num_heads) if alibi else None,
                dropout=config.attention_dropout,
            ),
            rotary=None if crosses else self._rotary,
            bias=qkv_bias,
        )
        output_bias = config.bias if config.output_bias is None else config.output_bias
        if qkv_bias != output_bias:
            asking = config.num_heads * config.width
            layer.output = nn.Linear(asking, config.d_model, bias=output_bias)
        return layer

    def feed_forward(self) -> nn.Module | None:
        """A feed-forward, if there is one."""
        config = self.config
        if config.feed_forward == "none":
            return None
        widths = config.d_model, config.hidden
        if config.feed_forward == "swiglu":
            return GatedFeedForward(*widths, bias=config.bias)
        return FeedForward(*widths, activation=self.activation(), bias=config.bias)

    def activation(self) -> Activation:
        """That of the feed-forward, of its gate where it is gated."""
        return _ACTIVATIONS[self.config.feed_forward]

    def positions(self) -> nn.Module | None:
        """What is added to the embeddings of tokens, if anything is."""
        if self.config.positions == "learned":
            return Learned(self.config.context_length, self.config.d_model)
        return Sinusoidal(self.config.d_model) if self.config.positions == "sinusoidal" else None

    def last_norm(self) -> nn.Module:
        """What ends a stack of blocks, where their own norms do not."""
        return self.norm(self.config.d_model) if self.config.order == "pre" else nn.Identity()

    def around(self) -> dict:
        """The arguments of a block beside its sublayers."""
        return {"residual": self.residual, "norm": self.norm, "dropout": self.config.dropout}

    def _turning(self) -> Rotary:
        scaling = self.config.rotary_scaling
        return Rotary(
            self.config.width,
            base=self.config.rotary_base,
            scaling=None if scaling is None else scaling_of(scaling),
        )

    def _of_norms(self) -> dict[str, Any]:
        eps = {} if self.config.norm_eps is None else {"eps": self.config.norm_eps}
        return {"bias": self.config.bias, **eps} if self.config.norm == "layer" else eps


def initialize(model: nn.Module, blocks: Iterable[nn.Module], std: float = 0.02) -> None:
    """Small random weights: N(0, std²), and biases 0.

    What is added to the residual stream is smaller by √(its additions), so that their sum is not.

    Source: Radford et al. 2019 (GPT-2), section 2.3.
    """
    outputs = [
        module.output
        for block in blocks
        for module in block.modules()
        if isinstance(module, MultiHeadAttention | FeedForward | GatedFeedForward)
    ]
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            scale = math.sqrt(len(outputs)) if any(module is one for one in outputs) else 1.0
            nn.init.normal_(module.weight, std=std / scale)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
