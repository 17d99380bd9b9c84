"""Repetition: what makes tokens that stand in a text already less likely to come again."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glasshead.models.decoding.request import NextTokens, Request
from glasshead.models.decoding.strategy import Choose
from glasshead.recipe.validation import positive


def penalized(
    logits: Float[Tensor, "rows vocab"], standing: Bool[Tensor, "rows vocab"], penalty: float
) -> Float[Tensor, "rows vocab"]:
    """logit_v / penalty where it is positive, logit_v · penalty where not, of tokens that stand.

    Args:
        logits: Of the tokens that may follow.
        standing: Whether each stands in the text already.
        penalty: Above 1 against repetition, below 1 for it.

    Source: Keskar et al. 2019 (CTRL), section 4.1, which divides; negative logits are multiplied,
    as division would make their tokens likelier.

    >>> penalized(torch.tensor([[3.0, -3.0, 3.0]]), torch.tensor([[True, True, False]]), 1.5)
    tensor([[ 2.0000, -4.5000,  3.0000]])
    """
    weaker = torch.where(logits > 0, logits / penalty, logits * penalty)
    # What overflows becomes the largest number, so that no penalty leaves nothing to choose from.
    return torch.where(standing & logits.isfinite(), weaker.nan_to_num(), logits)


def penalizing(choose: Choose, penalty: float, request: Request) -> Choose:
    """The same choice from penalized logits; with a penalty of 1, `choose` itself."""
    if penalty == 1:
        return choose
    standing: Bool[Tensor, "all_rows vocab"] | None = None

    def chosen(following: NextTokens, rows: Sequence[int]) -> Int[Tensor, "rows"]:
        nonlocal standing
        logits = following.logits
        if standing is None:
            standing = _standing(request, logits)
        places = torch.tensor(rows, device=logits.device)
        weaker = penalized(logits, standing[places], penalty)
        tokens = choose(replace(following, logits=weaker), rows)
        standing[places, tokens] = True
        return tokens

    return chosen


def checked_penalty(value: Any, name: str) -> float:
    """A penalty as a number, or an error where it is not one above 0."""
    return positive(value, f"{name}(repetition_penalty=…)")


def _standing(request: Request, logits: Tensor) -> Bool[Tensor, "rows vocab"]:
    """Which tokens stand in each row of the prompt."""
    prompt = request.prompt
    length = torch.arange(prompt.shape[1], device=prompt.device)
    real = length >= request.padding.to(prompt.device)[:, None]
    rows, _ = real.nonzero(as_tuple=True)
    standing = torch.zeros(len(prompt), logits.shape[-1], dtype=torch.bool, device=logits.device)
    standing[rows.to(logits.device), prompt[real].long().to(logits.device)] = True
    return standing
