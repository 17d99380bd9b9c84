"""The classifier: an encoder whose outputs are pooled to the logits of one answer."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.models.config import TransformerConfig
from glasshead.models.layer_factory import LayerFactory, check_tokens, initialize, one_each
from glasshead.recipe.masks import padding


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(TransformerConfig):
    """The config of a `Classifier`, in addition to the config of every model.

    Attributes:
        num_answers: Number of classes.
        pooling: "mean" or "max" over the tokens, or "both", concatenated.
        embedding_norm: Whether embeddings are normalized, as in BERT.
        embedding_dropout: Dropout probability of embeddings; `dropout` if None.
        word_dropout: Probability of dropping a token from a text, in training only: it is neither
            attended to nor pooled, so that the model cannot rely on a single word.
        initial: Initialization: "normal" for N(0, 0.02²), as in GPT-2; "torch" for the defaults of
            PyTorch's layers.
    """

    num_answers: int = 2
    pooling: Literal["mean", "max", "both"] = "both"
    embedding_norm: bool = False
    embedding_dropout: float | None = None
    word_dropout: float = 0.0
    initial: Literal["normal", "torch"] = "normal"


class Classifier(nn.Module):
    """p(answer | tokens) = softmax(W pool(norm(blocks(embedding(tokens)))) + b).

    Args:
        config: The config.

    Source: word dropout: Iyyer et al. 2015 (deep averaging networks), section 4.

    >>> import torch
    >>> import glasshead as gh
    >>> config = gh.ClassifierConfig(vocab_size=11, d_model=12, num_heads=3, num_answers=2)
    >>> model = gh.Classifier(config)
    >>> model(torch.tensor([[3, 1, 4], [1, 5, 0]]), torch.tensor([3, 2])).shape
    torch.Size([2, 2])
    """

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.config = config
        parts = LayerFactory(config)
        dropout = config.embedding_dropout
        self.embedding = parts.embedding(
            dropout=config.dropout if dropout is None else dropout,
            norm=parts.norm(config.d_model) if config.embedding_norm else None,
        )
        self.blocks = parts.encoder_blocks()
        self.norm = parts.last_norm()
        pooled = config.d_model * (2 if config.pooling == "both" else 1)
        self.answer = nn.Linear(pooled, config.num_answers)
        if config.initial == "normal":
            initialize(self, self.blocks)

    def forward(
        self, tokens: Int[Tensor, "batch length"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch num_answers"]:
        """Compute the logits of the answers.

        Args:
            tokens: Token ids, padded on the right.
            lengths: Number of real tokens of each text; padding has no effect.

        Errors: a TypeError or ValueError if tokens are outside the vocabulary, or more than
        `context_length`, and if the lengths are not one number per text.
        """
        check_tokens(tokens, "tokens", self.config.vocab_size, self.config.context_length)
        lengths = one_each(lengths, "lengths", tokens)
        if self.training and self.config.word_dropout:
            tokens, lengths = _drop_words(tokens, lengths, self.config.word_dropout)
        where = torch.arange(tokens.shape[1], device=tokens.device)
        x, mask = self.embedding(tokens, where), padding(lengths)
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.answer(self._pooled(self.norm(x), where < lengths[:, None]))

    def _pooled(self, x: Tensor, real: Tensor) -> Tensor:
        # An empty text is pooled to 0, instead of 0 / 0 or the maximum of an empty set.
        x, real = F.pad(x, (0, 0, 0, 1)), F.pad(real, (0, 1))[..., None]
        pools = {
            "mean": lambda: (x * real).sum(1) / real.sum(1).clamp(min=1),
            "max": lambda: x.masked_fill(~real, -torch.inf).amax(1).masked_fill(~real.any(1), 0.0),
        }
        names = ("mean", "max") if self.config.pooling == "both" else (self.config.pooling,)
        return torch.cat([pools[name]() for name in names], dim=-1)


def _drop_words(
    tokens: Int[Tensor, "batch length"], lengths: Int[Tensor, " batch"], share: float
) -> tuple[Int[Tensor, "batch shorter"], Int[Tensor, " batch"]]:
    """Drop a share of the tokens of each text; return the texts and their new lengths."""
    where = torch.arange(tokens.shape[1], device=tokens.device)
    kept = (torch.rand(tokens.shape, device=tokens.device) >= share) & (where < lengths[:, None])
    order = kept.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
    lengths = kept.sum(1)
    return tokens.gather(1, order)[:, : max(1, int(lengths.max()))], lengths
