"""How a module holds a number that may be fixed, given as a tensor, or learned."""

from torch import Tensor, nn


def hold(module: nn.Module, name: str, value: object) -> None:
    """Set `module.name` so that a tensor moves, saves and learns with the module.

    A parameter or a module registers as such; a plain tensor becomes a buffer; anything else, such
    as a tensor that was computed from a parameter held elsewhere, is an ordinary attribute.

    >>> import torch
    >>> linear = nn.Linear(2, 3)
    >>> hold(linear, "beta", torch.ones(2))
    >>> sorted(linear.state_dict())
    ['beta', 'bias', 'weight']
    """
    if isinstance(value, Tensor) and not isinstance(value, nn.Parameter) and value.is_leaf:
        module.register_buffer(name, value)
    else:
        setattr(module, name, value)


def per_head(value: float | Tensor) -> float | Tensor:
    """A number, or a tensor `[heads]` shaped to multiply scores `[..., heads, queries, keys]`."""
    return value[:, None, None] if isinstance(value, Tensor) and value.ndim else value
