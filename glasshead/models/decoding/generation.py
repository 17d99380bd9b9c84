"""Generation: all texts at once, or streamed token by token, by any strategy."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.recipe.validation import whole_number, whole_numbers


@runtime_checkable
class Steps(Protocol):
    """A model with the state of a generation, for several rows at once.

    Each row is one text. The state holds all tokens fed so far; a fresh object holds none.

    The smallest is a Markov chain, which remembers the last token alone:

    >>> class Chain:
    ...     logits = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.3, 0.6], [0.4, 0.4, 0.2]]).log()
    ...     def next(self, tokens):
    ...         return self.logits[tokens[:, -1]]
    ...     def reorder(self, rows):
    ...         pass
    >>> isinstance(Chain(), Steps), Chain().next(torch.tensor([[0, 1]])).exp()
    (True, tensor([[0.1000, 0.3000, 0.6000]]))
    """

    def next(self, tokens: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        """Feed each row its next tokens, one or more; return the logits of the following one."""
        ...

    def reorder(self, rows: Int[Tensor, " rows"]) -> None:
        """Reorder rows: row i becomes the former row `rows[i]`; rows may be dropped or repeated."""
        ...


class Chosen(NamedTuple):
    """One token of a stream.

    Attributes:
        row: Index of its row of the prompt.
        token: The token.
        log_probability: Its log-probability, given the tokens before it, in nats.
    """

    row: int
    token: int
    log_probability: float


@dataclass(frozen=True)
class Hypothesis:
    """One generated text of a row.

    Attributes:
        tokens: Generated tokens, without the prompt and the end token.
        score: Ranking score: the log-probability, or for a beam the length-penalized one.
        log_probability: Σ ln p(token | those before), the end token included, in nats.
        ended: Whether the end token was chosen, or the text was cut off after `max_tokens`.
    """

    tokens: list[int]
    score: float
    log_probability: float
    ended: bool


@dataclass(frozen=True)
class Generated:
    """The generated texts of all rows, in the order of the prompt.

    Attributes:
        alternatives: The texts of each row, best first: one, or the `candidates` of a beam.

    >>> one, other = Hypothesis([4, 2], -1.0, -1.0, True), Hypothesis([4], -1.5, -1.5, True)
    >>> generated = Generated([[one, other]])
    >>> generated.tokens, generated.scores, generated.ended
    ([[4, 2]], [-1.0], [True])
    """

    alternatives: list[list[Hypothesis]]

    @property
    def tokens(self) -> list[list[int]]:
        """The best text of each row, without the prompt and the end token."""
        return [best.tokens for best, *_ in self.alternatives]

    @property
    def scores(self) -> list[float]:
        """The score of each best text, in nats; for a beam divided by the length penalty."""
        return [best.score for best, *_ in self.alternatives]

    @property
    def ended(self) -> list[bool]:
        """Whether each best text ended, or was cut off."""
        return [best.ended for best, *_ in self.alternatives]


@dataclass(frozen=True)
class Request:
    """A validated request for generation; `requested` builds it from a caller's arguments.

    Attributes:
        steps, prompt, max_tokens: See `generate`.
        ends: End-of-sequence tokens.
        never: Tokens to suppress.
        rows: Row numbers.
        padding: Number of padding tokens on the left of each row.
    """

    steps: Steps
    prompt: Int[Tensor, "rows length"]
    max_tokens: int
    ends: tuple[int, ...]
    never: Int[Tensor, " tokens"]
    rows: tuple[int, ...]
    padding: Int[Tensor, " rows"]

    def next(self, tokens: Int[Tensor, "rows new"]) -> "NextTokens":
        """Feed tokens, and return the distribution of the next one.

        Errors: a ValueError or TypeError for invalid logits.
        """
        logits = self.steps.next(tokens)
        _check_logits(logits, len(tokens))
        if tokens is self.prompt:
            self._check_vocabulary(logits.shape[-1])
        logits = logits if logits.dtype == torch.float64 else logits.float()
        total = logits.logsumexp(-1).tolist()
        # Checked as Python numbers: tensor operations would cost as much as a small model's step.
        if not all(map(math.isfinite, total)):
            raise _no_sum(total)
        if len(self.never):
            logits = logits.index_fill(-1, self.never.to(logits.device), -torch.inf)
            if -math.inf in logits.amax(-1).tolist():
                raise ValueError(
                    f"never={(*self.never.tolist(),)} must allow a token at each step, got a step "
                    "at which every other token has probability 0. Forbid fewer."
                )
        return NextTokens(logits, total)

    def _check_vocabulary(self, size: int) -> None:
        for name, tokens in (("end", self.ends), ("never", self.never.tolist())):
            if max(tokens, default=-1) >= size:
                raise ValueError(
                    f"{name} must be within the vocabulary, 0 to {size - 1}, got {max(tokens)}."
                )


@dataclass(frozen=True)
class NextTokens:
    """The distribution of the next token.

    Attributes:
        logits: Logits, -inf for suppressed tokens.
        total: ln Σ exp(logit) of each row, over all tokens, suppressed ones included.
    """

    logits: Float[Tensor, "rows vocab"]
    total: list[float]

    def log_probabilities(self, logits: Float[Tensor, "rows some"]) -> Float[Tensor, "rows some"]:
        """Compute ln p of tokens from their logits, in float64 on the CPU, for exact long sums."""
        total = torch.tensor(self.total, dtype=torch.float64)[:, None]
        # A probability rounds to at most 1; the bound of a beam relies on it.
        return (logits.cpu().double() - total).clamp(max=0.0)

    def log_probabilities_of(self, tokens: Int[Tensor, " rows"]) -> list[float]:
        """Compute ln p of one token per row, as Python floats."""
        logits = self.logits.gather(-1, tokens[:, None]).flatten().tolist()
        return [min(one - all_, 0.0) for one, all_ in zip(logits, self.total, strict=True)]


def _check_logits(logits: Any, rows: int) -> None:
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        got = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        raise TypeError(f"steps.next must return logits as a floating-point tensor, got {got}.")
    if logits.ndim != 2 or logits.shape[0] != rows or not logits.shape[1]:
        raise ValueError(
            f"steps.next must return logits [{rows}, vocabulary] for {rows} rows, got shape "
            f"{list(logits.shape)}."
        )


def _no_sum(total: Sequence[float]) -> ValueError:
    """Return the error for a logsumexp that is not finite: from NaN, +inf, or all -inf."""
    if -math.inf in total:
        return ValueError(
            "steps.next must give at least one token a probability above 0, got a row of logits "
            "that are all -inf. Check what masks them."
        )
    found = "NaN" if any(map(math.isnan, total)) else "+inf"
    return ValueError(
        f"steps.next must return logits that are finite or -inf, got {found}. Check the model's "
        "weights, its precision and its input."
    )


class Turn(NamedTuple):
    """One decoding step of the open rows."""

    rows: list[int]
    tokens: list[int]
    log_probabilities: list[float]


class Strategy(ABC):
    """A strategy for choosing the tokens of a text."""

    @abstractmethod
    def decode(self, request: Request) -> Generated:
        """Generate the texts of all rows."""

    @abstractmethod
    def turns(self, request: Request) -> Iterator[Turn]:
        """Iterate over the decoding steps.

        Errors: a ValueError, at once, if no token is final before the whole text is.
        """


def generate(
    steps: Steps,
    prompt: Int[Tensor, "rows length"],
    strategy: Strategy,
    *,
    max_tokens: int,
    end: int | Sequence[int] | None = None,
    never: Sequence[int] = (),
    rows: Sequence[int] | None = None,
    padding: Sequence[int] | Int[Tensor, " rows"] | None = None,
) -> Generated:
    """Generate a text for each row of the prompt.

    The steps are fed the entire prompt, then the chosen tokens one at a time. A finished row leaves
    the batch, which changes nothing for the others. Scores come from the unmodified model, log
    softmax of its logits, whatever tokens the strategy or `never` exclude or penalize.

    Args:
        steps: The model, as fresh decoding steps.
        prompt: Token ids of the prompts, padded on the left if they differ in length; the steps
            have their own record of the padding.
        strategy: `Greedy()`, `Sampling(…)` or `Beam(width)`.
        max_tokens: Maximum number of new tokens, the end token included.
        end: The end-of-sequence token, or several; without one each text has `max_tokens` tokens.
        never: Tokens to suppress, such as padding.
        rows: Row numbers, from which `Sampling` derives its random numbers; 0, 1, … if not given. A
            row draws the same in any batch in which it has the same number.
        padding: Number of padding tokens on the left of each row; used by `repetition_penalty`
            only.

    Errors: a TypeError or ValueError for invalid arguments, and if the logits leave no token to
    choose: NaN, +inf, or nothing but -inf and suppressed tokens.

    >>> from types import SimpleNamespace
    >>> import torch
    >>> from glasshead.models.decoding import Greedy
    >>> p = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.3, 0.6], [0.4, 0.4, 0.2]])     # a Markov chain
    >>> chain = SimpleNamespace(next=lambda x: p[x[:, -1]].log(), reorder=lambda rows: None)
    >>> generated = generate(chain, torch.tensor([[0], [1]]), Greedy(), max_tokens=3, end=2)
    >>> generated.tokens, generated.ended                        # 0 → 1 → 2 and 1 → 2
    ([[1], []], [True, True])
    >>> [f"{score:.4f}" for score in generated.scores]           # ln(0.5 · 0.6) and ln 0.6
    ['-1.2040', '-0.5108']
    """
    request = requested(
        steps, prompt, max_tokens=max_tokens, end=end, never=never, rows=rows, padding=padding
    )
    return _checked(strategy).decode(request)


def stream(
    steps: Steps,
    prompt: Int[Tensor, "rows length"],
    strategy: Strategy,
    *,
    max_tokens: int,
    end: int | Sequence[int] | None = None,
    never: Sequence[int] = (),
    rows: Sequence[int] | None = None,
    padding: Sequence[int] | Int[Tensor, " rows"] | None = None,
) -> Iterator[Chosen]:
    """Stream the tokens of `generate`: the next one of each row, then again.

    The model runs when a token is requested. End tokens are not yielded; a row without further
    tokens has ended, or has `max_tokens`.

    Args:
        steps, prompt, strategy, max_tokens, end, never, rows, padding: See `generate`.

    Errors: as for `generate`, and a ValueError for a beam, which cannot stream.

    >>> from types import SimpleNamespace
    >>> import torch
    >>> from glasshead.models.decoding import Greedy
    >>> p = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.3, 0.6], [0.4, 0.4, 0.2]])     # a Markov chain
    >>> chain = SimpleNamespace(next=lambda x: p[x[:, -1]].log(), reorder=lambda rows: None)
    >>> for row, token, _ in stream(chain, torch.tensor([[0], [1]]), Greedy(), max_tokens=2):
    ...     print(row, token)
    0 1
    1 2
    0 2
    1 0
    """
    request = requested(
        steps, prompt, max_tokens=max_tokens, end=end, never=never, rows=rows, padding=padding
    )
    turns = _checked(strategy).turns(request)
    chosen = (Chosen(*one) for turn in turns for one in zip(*turn, strict=True))
    return (one for one in chosen if one.token not in request.ends)


def requested(
    steps: Any,
    prompt: Any,
    *,
    max_tokens: Any,
    end: Any,
    never: Any,
    rows: Any,
    padding: Any,
) -> Request:
    """Validate a caller's arguments, and build the request.

    Errors: a TypeError or ValueError for invalid arguments.
    """
    if not isinstance(steps, Steps):
        raise TypeError(
            "steps must be an object with next(tokens) and reorder(rows), got "
            f"{type(steps).__name__}, which lacks one of them."
        )
    _check_prompt(prompt)
    return Request(
        steps=steps,
        prompt=prompt,
        max_tokens=whole_number(max_tokens, "max_tokens", least=1),
        ends=() if end is None else _tokens(end, "end"),
        never=torch.tensor(_tokens(never, "never"), dtype=torch.long),
        rows=tuple(range(len(prompt))) if rows is None else _one_each(rows, "rows", prompt),
        padding=torch.tensor(
            [0] * len(prompt) if padding is None else _one_each(padding, "padding", prompt),
            dtype=torch.long,
        ),
    )


def _check_prompt(prompt: Any) -> None:
    if not isinstance(prompt, Tensor):
        raise TypeError(
            "prompt must be a torch.Tensor [rows, length] of tokens, got "
            f"{type(prompt).__name__}. Convert it with torch.tensor()."
        )
    if prompt.dtype not in (torch.int64, torch.int32):
        raise TypeError(
            f"prompt must be tokens as int64 or int32, got {prompt.dtype}. Convert it with .long()."
        )
    if prompt.ndim != 2 or not prompt.shape[1]:
        raise ValueError(
            "prompt must be [rows, length] with at least one token a row, got shape "
            f"{list(prompt.shape)}. Begin an empty text with a start token, and pass one text as "
            "one row."
        )


def _tokens(tokens: Any, name: str) -> tuple[int, ...]:
    numbers = whole_numbers(tokens, name)
    return tuple(whole_number(token, name) for token in numbers.flatten().tolist())


def _one_each(values: Any, name: str, prompt: Tensor) -> tuple[int, ...]:
    numbers = _tokens(values, name)
    if len(numbers) != len(prompt):
        raise ValueError(
            f"{name} must have a number for each of the {len(prompt)} rows of the prompt, got "
            f"{len(numbers)}."
        )
    return numbers


def _checked(strategy: Strategy) -> Strategy:
    if isinstance(strategy, Strategy):
        return strategy
    if isinstance(strategy, type) and issubclass(strategy, Strategy):
        raise TypeError(
            f"strategy must be an object such as Greedy(), got the class {strategy.__name__}. "
            f"Write {strategy.__name__}(…)."
        )
    raise TypeError(
        f"strategy must be Greedy(), Sampling(…) or Beam(width), got {type(strategy).__name__}."
    )
