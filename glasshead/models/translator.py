"""The translator: an encoder-decoder transformer."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.layers import DecoderBlock, KVCache, Policy
from glasshead.models.config import FeedForwardKind, Positions, TransformerConfig
from glasshead.models.layer_factory import (
    LayerFactory,
    cached_length,
    check_tokens,
    initialize,
    one_each,
)
from glasshead.recipe.masks import Mask, causal, padding


@dataclass(frozen=True, kw_only=True)
class TranslatorConfig(TransformerConfig):
    """The config of a `Translator`, in addition to the config of every model.

    Source and target share one vocabulary, its embedding, and the output matrix.

    Attributes:
        num_decoder_layers: Number of decoder blocks; `num_layers` if None.
    """

    positions: Positions = "sinusoidal"
    feed_forward: FeedForwardKind = "relu"
    num_decoder_layers: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order == "parallel" or self.local is not None:
            raise ValueError(
                "a translator needs order='pre' or 'post', and no local layers, got "
                f"order={self.order!r} and local={self.local}."
            )

    @property
    def least_parameters(self) -> int:
        """Number of parameters of the matrices, without building the model."""
        decoders = self.num_decoder_layers or self.num_layers
        return super().least_parameters + decoders * self._block(2)


class Translator(nn.Module):
    """p(y_{t+1} | y_0 … y_t, x) = softmax(W decoder(y, encoder(x))_t), of a source x, a target y.

    Args:
        config: The config.

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
        self.embedding = parts.embedding(scale=config.d_model**0.5)
        self.encoder = parts.encoder_blocks()
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
        """Compute the logits of the next token at each position of the target.

        Args:
            source: Token ids of the source texts, padded on the right.
            lengths: Number of real tokens of each source text.
            target: Token ids of the translations so far, padded on the right.

        Errors: a TypeError or ValueError if tokens are outside the vocabulary, or more than
        `context_length`, and if the lengths are not one number per text.
        """
        return self.decode(target, self.encode(source, lengths), lengths)

    def encode(
        self, source: Int[Tensor, "batch source_length"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch source_length d_model"]:
        """Encode the source."""
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
        """Compute the next-token logits at each target position; with a cache, at the new ones."""
        x = self._embedded(target, "target", cached_length(cache, len(self.decoder)))
        mask: Mask = padding(one_each(lengths, "lengths", target))
        for number, block in enumerate(self.decoder):
            caches = {}
            if cache is not None:
                caches = {"cache": cache.own[number], "source_cache": cache.crossed[number]}
            x = block(x, memory, source_mask=mask, **caches)
        return F.linear(self.decoder_norm(x), self.embedding.tokens.weight)

    def new_cache(self, policy: Policy | None = None) -> KVCache:
        """Return an empty cache for translation; keys of the source are kept under every policy."""
        return KVCache(policy)

    def _embedded(self, tokens: Tensor, name: str, start: int) -> Tensor:
        room = self.config.context_length - start
        check_tokens(tokens, name, self.config.vocab_size, room)
        where = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        return self.embedding(tokens, where)


class TranslatorSteps:
    """Decoding steps of a translator with a cache; a `Steps` of `models.decoding`.

    Args:
        model: The translator.
        source: Token ids of the source texts, padded on the right.
        lengths: Number of real tokens of each source text.
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
        """Feed tokens, and return the logits of the next one."""
        logits = self.model.decode(tokens, self._memory, self._lengths, cache=self._cache)
        return logits[:, -1]

    def reorder(self, rows: Int[Tensor, " rows"]) -> None:
        """Reorder the rows: row i becomes the former row `rows[i]`."""
        self._cache.reorder(rows)
        self._memory = self._memory[rows]
        self._lengths = self._lengths[rows.to(self._lengths.device)]
