"""The translator: an encoder of the source, and a decoder that looks at it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.layers import DecoderBlock, EncoderBlock, KVCache, Policy
from glasshead.models.checks import check_tokens, fed_before, one_each
from glasshead.models.config import FeedForwardKind, Positions, TransformerConfig
from glasshead.models.layer_factory import Embedding, LayerFactory, initialize
from glasshead.recipe.masks import Mask, causal, padding


@dataclass(frozen=True, kw_only=True)
class TranslatorConfig(TransformerConfig):
    """What a `Translator` is built from, beside what every model has.

    Source and target share one vocabulary, its embedding, and the output's matrix.

    Attributes:
        num_decoder_layers: How many blocks the decoder has; `num_layers` if None.
    """

    positions: Positions = "sinusoidal"
    feed_forward: FeedForwardKind = "relu"
    num_decoder_layers: int | None = None

    @property
    def least_parameters(self) -> int:
        """Count the parameters of the matrices, without building them."""
        decoders = self.num_decoder_layers or self.num_layers
        return super().least_parameters + decoders * self._block(2)


class Translator(nn.Module):
    """p(y_{t+1} | y_0 … y_t, x) = softmax(W decoder(y, encoder(x))_t), of a source x, a target y.

    Args:
        config: What it is built from.

    Source: Vaswani et al. 2017, section 3; three tied matrices: section 3.4.

    >>> import torch
    >>> import glasshead as gh
    >>> config = gh.TranslatorConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=2)
    >>> model = gh.Translator(config)
    >>> source, target = torch.tensor([[3, 1, 4, 1, 5]]), torch.tensor([[2, 7]])
    >>> model(source, torch.tensor([5]), target).shape
    torch.Size([1, 2, 11])
    """

    def __init__(self, config: TranslatorConfig) -> None:
        super().__init__()
        self.config = config
        parts = LayerFactory(config)
        self.embedding = Embedding(
            config.vocab_size,
            config.d_model,
            parts.positions(),
            dropout=config.dropout,
            scale=config.d_model**0.5,
        )
        self.encoder = nn.ModuleList(
            EncoderBlock(parts.attention(), parts.feed_forward(), **parts.around())
            for _ in range(config.num_layers)
        )
        self.encoder_norm = parts.last_norm()
        self.decoder = nn.ModuleList(
            DecoderBlock(
                parts.attention(causal()),
                parts.attention(crosses=True),
                parts.feed_forward(),
                **parts.around(),
            )
            for _ in range(config.num_decoder_layers or config.num_layers)
        )
        self.decoder_norm = parts.last_norm()
        for blocks in (self.encoder, self.decoder):
            initialize(blocks, blocks, std=config.d_model**-0.5)
        nn.init.normal_(self.embedding.tokens.weight, std=config.d_model**-0.5)

    def forward(
        self,
        source: Int[Tensor, "batch source_length"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch length"],
    ) -> Float[Tensor, "batch length vocab"]:
        """The logits of the token after each of the target.

        Args:
            source: The texts to translate, padded at the right.
            lengths: How many tokens of each are real.
            target: The translations so far, padded at the right.

        Errors: a TypeError or ValueError where tokens are not of the vocabulary, or more than
        `context_length`, and where the lengths are not one number a text.
        """
        return self.decode(target, self.encode(source, lengths), lengths)

    def encode(
        self, source: Int[Tensor, "batch source_length"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch source_length d_model"]:
        """What the encoder makes of the source."""
        x, mask = self._embedded(source, "source", 0), padding(one_each(lengths, "lengths", source))
        for block in self.encoder:
            x = block(x, mask=mask)
        return self.encoder_norm(x)

    def decode(
        self,
        target: Int[Tensor, "batch length"],
        memory: Float[Tensor, "batch source_length d_model"],
        lengths: Int[Tensor, " batch"],
        *,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "batch length vocab"]:
        """The logits of the token after each of the target; with a cache, after the new ones."""
        x = self._embedded(target, "target", fed_before(cache, len(self.decoder)))
        mask: Mask = padding(one_each(lengths, "lengths", target))
        for number, block in enumerate(self.decoder):
            caches = {}
            if cache is not None:
                caches = {"cache": cache.own[number], "source_cache": cache.crossed[number]}
            x = block(x, memory, source_mask=mask, **caches)
        return F.linear(self.decoder_norm(x), self.embedding.tokens.weight)

    def new_cache(self, policy: Policy | None = None) -> KVCache:
        """An empty cache, for translation token by token; the source is kept, policy or not."""
        return KVCache(policy)

    def _embedded(self, tokens: Tensor, name: str, start: int) -> Tensor:
        room = self.config.context_length - start
        check_tokens(tokens, name, self.config.vocab_size, room)
        where = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        return self.embedding(tokens, where)
