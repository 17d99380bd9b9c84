"""`nn.MultiheadAttention` in a model, masks for it, and its weights by hand."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from watching.torch.explicit import weights

BATCH, QUERIES, KEYS, HEADS, HEAD_DIM = 2, 5, 7, 3, 5
WIDTH = HEADS * HEAD_DIM
TOLERANCE = 3e-5


def loud(module):
    """The same with weights that leave attention neither flat nor one-hot."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, 0.0, 0.5)
    return module


class Model(nn.Module):
    """An attention by a name, which is asked something."""

    def __init__(self, attention, **asked):
        super().__init__()
        self.attention, self.asked = loud(attention), asked

    def forward(self, *inputs):
        return self.attention(*inputs, **self.asked)


def projected(module, query, key):
    """Queries and keys of heads, `[batch, heads, length, head_dim]`, of inputs batch first."""
    if module.in_proj_weight is None:
        maps = [module.q_proj_weight, module.k_proj_weight]
    else:
        maps = module.in_proj_weight.chunk(3)[:2]
    biases = (None, None) if module.in_proj_bias is None else module.in_proj_bias.chunk(3)[:2]
    made = (F.linear(x, one, bias) for x, one, bias in zip((query, key), maps, biases, strict=True))
    return [x.unflatten(-1, (module.num_heads, -1)).transpose(-2, -3) for x in made]


PAIRS = torch.rand(BATCH * HEADS, QUERIES, KEYS, generator=torch.Generator().manual_seed(5)) < 0.3
PAIRS[..., 0] = False
# Two queries of the text see its last key, which tells where they stand.
PAIRS[..., -1] = torch.tensor([True, True, False, False, False])
KEYS_HIDDEN = torch.tensor([[False] * 6 + [True], [False] * 3 + [True] * 4])


def numbers(hidden):
    """A mask that is added."""
    random = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(3))
    return random.masked_fill(hidden, -math.inf)


def by_head(mask):
    return mask.unflatten(0, (BATCH, HEADS)) if mask.ndim == 3 else mask


MASKS = {
    "none": {},
    "pairs": {"attn_mask": PAIRS[0]},
    "pairs of each head": {"attn_mask": PAIRS},
    "numbers": {"attn_mask": numbers(PAIRS[0])},
    "numbers of each head": {"attn_mask": numbers(PAIRS)},
    "keys": {"key_padding_mask": KEYS_HIDDEN},
    "numbers of keys": {"key_padding_mask": numbers(KEYS_HIDDEN)},
    "both": {"attn_mask": PAIRS[0], "key_padding_mask": KEYS_HIDDEN},
    "numbers of both": {"attn_mask": numbers(PAIRS), "key_padding_mask": numbers(KEYS_HIDDEN)},
}


def bias_of(masks, keys):
    """What the masks add to the scores, that broadcasts to `[batch, heads, queries, keys]`."""
    total = torch.zeros(1, 1, 1, keys)
    for name, mask in masks.items():
        added = mask
        if mask.dtype == torch.bool:
            added = torch.zeros(mask.shape).masked_fill(mask, -math.inf)
        total = total + (added[:, None, None] if name == "key_padding_mask" else by_head(added))
    return total


def expected_of(module, query, key, masks):
    """Its weights, by the masks as they were given."""
    return weights(*projected(module, query, key), bias=bias_of(masks, key.shape[1]))
