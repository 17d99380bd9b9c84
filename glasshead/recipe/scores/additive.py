"""Scores by a small network."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glasshead.recipe.numbers import whole_number
from glasshead.recipe.scores.score import Score


class Additive(Score):
    """score(q, k) = v · tanh(W_query q + W_key k), with learned W_query, W_key and v.

    In the paper q is the decoder's last state s, k the encoder's annotation h, and the names are
    W_a, U_a and v_a. All heads share the parameters.

    Args:
        dim: The width of queries and keys.
        hidden: The width of the network's one layer; `dim` if not given.
        beta: The inverse temperature, a number or a tensor `[heads]`.

    Source: Bahdanau et al. 2015, appendix A.1.2.

    >>> _ = torch.manual_seed(0)
    >>> score = Additive(dim=3, hidden=5)
    >>> score(torch.rand(2, 3), torch.rand(7, 3)).shape
    torch.Size([2, 7])
    """

    formula = "v·tanh(W_query·q + W_key·k)"

    def __init__(
        self, dim: int, hidden: int | None = None, beta: float | Tensor | None = 1.0
    ) -> None:
        super().__init__(beta)
        self.dim = whole_number(dim, "Additive(dim)", least=1)
        hidden = self.dim if hidden is None else whole_number(hidden, "Additive(hidden)", least=1)
        self.W_query = nn.Linear(dim, hidden, bias=False)
        self.W_key = nn.Linear(dim, hidden, bias=False)
        self.v = nn.Parameter(torch.empty(hidden).uniform_(-1, 1) / math.sqrt(hidden))

    def forward(
        self,
        query: Float[Tensor, "*leading queries dim"],
        key: Float[Tensor, "*leading keys dim"],
    ) -> Float[Tensor, "*leading queries keys"]:
        # The inputs may be of a higher precision than the parameters, never of a lower one.
        query, key = (
            x @ layer.weight.to(x.dtype).transpose(-1, -2)
            for x, layer in ((query, self.W_query), (key, self.W_key))
        )
        return torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3)) @ self.v.to(query.dtype)

    def numbers_a_pair(self, dim: int) -> int:
        del dim
        return 2 * len(self.v)

    def check(self, heads: int, dim: int) -> None:
        super().check(heads, dim)
        if dim != self.dim:
            raise ValueError(
                f"Additive(dim={self.dim}) takes queries and keys of that width, and got {dim}."
            )

    def extra_repr(self) -> str:
        return f"dim={self.dim}, hidden={len(self.v)}, {super().extra_repr()}"
