"""What is to be decoded, checked, and the logits as the steps give them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.models.decoding.steps import Steps
from glasshead.recipe.numbers import whole_number, whole_numbers


@dataclass(frozen=True)
class Request:
    """What is to be decoded; `requested` makes one of a caller's arguments."""

    steps: Steps
    prompt: Int[Tensor, "rows length"]
    max_tokens: int
    end: int | None
    never: tuple[int, ...]
    rows: tuple[int, ...]

    def next(self, tokens: Int[Tensor, "rows new"]) -> "NextTokens":
        """Feed the tokens; what may follow them.

        Errors: a ValueError or TypeError where the steps give no logits that can be chosen from.
        """
        logits = self.steps.next(tokens)
        _check_logits(logits, len(tokens))
        for name, token in (("end", self.end), *(("never", token) for token in self.never)):
            if token is not None and token >= logits.shape[-1]:
                raise ValueError(
                    f"{name} takes tokens of the vocabulary, 0 to {logits.shape[-1] - 1}, "
                    f"and got {token}."
                )
        logits = logits if logits.dtype == torch.float64 else logits.float()
        total = logits.logsumexp(-1).cpu()
        _check_total(total)
        if self.never:
            logits = logits.index_fill(
                -1, torch.tensor(self.never, device=logits.device), -torch.inf
            )
            if logits.amax(-1).isneginf().any():
                raise ValueError(
                    f"never={self.never} leaves a token to choose at each step, and left none that "
                    "has a probability above 0: forbid fewer."
                )
        return NextTokens(logits, total)


@dataclass(frozen=True)
class NextTokens:
    """How likely each token comes next.

    Attributes:
        logits: Of the tokens, -inf for what is never to be chosen.
        total: ln Σ exp(logit) over all tokens, those never chosen too, on the CPU.
    """

    logits: Float[Tensor, "rows vocab"]
    total: Float[Tensor, "rows"]

    def log_probabilities(self, logits: Float[Tensor, "rows some"]) -> Float[Tensor, "rows some"]:
        """ln p of tokens with these logits, in float64 on the CPU, where long sums stay exact."""
        differences = logits.cpu().double() - self.total.double()[:, None]
        # A probability rounds to at most 1; the bound of a beam relies on it.
        return differences.clamp(max=0.0)


def requested(
    steps: Any,
    prompt: Any,
    max_tokens: Any,
    end: Any,
    never: Any,
    rows: Any,
) -> Request:
    """A request of a caller's arguments.

    Errors: a TypeError or ValueError for what cannot be decoded.
    """
    if not isinstance(steps, Steps):
        raise TypeError(
            "steps takes an object with next(tokens) and reorder(rows), and got "
            f"{type(steps).__name__}, which lacks one of them."
        )
    _check_prompt(prompt)
    return Request(
        steps=steps,
        prompt=prompt,
        max_tokens=whole_number(max_tokens, "max_tokens", least=1),
        end=None if end is None else whole_number(end, "end"),
        never=_tokens(never, "never"),
        rows=_row_numbers(rows, len(prompt)),
    )


def _check_prompt(prompt: Any) -> None:
    if not isinstance(prompt, Tensor):
        raise TypeError(
            f"prompt takes a torch.Tensor [rows, length] of tokens, and got "
            f"{type(prompt).__name__}: make one with torch.tensor()."
        )
    if prompt.dtype not in (torch.int64, torch.int32):
        raise TypeError(
            f"prompt takes tokens as int64 or int32, and got {prompt.dtype}: "
            "convert it with .long()."
        )
    if prompt.ndim != 2 or not prompt.shape[1]:
        raise ValueError(
            f"prompt takes [rows, length] with at least one token a row, and got shape "
            f"{list(prompt.shape)}: begin an empty text with a start token, one text with a row."
        )


def _tokens(tokens: Any, name: str) -> tuple[int, ...]:
    numbers = whole_numbers(tokens, name)
    return tuple(whole_number(token, name) for token in numbers.flatten().tolist())


def _row_numbers(rows: Sequence[int] | None, count: int) -> tuple[int, ...]:
    if rows is None:
        return tuple(range(count))
    numbers = _tokens(rows, "rows")
    if len(numbers) != count:
        raise ValueError(
            f"rows takes a number for each of the {count} rows of the prompt, "
            f"and got {len(numbers)}."
        )
    return numbers


def _check_logits(logits: Any, rows: int) -> None:
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        got = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        raise TypeError(f"steps.next gives logits as a floating-point tensor, and gave {got}.")
    if logits.ndim != 2 or logits.shape[0] != rows or not logits.shape[1]:
        raise ValueError(
            f"steps.next gives logits [{rows}, vocabulary] for {rows} rows, and gave shape "
            f"{list(logits.shape)}."
        )


def _check_total(total: Float[Tensor, "rows"]) -> None:
    """The logsumexp is finite unless a row holds NaN or +inf, or nothing but -inf."""
    wrong = total[~total.isfinite()]
    if not len(wrong):
        return
    if wrong.isneginf().any():
        raise ValueError(
            "steps.next gives at least one token a probability above 0, and gave a row of logits "
            "that are all -inf: look at what masks them."
        )
    found = "NaN" if wrong.isnan().any() else "+inf"
    raise ValueError(
        f"steps.next gives logits that are finite or -inf, and gave {found}: look at the model's "
        "weights, its precision and what it was fed."
    )
