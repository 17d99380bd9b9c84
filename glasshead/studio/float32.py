"""Float32: how numbers travel, to the page and within a file."""

from jaxtyping import Float
from torch import Tensor


def float32(values: Float[Tensor, "*shape"]) -> bytes:
    """A tensor as its little-endian float32, by rows.

    >>> import torch
    >>> float32(torch.tensor([[1.0, -2.0]])).hex(" ", 4)
    '0000803f 000000c0'
    """
    return values.detach().float().cpu().contiguous().numpy().astype("<f4").tobytes()
