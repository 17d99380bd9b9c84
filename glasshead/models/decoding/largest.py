"""The largest numbers of each row, the same on every device."""

from jaxtyping import Float, Int
from torch import Tensor


def largest(
    values: Float[Tensor, "rows places"], count: int
) -> tuple[Float[Tensor, "rows count"], Int[Tensor, "rows count"]]:
    """The `count` largest values of each row and their places; of equal ones the lower place first.

    All of them where there are fewer.

    >>> import torch
    >>> largest(torch.tensor([[1.0, 3.0, 2.0, 3.0, 2.0]]), 3)
    (tensor([[3., 3., 2.]]), tensor([[1, 3, 2]]))
    """
    count = min(count, values.shape[-1])
    # One more than wanted tells whether any tie at the cut, of which topk takes what it likes.
    top, places = values.topk(min(count + 1, values.shape[-1]))
    if (top[:, count - 1 : -1] == top[:, count:]).any():
        ordered = values.sort(dim=-1, descending=True, stable=True)
        return ordered.values[:, :count], ordered.indices[:, :count]
    top, places = top[:, :count], places[:, :count]
    places, by_place = places.sort(-1)
    top, rank = top.gather(-1, by_place).sort(dim=-1, descending=True, stable=True)
    return top, places.gather(-1, rank)
