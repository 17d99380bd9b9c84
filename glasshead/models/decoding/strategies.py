"""Decoding strategies: greedy and sampling, and the repetition penalty."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from glasshead.models.decoding.generation import (
    Generated,
    Hypothesis,
    NextTokens,
    Request,
    Strategy,
    Turn,
)
from glasshead.recipe.validation import finite, positive, whole_number


def largest(
    values: Float[Tensor, "rows places"], count: int
) -> tuple[Float[Tensor, "rows count"], Int[Tensor, "rows count"]]:
    """Return the `count` largest values of each row and their indices; of equals the lower first.

    Rows with fewer values return all of them.

    >>> import torch
    >>> largest(torch.tensor([[1.0, 3.0, 2.0, 3.0, 2.0]]), 3)
    (tensor([[3., 3., 2.]]), tensor([[1, 3, 2]]))
    """
    count = min(count, values.shape[-1])
    # One more shows whether there is a tie at the cut, which topk breaks arbitrarily.
    top, places = values.topk(min(count + 1, values.shape[-1]))
    if (top[:, count - 1 : -1] == top[:, count:]).any():
        ordered = values.sort(dim=-1, descending=True, stable=True)
        return ordered.values[:, :count], ordered.indices[:, :count]
    top, places = top[:, :count], places[:, :count]
    places, by_place = places.sort(-1)
    top, rank = top.gather(-1, by_place).sort(dim=-1, descending=True, stable=True)
    return top, places.gather(-1, rank)


# Chooses the token of each open row; rows are given by their index in the prompt.
Choose = Callable[[NextTokens, Sequence[int]], Int[Tensor, " rows"]]


class OneByOne(Strategy):
    """A strategy that finalizes each token before the next one."""

    @abstractmethod
    def chooser(self, request: Request) -> Choose:
        """Return the function that chooses the tokens of one generation."""

    def decode(self, request: Request) -> Generated:
        count = len(request.prompt)
        tokens: list[list[int]] = [[] for _ in range(count)]
        sums = [0.0] * count
        ended = [False] * count
        for turn in self.turns(request):
            for row, token, log_probability in zip(*turn, strict=True):
                sums[row] += log_probability
                if token in request.ends:
                    ended[row] = True
                else:
                    tokens[row].append(token)
        texts = zip(tokens, sums, sums, ended, strict=True)
        return Generated([[Hypothesis(*text)] for text in texts])

    # As a decorator, which restores the caller's gradient mode between steps.
    @torch.no_grad()
    def turns(self, request: Request) -> Iterator[Turn]:
        choose = self.chooser(request)
        rows, fed = list(range(len(request.prompt))), request.prompt
        for length in range(1, request.max_tokens + 1):
            if not rows:
                return
            following = request.next(fed)
            chosen = choose(following, rows)
            turn = Turn(rows, chosen.tolist(), following.log_probabilities_of(chosen))
            yield turn
            open_ = [place for place, token in enumerate(turn.tokens) if token not in request.ends]
            if len(open_) < len(rows):
                kept = torch.tensor(open_, device=chosen.device, dtype=torch.long)
                rows, chosen = [rows[place] for place in open_], chosen[kept]
                if rows and length < request.max_tokens:
                    request.steps.reorder(kept)
            fed = chosen[:, None].to(request.prompt.dtype)


def penalized(
    logits: Float[Tensor, "rows vocab"], present: Bool[Tensor, "rows vocab"], penalty: float
) -> Float[Tensor, "rows vocab"]:
    """Penalize repeated tokens: logit_v / penalty where positive, logit_v · penalty where not.

    Args:
        logits: Logits of the next token.
        present: Whether each token already occurs in the text.
        penalty: Above 1 it discourages repetition, below 1 it encourages it.

    Source: Keskar et al. 2019 (CTRL), section 4.1, which divides; negative logits are multiplied,
    as division would make their tokens likelier.

    >>> penalized(torch.tensor([[3.0, -3.0, 3.0]]), torch.tensor([[True, True, False]]), 1.5)
    tensor([[ 2.0000, -4.5000,  3.0000]])
    """
    weaker = torch.where(logits > 0, logits / penalty, logits * penalty)
    # Overflow becomes the largest number, so that every penalty leaves a token to choose.
    return torch.where(present & logits.isfinite(), weaker.nan_to_num(), logits)


def penalizing(choose: Choose, penalty: float, request: Request) -> Choose:
    """Wrap a choice to penalize repetition; with a penalty of 1, return `choose` itself."""
    if penalty == 1:
        return choose
    present: Bool[Tensor, "all_rows vocab"] | None = None

    def chosen(following: NextTokens, rows: Sequence[int]) -> Int[Tensor, " rows"]:
        nonlocal present
        logits = following.logits
        if present is None:
            present = _tokens_present(request, logits)
        places = torch.tensor(rows, device=logits.device)
        weaker = penalized(logits, present[places], penalty)
        tokens = choose(replace(following, logits=weaker), rows)
        present[places, tokens] = True
        return tokens

    return chosen


def _tokens_present(request: Request, logits: Tensor) -> Bool[Tensor, "rows vocab"]:
    """Return which tokens occur in each row of the prompt."""
    prompt = request.prompt
    length = torch.arange(prompt.shape[1], device=prompt.device)
    real = length >= request.padding.to(prompt.device)[:, None]
    rows, _ = real.nonzero(as_tuple=True)
    present = torch.zeros(len(prompt), logits.shape[-1], dtype=torch.bool, device=logits.device)
    present[rows.to(logits.device), prompt[real].long().to(logits.device)] = True
    return present


@dataclass(frozen=True)
class Greedy(OneByOne):
    """Greedy decoding: token_t = argmax_v p(v | the tokens before t); of equals the lower token.

    Args:
        repetition_penalty: Divisor of the positive, and factor of the negative logits of tokens
            that already occur in the row, its prompt included.

    Errors: a TypeError or ValueError if the penalty is not a number above 0.

    Source: Keskar et al. 2019 (CTRL), section 4.1, for the penalty.

    >>> from types import SimpleNamespace
    >>> import torch
    >>> from glasshead.models.decoding import generate
    >>> p = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.3, 0.6], [0.4, 0.4, 0.2]])     # a Markov chain
    >>> chain = SimpleNamespace(next=lambda x: p[x[:, -1]].log(), reorder=lambda rows: None)
    >>> generate(chain, torch.tensor([[0]]), Greedy(), max_tokens=4).tokens
    [[1, 2, 0, 1]]
    """

    _: KW_ONLY
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        penalty = positive(self.repetition_penalty, "Greedy(repetition_penalty=…)")
        object.__setattr__(self, "repetition_penalty", penalty)

    def chooser(self, request: Request) -> Choose:
        return penalizing(likeliest, self.repetition_penalty, request)


def likeliest(following: NextTokens, rows: Sequence[int]) -> Int[Tensor, " rows"]:
    """Return the likeliest token of each row."""
    del rows
    logits = following.logits
    # Both return the first of equals; on the CPU NumPy's argmax is several times as fast.
    return (
        torch.from_numpy(logits.detach().numpy().argmax(-1)) if logits.is_cpu else logits.argmax(-1)
    )


# So many tokens nearly always reach the mass of top_p, and sorting all is slow.
_FEW = 128


@dataclass(frozen=True)
class Sampling(OneByOne):
    """Sampling: token_t ~ q, where q_v ∝ exp(logit_v / temperature) over the kept tokens.

    `top_k` keeps the k likeliest tokens; of these `top_p` keeps the smallest set of likeliest
    tokens whose renormalized mass reaches p, at least one. Of equally likely tokens the lower is
    kept first.

    Each row has its own random generator, seeded by (seed, row number), and draws one number per
    token: it generates the same text in any batch.

    Args:
        temperature: Sampling temperature; lower is more conservative, 0 is `Greedy()`.
        top_k: Number of tokens kept; all if not given, or if there are fewer.
        top_p: Probability mass kept, above 0 up to 1; all if not given.
        seed: Random seed; drawn from torch's own generator if not given.
        repetition_penalty: Divisor of the positive, and factor of the negative logits of tokens
            that already occur in the row, its prompt included, before all else.

    Errors: a TypeError or ValueError for numbers out of these ranges.

    Source: Holtzman et al. 2020 (The curious case of neural text degeneration), sections 3.1
    (top-p), 3.2 (top-k) and 3.3 (temperature); Keskar et al. 2019 (CTRL), section 4.1 (penalty).

    >>> from types import SimpleNamespace
    >>> import torch
    >>> from glasshead.models.decoding import generate
    >>> p = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.3, 0.6], [0.4, 0.4, 0.2]])     # a Markov chain
    >>> chain = SimpleNamespace(next=lambda x: p[x[:, -1]].log(), reorder=lambda rows: None)
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
            "repetition_penalty": positive(
                self.repetition_penalty, "Sampling(repetition_penalty=…)"
            ),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def probabilities(self, logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
        """Compute q, the sampling distribution, in float64; 0 for tokens that are not kept.

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
        # Below 2**60, like any other seed.
        seed = int(torch.randint(2**60, ())) if self.seed is None else self.seed
        generators = [np.random.Generator(np.random.PCG64([seed, row])) for row in request.rows]

        def draw(following: NextTokens, rows: Sequence[int]) -> Int[Tensor, " rows"]:
            uniform = [generators[row].random() for row in rows]
            # On the CPU, as not every device has float64.
            return self._drawn(following.logits.cpu(), uniform).to(following.logits.device)

        return draw

    def _drawn(
        self, logits: Float[Tensor, "rows vocab"], uniform: Sequence[float]
    ) -> Int[Tensor, " rows"]:
        """Draw the token of each row by inverting the cumulative mass at a uniform number."""
        kept, tokens = self._kept(logits)
        reached = kept.cumsum(-1)
        # In (0, total mass], even with rounding: the first index that reaches it has a mass above
        # 0.
        share = 1 - torch.tensor(uniform, dtype=torch.float64, device=logits.device)[:, None]
        places = torch.searchsorted(reached, share * reached[:, -1:])
        return (places if tokens is None else tokens.gather(-1, places)).squeeze(-1)

    def _kept(
        self, logits: Float[Tensor, "rows vocab"]
    ) -> tuple[Float[Tensor, "rows some"], Int[Tensor, "rows some"] | None]:
        """Return the masses of the candidate tokens, and their ids; None: all, in order."""
        tokens = None
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            logits, tokens = largest(logits, self.top_k)
        # Relative to the largest, so that exp does not overflow at any temperature.
        shifted = (logits - logits.amax(-1, keepdim=True)).double()
        masses = (shifted / self.temperature).softmax(-1)
        if self.top_p is None or self.top_p == 1:
            return masses, tokens
        masses, places = _nucleus(masses, self.top_p)
        return masses, places if tokens is None else tokens.gather(-1, places)


def _nucleus(
    masses: Float[Tensor, "rows places"], top_p: float
) -> tuple[Float[Tensor, "rows some"], Int[Tensor, "rows some"]]:
    """Return the largest masses that reach `top_p`, 0 for the others, and their indices."""
    count = _FEW
    while True:
        kept, places = largest(masses, count)
        reached = kept.cumsum(-1)
        if count >= masses.shape[-1] or (reached[:, -1] >= top_p).all():
            return kept.masked_fill(pad(reached[:, :-1], (1, 0)) >= top_p, 0.0), places
        count *= _FEW


def _temperature(value: Any) -> float:
    if finite(value, "Sampling(temperature=…)") < 0:
        raise ValueError(f"Sampling(temperature=…) must be at least 0, got {value!r}.")
    return float(value)


def _mass(value: Any) -> float | None:
    if value is not None and not 0 < finite(value, "Sampling(top_p=…)") <= 1:
        raise ValueError(f"Sampling(top_p=…) must be above 0 and at most 1, got {value!r}.")
    return None if value is None else float(value)


def _or_none(value: Any, name: str, *, least: int) -> int | None:
    return None if value is None else whole_number(value, f"Sampling({name}=…)", least=least)
