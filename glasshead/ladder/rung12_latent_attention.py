"""Step 12: keys and values from one short vector."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


def rotated(
    x: Float[Tensor, "... tokens width"], base: float = 10_000.0
) -> Float[Tensor, "... tokens width"]:
    """Turn the numbers of each word, pair by pair, by an angle that grows with its position.

    **What is new:** a position that is not added to a word, as in step 9, but turns it.

        (a, b) → (a cos tθ_i - b sin tθ_i, a sin tθ_i + b cos tθ_i),  θ_i = base^(-2i / width)

    t is the position of the word, and (a, b) its numbers 2i and 2i+1: the hands of step 9. The dot
    product of two words that are turned depends on how far apart they stand, and not on where.

    Args:
        x: one row a word; the width is even.
        base: how much slower the last pair turns than the first.

    Source: Su et al. 2021, section 3.2, which calls it *rotary position embedding* (RoPE).

    >>> rotated(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    tensor([[1.0000, 0.0000],
            [0.5403, 0.8415]])
    """
    tokens, width = x.shape[-2:]
    speeds = base ** (-torch.arange(0, width, 2, device=x.device) / width)  # [width / 2]
    angles = torch.arange(tokens, device=x.device)[:, None] * speeds  # [tokens, width / 2]
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)  # [..., tokens, width / 2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)


class LatentAttention(nn.Module):
    """Multi-head latent attention (MLA), the attention of DeepSeek: one short vector a word.

    **What is new:** the keys and values of all heads are made from one short vector of each word,
    the *latent* vector c, and a part of the key that all heads share carries the position.

        c = RMSNorm(x W_downᵀ),  k^R = rotated(x W_positionᵀ)
        k_h = [c W_key_hᵀ, k^R],  v_h = c W_value_hᵀ
        q_h = [q_h^C, rotated(q_h^R)],  [q_h^C, q_h^R] = x W_query_hᵀ
        head_h = softmax(q_h k_hᵀ / √(head_dim + rotary_dim) + M) v_h

    A model that writes keeps c and k^R alone, ``latent_dim + rotary_dim`` numbers a word, however
    many heads there are. It need not make the keys either, because q_h^C · (c W_key_hᵀ) equals
    (q_h^C W_key_h) · c. A rotation between the two matrices would stand in the way of that, hence
    the part of its own for the position. RMSNorm divides a vector by the root mean square of its
    numbers.

    Args:
        d_in: the width of a word, and of the result.
        num_heads: how many heads.
        latent_dim: the width of c.
        head_dim: the width of a value, and of the part of a key that is made from c.
        rotary_dim: the width of the part of a key that carries the position; it is even.

    Raises:
        ValueError: ``rotary_dim`` is odd, ``num_heads`` is less than 1, or ``forward`` got
            something other than ``[batch, tokens, d_in]``.

    Source: DeepSeek-AI 2024, *DeepSeek-V2*, sections 2.1.2 and 2.1.3, where W_down is W^DKV, W_key
    and W_value are W^UK and W^UV, and W_position is W^KR.

    >>> _ = torch.manual_seed(123)
    >>> attention = LatentAttention(d_in=3, num_heads=2, latent_dim=2, head_dim=2, rotary_dim=2)
    >>> attention(torch.rand(1, 6, 3)).shape
    torch.Size([1, 6, 3])
    """

    def __init__(
        self, d_in: int, num_heads: int, latent_dim: int, head_dim: int, rotary_dim: int
    ) -> None:
        super().__init__()
        if num_heads < 1:
            raise ValueError(f"num_heads must be at least 1, got {num_heads}.")
        if rotary_dim % 2:
            raise ValueError(
                f"rotary_dim must be even, got {rotary_dim}. Numbers are turned in pairs."
            )
        self.head_dim, self.rotary_dim = head_dim, rotary_dim
        self.W_query = nn.Linear(d_in, num_heads * (head_dim + rotary_dim), bias=False)
        self.W_down = nn.Linear(d_in, latent_dim, bias=False)
        self.W_position = nn.Linear(d_in, rotary_dim, bias=False)
        self.norm = nn.RMSNorm(latent_dim, eps=1e-6)
        self.W_key = nn.Linear(latent_dim, num_heads * head_dim, bias=False)
        self.W_value = nn.Linear(latent_dim, num_heads * head_dim, bias=False)
        self.out_proj = nn.Linear(num_heads * head_dim, d_in, bias=False)

    def forward(self, x: Float[Tensor, "batch tokens d_in"]) -> Float[Tensor, "batch tokens d_in"]:
        """Return what the words of each sentence found in the words up to themselves."""
        d_in = self.W_down.in_features
        if x.ndim != 3 or x.shape[2] != d_in:
            raise ValueError(
                f"x must be [batch, tokens, {d_in}], got {list(x.shape)}. Pass one sentence as "
                "x[None], or build with d_in equal to its width."
            )
        scores, values = self.compare(x)
        weights = torch.softmax(scores.masked_fill(self.hidden(x), -torch.inf), dim=-1)
        contexts = weights @ values  # [batch, heads, tokens, head_dim]
        return self.out_proj(contexts.transpose(1, 2).flatten(2))  # [batch, tokens, d_in]

    def compare(
        self, x: Float[Tensor, "batch tokens d_in"]
    ) -> tuple[
        Float[Tensor, "batch heads tokens tokens"], Float[Tensor, "batch heads tokens head_dim"]
    ]:
        """Return the scores, and the values."""
        latent, shared = self.remember(x)
        keys = self.split_heads(self.W_key(latent))  # [batch, heads, tokens, head_dim]
        values = self.split_heads(self.W_value(latent))  # [batch, heads, tokens, head_dim]
        queries, turned = self.ask(x)
        scores = queries @ keys.transpose(2, 3) + turned @ shared[:, None].transpose(2, 3)
        return scores / (self.head_dim + self.rotary_dim) ** 0.5, values

    def remember(
        self, x: Float[Tensor, "batch tokens d_in"]
    ) -> tuple[Float[Tensor, "batch tokens latent_dim"], Float[Tensor, "batch tokens rotary_dim"]]:
        """Return all that is kept of a word: c, and the part of the key that all heads share."""
        return self.norm(self.W_down(x)), rotated(self.W_position(x))

    def ask(
        self, x: Float[Tensor, "batch tokens d_in"]
    ) -> tuple[
        Float[Tensor, "batch heads tokens head_dim"],
        Float[Tensor, "batch heads tokens rotary_dim"],
    ]:
        """Return the two parts of the queries, the second one turned."""
        queries = self.W_query(x).unflatten(2, (-1, self.head_dim + self.rotary_dim))
        content, position = queries.transpose(1, 2).split([self.head_dim, self.rotary_dim], dim=-1)
        return content, rotated(position)

    def hidden(self, x: Float[Tensor, "batch tokens d_in"]) -> Bool[Tensor, "rows 1 tokens tokens"]:
        """Return which words each word does not see, for all sentences alike: those after it."""
        tokens = x.shape[1]
        return torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)[None, None]

    def split_heads(
        self, projected: Float[Tensor, "batch tokens width"]
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Cut the width into heads, and put the axis of heads before that of tokens."""
        return projected.unflatten(2, (-1, self.head_dim)).transpose(1, 2)
