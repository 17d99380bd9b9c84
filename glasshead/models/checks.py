"""Checks of what models are given."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.recipe.numbers import whole_numbers


def check_tokens(tokens: Tensor, name: str, vocab_size: int, room: int) -> None:
    """Raise where `tokens` are no batch of texts of this vocabulary, or are too long.

    Errors: a TypeError or ValueError that says which.
    """
    if not isinstance(tokens, Tensor):
        kind = type(tokens).__name__
        raise TypeError(f"{name} takes a tensor of token ids, and got {kind}: make a tensor of it.")
    if tokens.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name} takes whole numbers, and got {tokens.dtype}: take token ids.")
    if tokens.ndim != 2:
        raise ValueError(
            f"{name} takes [batch, length], and got {list(tokens.shape)}: give one text as "
            f"{name}[None]."
        )
    if tokens.shape[-1] > room:
        raise ValueError(
            f"{name} takes at most {room} tokens, and got {tokens.shape[-1]}: shorten the text, or "
            "build the model with a longer context_length."
        )
    if tokens.is_cpu and tokens.numel() and not torch.compiler.is_compiling():
        least, most = (int(x) for x in tokens.aminmax())
        if least < 0 or most >= vocab_size:
            raise ValueError(
                f"{name} takes ids from 0 to {vocab_size - 1}, and got "
                f"{least if least < 0 else most}: take the tokenizer that belongs to the model."
            )


def one_each(counts: Any, name: str, tokens: Tensor) -> Int[Tensor, " batch"]:
    """`counts` as a tensor of one whole number for each text of `tokens`.

    Errors: a TypeError or ValueError where they are not.
    """
    numbers = whole_numbers(counts, name).to(tokens.device)
    if numbers.shape != tokens.shape[:1]:
        raise ValueError(
            f"{name} takes a number for each text, [{len(tokens)}], and got {list(numbers.shape)}: "
            "count its tokens."
        )
    return numbers
