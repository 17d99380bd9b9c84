"""What is computed from whole matrices of weights, `[layers][batch, heads, tokens, tokens]`."""

import torch

from watching.torch.explicit import weights


def explicit(model, layers=2, call=-1):
    """The weights of each layer of a `watching.small.Model`."""
    said = [model.layers[layer].last[call] for layer in range(layers)]
    return [weights(query, key, visible=mask) for query, key, mask in said]


def mixed(matrix, residual=0.5):
    """Ã = ½ mean_heads W + ½ I."""
    own = torch.eye(matrix.shape[-1], dtype=torch.double)
    return residual * own + (1 - residual) * matrix.double().mean(-3)


def rolled_out(matrices, residual=0.5):
    """Ã_L · … · Ã_1, all rows, `[batch, tokens, tokens]`."""
    whole = mixed(matrices[0], residual)
    for matrix in matrices[1:]:
        whole = mixed(matrix, residual) @ whole
    return whole


def least_cut(matrices, source, sink):
    """The least capacity whose pipes part an input token from an output token, of one text.

    It is the largest flow (Ford & Fulkerson 1956); every set of nodes that may stand on the side of
    the source is tried.

    Args:
        matrices: Ã of each layer, `[tokens, tokens]`.
    """
    layers, tokens = len(matrices), matrices[0].shape[-1]
    sides = torch.cartesian_prod(*[torch.tensor([0.0, 1.0]).double()] * ((layers - 1) * tokens))
    inner = sides.reshape(len(sides), layers - 1, tokens).unbind(1)
    # Other input tokens are given nothing; beyond other output tokens nothing is wanted.
    first, last = torch.zeros(1, tokens).double(), torch.ones(1, tokens).double()
    first[:, source], last[:, sink] = 1.0, 0.0
    sets = [first, *inner, last]
    cuts = [
        (((1 - above) @ matrix) * below).sum(-1)
        for matrix, below, above in zip(matrices, sets, sets[1:], strict=False)
    ]
    return float(sum(cuts).min())
