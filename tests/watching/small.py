"""A small model of two layers that attend, and what it shows."""

import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh

BATCH, LENGTH, HEADS, HEAD_DIM = 2, 7, 3, 5
WIDTH = HEADS * HEAD_DIM


class SelfAttention(nn.Module):
    """Attention of a text to itself, which may go on with the keys of its last call."""

    def __init__(self, mask=None):
        super().__init__()
        self.qkv, self.mask, self.last = nn.Linear(WIDTH, 3 * WIDTH), mask, []
        self.cached = None

    def forward(self, x, cached=False):
        query, key, value = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )
        if cached and self.cached is not None:
            key, value = (
                torch.cat(both, -2) for both in zip(self.cached, (key, value), strict=True)
            )
        self.cached = (key, value) if cached else None
        before = key.shape[-2] - query.shape[-2]
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril(before)
        mask = mask if self.mask is None else mask & self.mask
        self.last.append((query.detach(), key.detach(), mask))
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return out.transpose(1, 2).flatten(2)


class Model(nn.Module):
    def __init__(self, layers=2, mask=None):
        super().__init__()
        self.layers = nn.ModuleList(SelfAttention(mask) for _ in range(layers))

    def forward(self, x, cached=False):
        for layer in self.layers:
            x = x + layer(x, cached)
        return x


def text(length=LENGTH, batch=BATCH):
    return torch.randn(batch, length, WIDTH) * 2


def watched(statistics=None, lengths=(LENGTH,), cached=False, mask=None, **asked):
    """What is seen of some texts, or of one text in parts; and the model."""
    statistics = [gh.Entropy()] if statistics is None else statistics
    model = Model(mask=mask)
    with torch.no_grad(), gh.watch(model, statistics, **asked) as seen:
        for length in lengths:
            model(text(length), cached=cached)
    return seen, model
