"""Step 9, first part: what stands around attention in a transformer."""

from jaxtyping import Float
from torch import Tensor, nn

from glasshead.ladder.rung7_encoder_multi_head_attention import EncoderMultiHeadAttention


class CNN(nn.Module):
    """Two convolutions over the words that see one word at a time.

    **What is new:** a network that thinks about each word by itself, after attention has mixed
    the words.

        CNN(x) = dropout(max(0, x W_1ᵀ + b_1) W_2ᵀ + b_2)

    A 1-D convolution whose kernel is one word wide multiplies each word by the same matrix, which
    is what `nn.Linear` does: hence the names ``k1convL1`` and ``k1convL2`` of two linear layers.
    Elsewhere this is the *position-wise feed-forward network*.

    Args:
        d_model: the width of a word, before and after.
        hidden_dim: the width in between.
        p: the probability that a number of the result is dropped, in training only.

    Raises:
        ValueError: ``p`` is not a probability (from PyTorch).

    Source: the encoder notebook of the NYU deep-learning course (Canziani and LeCun), which takes
    ``p`` and leaves it unused; Vaswani et al. 2017, section 3.3, and 5.4 for the dropout.

    Example: what stands in one word's place does not reach another's.

    >>> import torch
    >>> cnn = CNN(d_model=3, hidden_dim=5, p=0.0)
    >>> x = torch.rand(1, 7, 3)
    >>> torch.allclose(cnn(x)[:, 2:3], cnn(x[:, 2:3]))
    True
    """

    def __init__(self, d_model: int, hidden_dim: int, p: float) -> None:
        super().__init__()
        self.k1convL1 = nn.Linear(d_model, hidden_dim)
        self.k1convL2 = nn.Linear(hidden_dim, d_model)
        self.activation = nn.ReLU()
        self.dropout = nn.Dropout(p)

    def forward(
        self, x: Float[Tensor, "batch tokens d_model"]
    ) -> Float[Tensor, "batch tokens d_model"]:
        """Return the words, each passed through the same small network."""
        hidden = self.activation(self.k1convL1(x))  # [batch, tokens, hidden_dim]
        return self.dropout(self.k1convL2(hidden))  # [batch, tokens, d_model]


class EncoderLayer(nn.Module):
    """One layer of a transformer's encoder: the words talk, then each thinks for itself.

    **What is new:** attention and the network of each word are *added* to what goes in, and the
    sum is brought back to mean 0 and variance 1, so that many layers can stand on one another.

        x' = LayerNorm_1(x + dropout(H)),  H, A = attention(x, x, x)
        x'' = LayerNorm_2(x' + CNN(x'))

    The sums are a road from the last layer to the first that no weight stands on, so gradients
    come through. A norm that follows the sum, as here, is called *post-norm*.

    Args:
        d_model: the width of a word, before and after.
        num_heads: how many heads; it divides ``d_model``.
        conv_hidden_dim: the width inside the `CNN`.
        p: the probability of dropout, in training only: of a weight, and of what is added.

    Raises:
        ValueError: as `EncoderMultiHeadAttention` does, which is step 7.

    Source: the encoder notebook of the NYU deep-learning course (Canziani and LeCun), which takes
    ``p`` and leaves it unused, so that ``p=0.0`` is the notebook as it runs; Vaswani et al. 2017,
    section 3.1, and 5.4 for the dropout.

    >>> import torch
    >>> layer = EncoderLayer(d_model=6, num_heads=2, conv_hidden_dim=11)
    >>> layer(torch.rand(3, 7, 6)).shape
    torch.Size([3, 7, 6])
    """

    def __init__(self, d_model: int, num_heads: int, conv_hidden_dim: int, p: float = 0.1) -> None:
        super().__init__()
        self.mha = EncoderMultiHeadAttention(d_model, num_heads, p)
        self.dropout = nn.Dropout(p)
        self.cnn = CNN(d_model, conv_hidden_dim, p)
        self.layernorm1 = nn.LayerNorm(d_model, eps=1e-6)
        self.layernorm2 = nn.LayerNorm(d_model, eps=1e-6)

    def forward(
        self, x: Float[Tensor, "batch tokens d_model"]
    ) -> Float[Tensor, "batch tokens d_model"]:
        """Return the words, each changed by what it found in the others."""
        H, _ = self.mha(x, x, x)
        x = self.layernorm1(x + self.dropout(H))  # [batch, tokens, d_model]
        return self.layernorm2(x + self.cnn(x))  # [batch, tokens, d_model]
