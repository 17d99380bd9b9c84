"""Step 15: a gate behind the attention."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glasshead.ladder.rung11_grouped_query_attention import GroupedQueryAttention


class GatedAttention(GroupedQueryAttention):
    """The attention of Qwen3-Next: what a word has found still has to pass a gate.

    **What is new:** each number of the contexts is multiplied by a number from 0 to 1, which the
    word that asked makes of itself.

        result = ([head_0, head_1, …] ⊙ σ(x W_gateᵀ)) W_outᵀ,  σ(z) = 1 / (1 + exp(-z))

    The heads are those of step 11, with queries and keys brought to a root mean square of 1 first,
    so that scores stay small. A head that found nothing of use closes its gate, and so needs no
    sink. The gate also bends what would else be straight: without it, W_value and W_out are two
    matrices one after the other, which could be one.

    Args:
        d_in, head_dim, num_heads, num_kv_heads, bias, turn: as of `GroupedQueryAttention`.

    Raises:
        ValueError: as `GroupedQueryAttention` does.

    Source: Qiu et al. 2025, *Gated Attention for Large Language Models*, section 2.2, with the gate
    at the position G1; the layer is that of Qwen3-Next, if ``turn`` turns the first quarter of the
    numbers of a head, whose rows stand in the order of Llama's.

    Example: a gate that is closed lets nothing through.

    >>> attention = GatedAttention(d_in=3, head_dim=2, num_heads=2, num_kv_heads=1)
    >>> _ = nn.init.constant_(attention.W_gate.weight, -1e3)
    >>> attention(torch.ones(1, 6, 3)).abs().max()
    tensor(0., grad_fn=<MaxBackward1>)
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
        super().__init__(d_in, head_dim, num_heads, num_kv_heads, bias, turn)
        self.W_gate = nn.Linear(d_in, num_heads * head_dim, bias=bias)
        self.query_norm = nn.RMSNorm(head_dim, eps=1e-6)
        self.key_norm = nn.RMSNorm(head_dim, eps=1e-6)

    def forward(self, x: Float[Tensor, "batch tokens d_in"]) -> Float[Tensor, "batch tokens d_in"]:
        """Return what the words of each sentence found, as far as their gates let it through."""
        contexts = self.contexts(x)  # [batch, tokens, heads * head_dim]
        return self.out_proj(contexts * self.gates(x))  # [batch, tokens, d_in]

    def gates(self, x: Float[Tensor, "batch tokens d_in"]) -> Float[Tensor, "batch tokens width"]:
        """Return how far each gate is open, from 0 to 1."""
        return torch.sigmoid(self.W_gate(x))

    def project(
        self, x: Float[Tensor, "batch tokens d_in"]
    ) -> tuple[
        Float[Tensor, "batch heads tokens head_dim"],
        Float[Tensor, "batch kv_heads tokens head_dim"],
        Float[Tensor, "batch kv_heads tokens head_dim"],
    ]:
        """Return queries and keys of one length, and values."""
        queries, keys, values = super().project(x)
        return self.query_norm(queries), self.key_norm(keys), values
