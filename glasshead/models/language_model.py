"""The language model: a causal transformer that predicts the next token."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.layers import KVCache, Policy
from glasshead.layers.layer_cache import GrowableBuffer
from glasshead.models.config import TransformerConfig
from glasshead.models.fast_decode import FastDecodeStep
from glasshead.models.layer_factory import (
    LayerFactory,
    cached_length,
    check_tokens,
    initialize,
    one_each,
)
from glasshead.recipe.masks import Mask, causal, prefix, window
from glasshead.recipe.validation import whole_numbers


@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig(TransformerConfig):
    """The config of a `LanguageModel`, in addition to the config of every model.

    Attributes:
        tied: Whether the output matrix is the embedding's.
        window: Sliding window: the number of tokens that each token sees, itself included; None:
            all before it. `local` states it for some layers only.
        embedding_scale: Factor of token embeddings, such as √d_model.
        logit_softcap: c of c · tanh(logit / c), as in Gemma 2; None: logits are left as they are.

    >>> LanguageModelConfig(vocab_size=65, context_length=64).hidden
    512
    """

    tied: bool = True
    window: int | None = None
    embedding_scale: float = 1.0
    logit_softcap: float | None = None

    @property
    def least_parameters(self) -> int:
        """Number of parameters of the matrices, without building the model."""
        output = 0 if self.tied else self.vocab_size * self.d_model
        return super().least_parameters + output

    def mask(self, layer: int) -> Mask:
        """Return the mask of the attention of a layer."""
        mask = causal() if self.window is None else causal() & window(before=self.window - 1)
        near = super().mask(layer)
        return mask if near is None else mask & near


class LanguageModel(nn.Module):
    """p(token_{t+1} | token_0 … token_t) = softmax(W norm(blocks(embedding(tokens)))_t).

    Args:
        config: The config.

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
        self.embedding = parts.embedding(scale=config.embedding_scale)
        self.blocks = parts.encoder_blocks()
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
        """Compute the logits of the next token at each position; see `hidden`."""
        return self.logits(self.hidden(tokens, padding=padding, cache=cache))

    def hidden(
        self,
        tokens: Int[Tensor, "batch length"],
        *,
        padding: Int[Tensor, " batch"] | None = None,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        """Compute the normalized output of the last block.

        Args:
            tokens: Token ids of texts of equal length; with a cache, the new tokens only.
            padding: Number of padding tokens on the left of each text, which are masked.
            cache: The cache of earlier tokens, to which these are appended.

        Errors: a TypeError or ValueError if the tokens are outside the vocabulary, or more than
        `context_length` in all, if the padding is not one number per text, or the cache belongs to
        another model.
        """
        start = cached_length(cache, len(self.blocks))
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
        """Compute the logits of the next token from the output of `hidden`."""
        words = self.embedding.tokens if self.output is None else self.output
        logits, cap = F.linear(hidden, words.weight), self.config.logit_softcap
        return logits if cap is None else cap * (logits / cap).tanh()

    def new_cache(self, policy: Policy | None = None) -> KVCache:
        """Return an empty cache for generation; the policy decides which keys it keeps."""
        return KVCache(policy)

    def steps(
        self, padding: Int[Tensor, " rows"] | None = None, policy: Policy | None = None
    ) -> "LanguageModelSteps":
        """Return the model as an iterator of decoding steps, for `generate`.

        Args:
            padding: Number of padding tokens on the left of each row.
            policy: Policy of the cache; None: keep all keys that a later query can see.
        """
        return LanguageModelSteps(self, padding, policy)


class LanguageModelSteps:
    """Decoding steps of a language model with a cache; a `Steps` of `models.decoding`.

    A text may grow beyond the model's context length. It is then cut to its last half context, as
    if it began there, so that the tokens are the same with a cache as without.

    Args:
        model: The language model.
        padding: Number of padding tokens on the left of each row.
        policy: Policy of the cache; None: keep all keys that a later query can see.

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
        # A subclass may compute something else.
        self._single = FastDecodeStep.prepared(model) if type(model) is LanguageModel else None
        self._text = GrowableBuffer()

    @torch.inference_mode()
    def next(self, tokens: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        """Feed tokens, and return the logits of the next one."""
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
        """Reorder the rows: row i becomes the former row `rows[i]`."""
        self._cache.reorder(rows)
        self._text.reorder(rows)
        if self._padding is not None:
            # It may be on the CPU.
            self._padding = self._padding[rows.to(self._padding.device)]

    def _new_page(self) -> Int[Tensor, "rows kept"]:
        """Start a new cache, and return the end of the text to feed it with."""
        gone = self._text.length - max(1, self.model.config.context_length // 2)
        self._text.forget(gone)
        if self._padding is not None:
            self._padding = (self._padding - gone).clamp(min=0)
        self._cache = self.model.new_cache(self._policy)
        return self._text.held[..., 0]
