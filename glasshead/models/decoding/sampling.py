"""Tokens drawn at random, as likely as the model holds them to be."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from glasshead.models.decoding.greedy import likeliest
from glasshead.models.decoding.largest import largest
from glasshead.models.decoding.repetition import checked_penalty, penalizing
from glasshead.models.decoding.request import NextTokens, Request
from glasshead.models.decoding.strategy import Choose, OneByOne
from glasshead.recipe.validation import finite, whole_number

# So many tokens nearly always reach a mass that is asked for, and to sort them all is slow.
_FEW = 128


@dataclass(frozen=True)
class Sampling(OneByOne):
    """token_t ~ q, where q_v ∝ exp(logit_v / temperature) over the tokens that are kept.

    `top_k` keeps the k likeliest; of these `top_p` keeps the likeliest until their mass, 1 for all
    that `top_k` kept, reaches p: the smallest such set, one token at least. Of equally likely
    tokens the lower is kept first.

    Each row draws from a generator of its own, seeded by (seed, the number of the row), one number
    a token: the same text in any batch.

    Args:
        temperature: Below 1 sharper, above 1 flatter; 0 is `Greedy()`.
        top_k: How many tokens are kept; all if not given, or if there are fewer.
        top_p: The mass that is kept, above 0 up to 1; all if not given.
        seed: What the draws are a function of; drawn from torch's own generator if not given.
        repetition_penalty: What the logits of tokens that stand in the row already, the prompt with
            it, are divided by where positive and multiplied by where negative, before all else.

    Errors: a TypeError or ValueError for numbers out of these ranges.

    Source: Holtzman et al. 2020 (The curious case of neural text degeneration), sections 3.1
    (top-p), 3.2 (top-k) and 3.3 (temperature); Keskar et al. 2019 (CTRL), section 4.1 (penalty).

    >>> from glasshead.models.decoding import generate
    >>> from glasshead.models.decoding.chain import Chain
    >>> chain = Chain([[0.2, 0.5, 0.3], [0.1, 0.3, 0.6], [0.4, 0.4, 0.2]])
    >>> generate(chain, torch.tensor([[0], [0]]), Sampling(seed=1), max_tokens=8).tokens
    [[1, 0, 2, 0, 1, 2, 0, 1], [1, 1, 2, 2, 0, 2, 2, 1]]
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    _: KW_ONLY
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        checked = {
            "temperature": _temperature(self.temperature),
            "top_k": _or_none(self.top_k, "top_k", least=1),
            "top_p": _mass(self.top_p),
            "seed": _or_none(self.seed, "seed", least=0),
            "repetition_penalty": checked_penalty(self.repetition_penalty, "Sampling"),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def probabilities(self, logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
        """q, the distribution that is drawn from, in float64; 0 for what is not kept.

        >>> logits = torch.tensor([[0.5, 0.125, 0.25, 0.125]]).log()
        >>> Sampling(top_k=2).probabilities(logits)
        tensor([[0.6667, 0.0000, 0.3333, 0.0000]], dtype=torch.float64)
        >>> Sampling(temperature=0.5, top_p=0.9).probabilities(logits)
        tensor([[0.8000, 0.0000, 0.2000, 0.0000]], dtype=torch.float64)
        """
        if self.temperature == 0:
            return torch.zeros_like(logits, dtype=torch.float64).scatter(
                -1, logits.argmax(-1, keepdim=True), 1.0
            )
        kept, tokens = self._kept(logits)
        kept = kept / kept.sum(-1, keepdim=True)
        return (
            kept if tokens is None else torch.zeros_like(logits).double().scatter(-1, tokens, kept)
        )

    def chooser(self, request: Request) -> Choose:
        choose = likeliest if self.temperature == 0 else self._drawing(request)
        return penalizing(choose, self.repetition_penalty, request)

    def _drawing(self, request: Request) -> Choose:
        # Below 2**60, as any other seed.
        seed = int(torch.randint(2**60, ())) if self.seed is None else self.seed
        generators = [np.random.Generator(np.random.PCG64([seed, row])) for row in request.rows]

        def draw(following: NextTokens, rows: Sequence[int]) -> Int[Tensor, "rows"]:
            uniform = [generators[row].random() for row in rows]
            # On the CPU, as not every device has float64.
            return self._drawn(following.logits.cpu(), uniform).to(following.logits.device)

        return draw

    def _drawn(
        self, logits: Float[Tensor, "rows vocab"], uniform: Sequence[float]
    ) -> Int[Tensor, "rows"]:
        """The token of each row at which the mass, summed up so far, reaches a point below it."""
        kept, tokens = self._kept(logits)
        reached = kept.cumsum(-1)
        # Above 0 and at most the whole mass, as rounded: the first place that reaches such a point
        # has a mass of its own.
        share = 1 - torch.tensor(uniform, dtype=torch.float64, device=logits.device)[:, None]
        places = torch.searchsorted(reached, share * reached[:, -1:])
        return (places if tokens is None else tokens.gather(-1, places)).squeeze(-1)

    def _kept(
        self, logits: Float[Tensor, "rows vocab"]
    ) -> tuple[Float[Tensor, "rows some"], Int[Tensor, "rows some"] | None]:
        """The masses of the tokens that may be kept, and which these are; None: all, in order."""
        tokens = None
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            logits, tokens = largest(logits, self.top_k)
        # Against the largest first: no temperature is so low that exp overflows.
        shifted = (logits - logits.amax(-1, keepdim=True)).double()
        masses = (shifted / self.temperature).softmax(-1)
        if self.top_p is None or self.top_p == 1:
            return masses, tokens
        masses, places = _nucleus(masses, self.top_p)
        return masses, places if tokens is None else tokens.gather(-1, places)


def _nucleus(
    masses: Float[Tensor, "rows places"], top_p: float
) -> tuple[Float[Tensor, "rows some"], Int[Tensor, "rows some"]]:
    """The largest masses that reach `top_p`, 0 for the others, and their places."""
    count = _FEW
    while True:
        kept, places = largest(masses, count)
        reached = kept.cumsum(-1)
        if count >= masses.shape[-1] or (reached[:, -1] >= top_p).all():
            return kept.masked_fill(pad(reached[:, :-1], (1, 0)) >= top_p, 0.0), places
        count *= _FEW


def _temperature(value: Any) -> float:
    if finite(value, "Sampling(temperature=…)") < 0:
        raise ValueError(
            f"Sampling(temperature=…) takes a number of at least 0, and got {value!r}."
        )
    return float(value)


def _mass(value: Any) -> float | None:
    if value is not None and not 0 < finite(value, "Sampling(top_p=…)") <= 1:
        raise ValueError(f"Sampling(top_p=…) takes a mass above 0 up to 1, and got {value!r}.")
    return None if value is None else float(value)


def _or_none(value: Any, name: str, *, least: int) -> int | None:
    return None if value is None else whole_number(value, f"Sampling({name}=…)", least=least)
