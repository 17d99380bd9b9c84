"""Step 11: several queries share one key and one value."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn


class GroupedQueryAttention(nn.Module):
    """The attention of a Llama: many heads that ask, and few that answer.

    **What is new:** there are fewer key and value heads than query heads, and a group of query
    heads shares one of them.

        head_h = softmax(Q_h K_gᵀ / √head_dim + M) V_g,  g = h // (num_heads / num_kv_heads)
        result = [head_0, head_1, …] W_outᵀ

    M is the mask of step 4. A model that writes keeps the keys and values of all words so far,
    ``2 · num_kv_heads · head_dim`` numbers a word, and so this memory shrinks by the size of a
    group. With as many key heads as query heads this is step 6; with a single one it is called
    *multi-query attention*.

    From here on the steps are the layers of language models: dropout is left out, and the result
    is as wide as a word, so that it can be added to it.

    Args:
        d_in: the width of a word, and of the result.
        head_dim: the width of a query, a key and a value of one head.
        num_heads: how many query heads.
        num_kv_heads: how many key and value heads; it divides ``num_heads``.
        bias: whether the four projections add a bias.
        turn: turns queries and keys by the position of their word, as ``rotated`` of step 12 does;
            None: they carry no position.

    Raises:
        ValueError: ``num_heads`` cannot be cut into ``num_kv_heads`` equal groups, or ``forward``
            got something other than ``[batch, tokens, d_in]``.

    Source: Ainslie et al. 2023, section 2.2; one key head for all is Shazeer 2019, section 3. With
    ``turn=rotated`` it is the layer of Llama, which pairs number i of a head with number
    i + head_dim/2: the rows of its W_query and W_key stand in that order.

    >>> _ = torch.manual_seed(123)
    >>> attention = GroupedQueryAttention(d_in=3, head_dim=2, num_heads=4, num_kv_heads=2)
    >>> attention.W_query.weight.shape, attention.W_key.weight.shape
    (torch.Size([8, 3]), torch.Size([4, 3]))
    >>> attention(torch.rand(1, 6, 3)).shape
    torch.Size([1, 6, 3])
    """

    def __init__(
        self,
        d_in: int,
        head_dim: int,
        num_heads: int,
        num_kv_heads: int,
        bias: bool = False,
        turn: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        if num_kv_heads < 1 or num_heads < 1 or num_heads % num_kv_heads:
            raise ValueError(
                f"num_heads must be a multiple of num_kv_heads, got num_heads={num_heads} and "
                f"num_kv_heads={num_kv_heads}. Choose a num_kv_heads that divides {num_heads}."
            )
        self.head_dim, self.turn = head_dim, turn
        self.group = num_heads // num_kv_heads
        self.W_query = nn.Linear(d_in, num_heads * head_dim, bias=bias)
        self.W_key = nn.Linear(d_in, num_kv_heads * head_dim, bias=bias)
        self.W_value = nn.Linear(d_in, num_kv_heads * head_dim, bias=bias)
        self.out_proj = nn.Linear(num_heads * head_dim, d_in, bias=bias)

    def forward(self, x: Float[Tensor, "batch tokens d_in"]) -> Float[Tensor, "batch tokens d_in"]:
        """Return what the words of each sentence found in the words up to themselves."""
        return self.out_proj(self.contexts(x))  # [batch, tokens, d_in]

    def contexts(
        self, x: Float[Tensor, "batch tokens d_in"]
    ) -> Float[Tensor, "batch tokens width"]:
        """Return the contexts of all query heads, side by side."""
        d_in = self.W_query.in_features
        if x.ndim != 3 or x.shape[2] != d_in:
            raise ValueError(
                f"x must be [batch, tokens, {d_in}], got {list(x.shape)}. Pass one sentence as "
                "x[None], or build with d_in equal to its width."
            )
        queries, keys, values = self.project(x)
        if self.turn is not None:
            queries, keys = self.turn(queries), self.turn(keys)
        # A copy for each query head is easy to read; fast kernels read the one key of the group.
        keys = keys.repeat_interleave(self.group, dim=1)  # [batch, heads, tokens, head_dim]
        values = values.repeat_interleave(self.group, dim=1)  # [batch, heads, tokens, head_dim]
        weights = self.weigh(queries @ keys.transpose(2, 3) / self.head_dim**0.5)
        return (weights @ values).transpose(1, 2).flatten(2)  # [batch, tokens, heads * head_dim]

    def project(
        self, x: Float[Tensor, "batch tokens d_in"]
    ) -> tuple[
        Float[Tensor, "batch heads tokens head_dim"],
        Float[Tensor, "batch kv_heads tokens head_dim"],
        Float[Tensor, "batch kv_heads tokens head_dim"],
    ]:
        """Return queries, keys and values; of the latter two there are fewer heads."""
        return (
            self.split_heads(self.W_query(x)),
            self.split_heads(self.W_key(x)),
            self.split_heads(self.W_value(x)),
        )

    def weigh(
        self, scores: Float[Tensor, "batch heads tokens tokens"]
    ) -> Float[Tensor, "batch heads tokens tokens"]:
        """Turn scores into weights, of the words up to each word."""
        future = torch.ones_like(scores, dtype=torch.bool).triu(diagonal=1)
        return torch.softmax(scores.masked_fill(future, -torch.inf), dim=-1)

    def split_heads(
        self, projected: Float[Tensor, "batch tokens width"]
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Cut the width into heads, and put the axis of heads before that of tokens."""
        return projected.unflatten(2, (-1, self.head_dim)).transpose(1, 2)
