"""Checks of the inputs of models."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.layers import KVCache
from glasshead.recipe.validation import whole_numbers


def check_tokens(tokens: Tensor, name: str, vocab_size: int, room: int) -> None:
    """Check that `tokens` are a batch of texts of this vocabulary, at most `room` long.

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
    """Return `counts` as a tensor of one whole number per text of `tokens`.

    Errors: a TypeError or ValueError where they are not.
    """
    numbers = whole_numbers(counts, name).to(tokens.device)
    # Elsewhere the values are unknown, or would need a synchronization.
    known = numbers.is_cpu and not torch.compiler.is_compiling()
    if known and numbers.numel() and int(numbers.min()) < 0:
        least = int(numbers.min())
        raise ValueError(f"{name} takes numbers from 0, and got {least}: count the tokens.")
    if numbers.shape != tokens.shape[:1]:
        raise ValueError(
            f"{name} takes a number for each text, [{len(tokens)}], and got {list(numbers.shape)}: "
            "count its tokens."
        )
    return numbers


def cached_length(cache: Any, layers: int) -> int:
    """Return the number of tokens in the cache of a model with so many layers.

    Errors: a TypeError where it is no cache of a model; a ValueError where the layers differ in
    their number of tokens, as in the cache of another model, or after an interrupted call.
    """
    if cache is None:
        return 0
    if not isinstance(cache, KVCache):
        raise TypeError(
            f"cache takes what model.new_cache() makes, and got {type(cache).__name__}: a policy "
            "is given to that."
        )
    lengths = [one.length for one in cache.own.values() if one.length]
    if lengths and lengths != lengths[:1] * layers:
        raise ValueError(
            f"a cache takes all {layers} layers of one model, and {len(lengths)} with {lengths} "
            "tokens are in this one: begin a new cache."
        )
    return cache.length
