"""Heads: vectors cut into parts of equal width."""

from jaxtyping import Float
from torch import Tensor


def head_counts(width: int) -> list[int]:
    """Into how many heads of equal width a vector of that many numbers can be cut.

    >>> head_counts(6)
    [1, 2, 3, 6]
    """
    return [count for count in range(1, width + 1) if width % count == 0]


def in_heads(vectors: Float[Tensor, "tokens dim"], heads: int) -> Float[Tensor, "..."]:
    """`[tokens, dim]` for one head, else `[1, heads, tokens, dim / heads]`.

    >>> import torch
    >>> in_heads(torch.arange(12).reshape(3, 4), 2).shape
    torch.Size([1, 2, 3, 2])
    """
    if heads == 1:
        return vectors
    return vectors.unflatten(-1, (heads, -1)).transpose(0, 1).unsqueeze(0)
