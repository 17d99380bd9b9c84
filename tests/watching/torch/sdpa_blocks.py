"""A model with one block that calls `scaled_dot_product_attention`, and what it is given."""

import torch
from torch import nn
from torch.nn import functional as F

from watching.torch.explicit import undisturbed

BATCH, HEADS, QUERIES, KEYS, DIM = 2, 3, 5, 7, 11


class Block(nn.Module):
    """An attention that is given its queries, keys and values."""

    def __init__(self, function=None, **asked):
        super().__init__()
        self.function, self.asked = function, asked

    def forward(self, query, key, value):
        return (self.function or F.scaled_dot_product_attention)(query, key, value, **self.asked)


class Model(nn.Module):
    """A block by a name."""

    def __init__(self, *given, **asked):
        super().__init__()
        self.attn = Block(*given, **asked)

    def forward(self, *inputs):
        return self.attn(*inputs)


def inputs(*leading, queries=QUERIES, keys=KEYS, value_dim=DIM, dtype=torch.float32, kv_heads=None):
    shared = leading if kv_heads is None else (*leading[:-1], kv_heads)
    shapes = (*leading, queries, DIM), (*shared, keys, DIM), (*shared, keys, value_dim)
    return [torch.randn(shape).to(dtype).mul(2).requires_grad_() for shape in shapes]


def seen_of(model, given, **asked):
    return undisturbed(model, *given, gradient=True, **asked)["attn"]
