"""Step 16: a memory of fixed size instead of all words, and the delta rule that writes to it."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


def delta_rule(
    queries: Float[Tensor, "... tokens key_dim"],
    keys: Float[Tensor, "... tokens key_dim"],
    values: Float[Tensor, "... tokens value_dim"],
    rates: Float[Tensor, "... tokens"],
    decays: Float[Tensor, "... tokens"],
) -> tuple[Float[Tensor, "... tokens value_dim"], Float[Tensor, "... key_dim value_dim"]]:
    """Read each word's answer out of one matrix, after writing the word into it.

    **What is new:** there is no list of words to compare with. A matrix S is the memory, and each
    word replaces what it holds under the word's key by the word's value.

        S ← α_t S
        δ_t = β_t (v_t - Sᵀ k_t)
        S ← S + k_t δ_tᵀ
        o_t = Sᵀ q_t / √key_dim

    Sᵀ k is what the memory answers to a key. If k has length 1 and β is 1, it answers v after
    the word; if β is 0, nothing is written. α fades what is old. A word costs the same whether
    ten or a million came before it.

    Args:
        queries, keys, values: one row a word; keys have length 1.
        rates: β, how much of the difference a word writes, from 0 to 1.
        decays: α, how much of the memory is kept at a word, from 0 to 1.

    Returns:
        What is read at each word, and the memory after the last.

    Source: the rule is Schlag et al. 2021, section 4.2; with the decay it is Yang et al. 2025,
    *Gated Delta Networks*, section 3.

    Example: a value that is written twice under one key replaces the first.

    >>> keys, values = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[3.0], [5.0]])
    >>> _, memory = delta_rule(keys, keys, values, rates=torch.ones(2), decays=torch.ones(2))
    >>> memory
    tensor([[5.],
            [0.]])
    """
    memory = queries.new_zeros(*keys.shape[:-2], keys.shape[-1], values.shape[-1])
    outputs = []
    for t in range(keys.shape[-2]):
        key, query = keys[..., t, :, None], queries[..., t, :, None]  # [..., key_dim, 1]
        memory = decays[..., t, None, None] * memory
        answer = (memory * key).sum(-2)  # [..., value_dim]
        delta = rates[..., t, None] * (values[..., t, :] - answer)
        memory = memory + key * delta[..., None, :]  # [..., key_dim, value_dim]
        outputs.append((memory * query).sum(-2) / keys.shape[-1] ** 0.5)
    return torch.stack(outputs, dim=-2), memory


class GatedDeltaNet(nn.Module):
    """The layer of Qwen3-Next that stands in the place of attention in three layers of four.

    **What is new:** words are mixed by `delta_rule`, and by a short convolution before it, in which
    each word is mixed with the ``kernel_size - 1`` words before it.

        [Q, K, V] = SiLU(conv([x W_queryᵀ, x W_keyᵀ, x W_valueᵀ])),  SiLU(z) = z σ(z)
        O, _ = delta_rule(Q / |Q|, K / |K|, V, β, α)
        β = σ(x W_rateᵀ),  α = exp(-exp(A_log) · softplus(x W_decayᵀ + dt_bias))
        result = (RMSNorm(O) ⊙ SiLU(x W_gateᵀ)) W_outᵀ

    The last line is the gate of step 15, with another curve.

    Args:
        d_in: the width of a word, and of the result.
        num_heads: how many heads, each with a memory of its own.
        key_dim: the width of a query and a key.
        value_dim: the width of a value.
        kernel_size: how many words the convolution mixes, the word itself among them.

    Raises:
        ValueError: ``num_heads`` or ``kernel_size`` is less than 1, or ``forward`` got something
            other than ``[batch, tokens, d_in]``.

    Source: Yang et al. 2025, *Gated Delta Networks*, section 3.

    >>> _ = torch.manual_seed(123)
    >>> layer = GatedDeltaNet(d_in=3, num_heads=1, key_dim=2, value_dim=2, kernel_size=2)
    >>> layer(torch.rand(1, 6, 3)).shape
    torch.Size([1, 6, 3])
    """

    def __init__(
        self, d_in: int, num_heads: int, key_dim: int, value_dim: int, kernel_size: int = 4
    ) -> None:
        super().__init__()
        if num_heads < 1 or kernel_size < 1:
            raise ValueError(
                f"num_heads and kernel_size must be at least 1, got {num_heads} and {kernel_size}."
            )
        self.num_heads = num_heads
        self.W_query = nn.Linear(d_in, num_heads * key_dim, bias=False)
        self.W_key = nn.Linear(d_in, num_heads * key_dim, bias=False)
        self.W_value = nn.Linear(d_in, num_heads * value_dim, bias=False)
        self.W_gate = nn.Linear(d_in, num_heads * value_dim, bias=False)
        self.W_rate = nn.Linear(d_in, num_heads, bias=False)
        self.W_decay = nn.Linear(d_in, num_heads, bias=False)
        self.A_log = nn.Parameter(torch.zeros(num_heads))
        self.dt_bias = nn.Parameter(torch.zeros(num_heads))
        channels = num_heads * (2 * key_dim + value_dim)
        # One small kernel a number, so that words are mixed and numbers are not.
        self.conv = nn.Conv1d(
            channels, channels, kernel_size, padding=kernel_size - 1, groups=channels, bias=False
        )
        self.norm = nn.RMSNorm(value_dim, eps=1e-6)
        self.out_proj = nn.Linear(num_heads * value_dim, d_in, bias=False)

    def forward(self, x: Float[Tensor, "batch tokens d_in"]) -> Float[Tensor, "batch tokens d_in"]:
        """Return what the words of each sentence read out of the memory."""
        d_in = self.W_query.in_features
        if x.ndim != 3 or x.shape[2] != d_in:
            raise ValueError(
                f"x must be [batch, tokens, {d_in}], got {list(x.shape)}. Pass one sentence as "
                "x[None], or build with d_in equal to its width."
            )
        outputs, _ = delta_rule(*self.project(x))  # [batch, heads, tokens, value_dim]
        gates = F.silu(self.split_heads(self.W_gate(x)))
        gated = self.norm(outputs) * gates
        return self.out_proj(gated.transpose(1, 2).flatten(2))  # [batch, tokens, d_in]

    def project(
        self, x: Float[Tensor, "batch tokens d_in"]
    ) -> tuple[
        Float[Tensor, "batch heads tokens key_dim"],
        Float[Tensor, "batch heads tokens key_dim"],
        Float[Tensor, "batch heads tokens value_dim"],
        Float[Tensor, "batch heads tokens"],
        Float[Tensor, "batch heads tokens"],
    ]:
        """Return queries and keys of length 1, values, rates and decays."""
        mixed = torch.cat([self.W_query(x), self.W_key(x), self.W_value(x)], dim=-1)
        # What hangs over the end would look ahead.
        mixed = F.silu(self.conv(mixed.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        widths = [self.W_query.out_features, self.W_key.out_features, self.W_value.out_features]
        queries, keys, values = map(self.split_heads, mixed.split(widths, dim=-1))
        rates = torch.sigmoid(self.W_rate(x))  # [batch, tokens, heads]
        decays = torch.exp(-self.A_log.exp() * F.softplus(self.W_decay(x) + self.dt_bias))
        return _unit(queries), _unit(keys), values, rates.mT, decays.mT

    def split_heads(
        self, projected: Float[Tensor, "batch tokens width"]
    ) -> Float[Tensor, "batch heads tokens dim"]:
        """Cut the width into heads, and put the axis of heads before that of tokens."""
        return projected.unflatten(2, (self.num_heads, -1)).transpose(1, 2)


def _unit(x: Float[Tensor, "... dim"]) -> Float[Tensor, "... dim"]:
    """Return vectors of length 1; the small number keeps that of a zero vector finite."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
