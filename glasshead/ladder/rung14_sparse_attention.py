"""Step 14: a cheap look at all words, and attention to the best of them."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from glasshead.ladder.rung12_latent_attention import LatentAttention, rotated


class SparseAttention(LatentAttention):
    """DeepSeek sparse attention (DSA): an indexer selects the words that are attended to.

    **What is new:** every earlier word gets a second, cheap score, and only the ``top_k`` words
    with the largest ones are seen by the attention.

        c^Q = RMSNorm(x W_query_downᵀ),  w = x W_indexᵀ / √index_heads
        q_h^I = rotated(c^Q W_index_query_hᵀ),  k^I = rotated(LayerNorm(x W_index_keyᵀ))
        I_ij = Σ_h w_ih · ReLU(q_ih^I · k_j^I / √index_dim)
        seen by i: the top_k words j ≤ i with the largest I_ij

    The rest is step 12, but that queries too are made from a short vector, c^Q. The indexer has few
    and narrow heads, one key for all of them and no values, so that only cheap numbers grow with
    the square of the length. The choice has no derivative: the indexer learns apart, to say where
    the attention would put its weight.

    Args:
        d_in, num_heads, latent_dim, head_dim, rotary_dim: as of `LatentAttention`.
        query_dim: the width of c^Q.
        index_heads: how many heads the indexer has.
        index_dim: the width of its queries and keys; the first ``rotary_dim`` numbers are turned.
        top_k: how many words a word sees at most.

    Raises:
        ValueError: ``top_k`` or ``index_heads`` is less than 1, or ``index_dim`` less than
            ``rotary_dim``; the rest as `LatentAttention` does.

    Source: DeepSeek-AI 2025, *DeepSeek-V3.2*, section 2.1, equations 1 and 2; the layer is that of
    GLM-MoE-DSA.

    >>> _ = torch.manual_seed(123)
    >>> attention = SparseAttention(d_in=3, num_heads=2, latent_dim=2, head_dim=2, rotary_dim=2,
    ...                             query_dim=2, index_heads=2, index_dim=2, top_k=3)
    >>> attention.hidden(torch.rand(1, 6, 3)).logical_not().sum(-1)
    tensor([[[1, 2, 3, 3, 3, 3]]])
    """

    def __init__(
        self,
        d_in: int,
        num_heads: int,
        latent_dim: int,
        head_dim: int,
        rotary_dim: int,
        query_dim: int,
        index_heads: int,
        index_dim: int,
        top_k: int,
    ) -> None:
        super().__init__(d_in, num_heads, latent_dim, head_dim, rotary_dim)
        if top_k < 1 or index_heads < 1 or index_dim < rotary_dim:
            raise ValueError(
                "top_k and index_heads must be at least 1, and index_dim at least rotary_dim="
                f"{rotary_dim}, got {top_k}, {index_heads} and {index_dim}."
            )
        self.index_dim, self.top_k = index_dim, top_k
        self.W_query_down = nn.Linear(d_in, query_dim, bias=False)
        self.query_norm = nn.RMSNorm(query_dim, eps=1e-6)
        self.W_query = nn.Linear(query_dim, num_heads * (head_dim + rotary_dim), bias=False)
        self.W_index_query = nn.Linear(query_dim, index_heads * index_dim, bias=False)
        self.W_index_key = nn.Linear(d_in, index_dim, bias=False)
        self.index_norm = nn.LayerNorm(index_dim, eps=1e-6)
        self.W_index = nn.Linear(d_in, index_heads, bias=False)

    def ask(
        self, x: Float[Tensor, "batch tokens d_in"]
    ) -> tuple[
        Float[Tensor, "batch heads tokens head_dim"],
        Float[Tensor, "batch heads tokens rotary_dim"],
    ]:
        """Return the two parts of the queries, made from a short vector."""
        return super().ask(self.query_norm(self.W_query_down(x)))

    def hidden(
        self, x: Float[Tensor, "batch tokens d_in"]
    ) -> Bool[Tensor, "batch 1 tokens tokens"]:
        """Return which words each word does not see: those after it, and those not selected."""
        future = super().hidden(x)
        scores = self.index(x)[:, None].masked_fill(future, -torch.inf)
        best = scores.topk(min(self.top_k, x.shape[1]), dim=-1).indices
        # Of few words, some of the best are words to come.
        return torch.ones_like(scores, dtype=torch.bool).scatter(-1, best, value=False) | future

    def index(self, x: Float[Tensor, "batch tokens d_in"]) -> Float[Tensor, "batch tokens tokens"]:
        """Return the index scores: a row for each word that asks, a column for each word."""
        queries, keys, shares = self.index_parts(x)
        fit = torch.relu(queries @ keys[:, None].transpose(2, 3) / self.index_dim**0.5)
        return torch.einsum("bthi,bhts->bts", shares[..., None], fit)

    def index_parts(
        self, x: Float[Tensor, "batch tokens d_in"]
    ) -> tuple[
        Float[Tensor, "batch index_heads tokens index_dim"],
        Float[Tensor, "batch tokens index_dim"],
        Float[Tensor, "batch tokens index_heads"],
    ]:
        """Return the queries and the keys of the indexer, and what each of its heads counts."""
        short = self.query_norm(self.W_query_down(x))  # [batch, tokens, query_dim]
        queries = self.W_index_query(short).unflatten(2, (-1, self.index_dim)).transpose(1, 2)
        keys = self.index_norm(self.W_index_key(x))
        shares = self.W_index(x) / self.W_index.out_features**0.5
        return self.turned_in_front(queries), self.turned_in_front(keys), shares

    def turned_in_front(
        self, x: Float[Tensor, "... tokens index_dim"]
    ) -> Float[Tensor, "... tokens index_dim"]:
        """Turn the first ``rotary_dim`` numbers of each word."""
        front, rest = x.tensor_split([self.rotary_dim], dim=-1)
        return torch.cat([rotated(front), rest], dim=-1)
