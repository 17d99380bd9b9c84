"""The language model: a causal transformer that tells the next token."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.layers import EncoderBlock, KVCache, Policy
from glasshead.models.checks import check_tokens, fed_before, one_each
from glasshead.models.config import TransformerConfig
from glasshead.models.layer_factory import Embedding, LayerFactory, initialize
from glasshead.recipe.masks import Mask, causal, prefix, window

if TYPE_CHECKING:
    from glasshead.models.fast_decode import LanguageModelSteps


@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig(TransformerConfig):
    """What a `LanguageModel` is built from, beside what every model has.

    Attributes:
        tied: Whether the output's matrix is that of the embedding.
        window: How many tokens each token sees at most, itself with them; None: all before it.

    >>> LanguageModelConfig(vocab_size=65, context_length=64).hidden
    512
    """

    tied: bool = True
    window: int | None = None

    @property
    def least_parameters(self) -> int:
        """Count the parameters of the matrices, without building them."""
        output = 0 if self.tied else self.vocab_size * self.d_model
        return super().least_parameters + output

    @property
    def mask(self) -> Mask:
        """Which tokens each token sees."""
        return causal() if self.window is None else causal() & window(before=self.window - 1)


class LanguageModel(nn.Module):
    """p(token_{t+1} | token_0 … token_t) = softmax(W norm(blocks(embedding(tokens)))_t).

    Args:
        config: What it is built from.

    Source: Radford et al. 2019 (GPT-2), section 2; Press and Wolf 2017 (tied weights).

    >>> import torch
    >>> import glasshead as gh
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=2)
    >>> model = gh.LanguageModel(config)
    >>> model(torch.tensor([[3, 1, 4, 1, 5]])).shape
    torch.Size([1, 5, 11])
    """

    def __init__(self, config: LanguageModelConfig) -> None:
        super().__init__()
        self.config = config
        parts = LayerFactory(config)
        self.embedding = Embedding(
            config.vocab_size, config.d_model, parts.positions(), dropout=config.dropout
        )
        self.blocks = nn.ModuleList(
            EncoderBlock(parts.attention(config.mask), parts.feed_forward(), **parts.around())
            for _ in range(config.num_layers)
        )
        self.norm = parts.last_norm()
        self.output = (
            None if config.tied else nn.Linear(config.d_model, config.vocab_size, bias=False)
        )
        initialize(self, self.blocks)

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        *,
        padding: Int[Tensor, " batch"] | None = None,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "batch length vocab"]:
        """The logits of the token after each; see `hidden`."""
        return self.logits(self.hidden(tokens, padding=padding, cache=cache))

    def hidden(
        self,
        tokens: Int[Tensor, "batch length"],
        *,
        padding: Int[Tensor, " batch"] | None = None,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        """What the last block makes of each token, normed.

        Args:
            tokens: Texts of one length; with a cache, the new tokens alone.
            padding: How many tokens at the left of each text are none, which nobody sees.
            cache: What was computed for the tokens before these, and takes in these.

        Errors: a TypeError or ValueError where the tokens are not of the vocabulary, or more than
        `context_length` in all, where the padding is not one number a text, and where the cache is
        that of another model.
        """
        start = fed_before(cache, len(self.blocks))
        check_tokens(tokens, "tokens", self.config.vocab_size, self.config.context_length - start)
        where = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        mask: Mask | None = None
        if padding is not None:
            padding = one_each(padding, "padding", tokens)
            where, mask = (where - padding[:, None]).clamp(min=0), ~prefix(padding)
        x = self.embedding(tokens, where)  # [batch, length, d_model]
        for number, block in enumerate(self.blocks):
            x = block(x, mask=mask, cache=None if cache is None else cache.own[number])
        return self.norm(x)

    def logits(self, hidden: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """The logits of the next token."""
        if self.output is None:
            return F.linear(hidden, self.embedding.tokens.weight)
        return self.output(hidden)

    def new_cache(self, policy: Policy | None = None) -> KVCache:
        """An empty cache, for generation token by token; the policy says which keys it keeps."""
        return KVCache(policy)

    def steps(
        self, padding: Int[Tensor, " rows"] | None = None, policy: Policy | None = None
    ) -> "LanguageModelSteps":
        """The model as `generate` drives it: fed some tokens, it tells what follows.

        Args:
            padding: How many tokens at the left of each row are none.
            policy: Which keys its cache keeps; None: all that a later query can see.
        """
        from glasshead.models.fast_decode import LanguageModelSteps

        return LanguageModelSteps(self, padding, policy)
