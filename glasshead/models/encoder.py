"""The encoder: a bidirectional transformer, and a masked language model on top."""

from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.layers import EncoderBlock
from glasshead.models.config import TransformerConfig
from glasshead.models.layer_factory import LayerFactory, check_tokens, initialize, one_each
from glasshead.recipe.masks import padding


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(TransformerConfig):
    """The config of an `Encoder`, in addition to the config of every model.

    Attributes:
        embedding_norm: Whether embeddings are normalized, as in BERT.
        first_norm: Whether the first attention normalizes its input; ModernBERT omits it, as
            its embeddings are normalized already.
        segments: Number of segment embeddings; None: no segments.
        tied: Whether the output matrix of a `MaskedLanguageModel` is the embedding's.
    """

    embedding_norm: bool = False
    first_norm: bool = True
    segments: int | None = None
    tied: bool = True


class Encoder(nn.Module):
    """norm(blocks(embedding(tokens))): contextual embeddings of all tokens.

    Args:
        config: The config.

    Source: Devlin et al. 2019 (BERT), section 3.

    >>> import torch
    >>> import glasshead as gh
    >>> model = gh.Encoder(gh.EncoderConfig(vocab_size=11, d_model=12, num_heads=3))
    >>> model(torch.tensor([[3, 1, 4], [1, 5, 0]]), torch.tensor([3, 2])).shape
    torch.Size([2, 3, 12])
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        parts = LayerFactory(config)
        count, width = config.segments, config.d_model
        self.embedding = parts.embedding(
            norm=parts.norm(width) if config.embedding_norm else None,
            segments=None if count is None else nn.Embedding(count, width),
        )
        self.blocks = parts.encoder_blocks()
        if not config.first_norm:
            cast("EncoderBlock", self.blocks[0]).around_attention.norm = nn.Identity()
        self.norm = parts.last_norm()
        initialize(self, self.blocks)

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        lengths: Int[Tensor, " batch"] | None = None,
        *,
        segments: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        """Compute the contextual embedding of each token.

        Args:
            tokens: Token ids, padded on the right.
            lengths: Number of real tokens of each text; all if not given. Padding is masked.
            segments: Segment of each token; the first if not given.

        Errors: a TypeError or ValueError if tokens are outside the vocabulary, or more than
        `context_length`, and if the lengths or segments do not fit them.
        """
        config = self.config
        check_tokens(tokens, "tokens", config.vocab_size, config.context_length)
        if segments is not None:
            if config.segments is None:
                raise ValueError(
                    "segments needs a model with segments, got one without. Omit it, or build the "
                    "model with segments=2."
                )
            check_tokens(segments, "segments", config.segments, config.context_length)
            if segments.shape != tokens.shape:
                raise ValueError(
                    f"segments must have a number for each token, {list(tokens.shape)}, got "
                    f"{list(segments.shape)}."
                )
        mask = None if lengths is None else padding(one_each(lengths, "lengths", tokens))
        where = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embedding(tokens, where, segments)  # [batch, length, d_model]
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.norm(x)


class MaskedLanguageModel(nn.Module):
    """p(token_t | all others) = softmax(W norm(activation(W_h encoder(tokens)_t + b_h)) + b).

    The feed-forwards use the same activation.

    Args:
        config: The config of its encoder.

    Source: Devlin et al. 2019 (BERT), section 3.1, and its code.

    >>> import torch
    >>> import glasshead as gh
    >>> config = gh.EncoderConfig(vocab_size=11, d_model=12, num_heads=3)
    >>> gh.MaskedLanguageModel(config)(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3, 11])
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.hidden = nn.Linear(config.d_model, config.d_model, bias=config.bias)
        parts = LayerFactory(config)
        self.norm, self.activation = parts.norm(config.d_model), parts.activation()
        self.output = (
            None if config.tied else nn.Linear(config.d_model, config.vocab_size, bias=False)
        )
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        initialize(self, self.encoder.blocks)

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        lengths: Int[Tensor, " batch"] | None = None,
        *,
        segments: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length vocab"]:
        """Compute the logits of each token from its position and all others; see `Encoder`."""
        x = self.encoder(tokens, lengths, segments=segments)
        x = self.norm(self.activation(self.hidden(x)))
        words = self.encoder.embedding.tokens if self.output is None else self.output
        return F.linear(x, words.weight, self.bias)
