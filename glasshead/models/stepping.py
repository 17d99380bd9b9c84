"""Stepping: models as decoding drives them, a few tokens at a time, each computed once."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.layers import Policy
from glasshead.layers.caching.growing import Growing
from glasshead.models.language_model import LanguageModel
from glasshead.models.single_token import SingleToken
from glasshead.models.translator import Translator
from glasshead.recipe.validation import whole_numbers


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
        self._single = SingleToken.prepared(model)
        self._text = Growing()

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
