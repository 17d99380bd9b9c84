"""Sizes, words and random layers of the tests of the steps 11 to 16."""

import torch

BATCH, TOKENS, D_IN, HEADS, KV_HEADS, HEAD_DIM = 2, 13, 11, 6, 2, 5
ALIKE = {"rtol": 1e-5, "atol": 1e-5}


def shaken(layer):
    """A layer with all parameters random, so that none is 0 or 1 by its beginning."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2)
    return layer.eval()


def words():
    return torch.randn(BATCH, TOKENS, D_IN)
