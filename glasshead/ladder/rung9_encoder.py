"""Step 9, second part: from words to a stack of layers."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glasshead.ladder.rung9_encoder_layer import EncoderLayer


def create_sinusoidal_embeddings(nb_p: int, dim: int) -> Float[Tensor, "nb_p dim"]:
    """Give each position a vector, a clock with many hands: the first fast, the last slow.

    **What is new:** attention does not know which word comes first; these vectors, added to the
    words, show it.

        E(p, 2i) = sin(p / 10000^(2i / dim)),  E(p, 2i+1) = cos(p / 10000^(2i / dim))

    So the columns 2i and 2i+1 are the two coordinates of hand i, which turns by 1 / 10000^(2i /
    dim) radians a word, and a step of k words is the same rotation wherever it starts.

    Args:
        nb_p: how many positions.
        dim: the width of a word.

    Source: the encoder notebook of the NYU deep-learning course (Canziani and LeCun); Vaswani et
    al. 2017, section 3.5.

    >>> create_sinusoidal_embeddings(nb_p=2, dim=4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    # In float64: at position 5000, the angle's last digits in float32 are coarser than the result.
    p = torch.arange(nb_p, dtype=torch.float64)[:, None]  # [nb_p, 1]
    column = torch.arange(dim, dtype=torch.float64)  # [dim]
    angle = p / 10000 ** (2 * (column // 2) / dim)  # [nb_p, dim]
    E = torch.where(column % 2 == 0, angle.sin(), angle.cos())
    return E.to(torch.get_default_dtype())


class Embeddings(nn.Module):
    """Turn the numbers of words into vectors that know their word and their place.

    **What is new:** a table with one learned vector a word, and the position added to it.

        x = dropout(LayerNorm(word_embeddings[input_ids] + E))

    Word 1 is the padding, as in the notebook, and its vector stays 0. That does not make it
    nothing: its position is added like any other, and the norm gives it the length of any other.

    Args:
        d_model: the width of a word.
        vocab_size: how many words there are, the padding among them.
        max_position_embeddings: the most words that a sentence may have.
        p: the probability that a number of the result is dropped, in training only.

    Raises:
        TypeError: ``input_ids`` are not integers.
        ValueError: ``vocab_size`` is less than 2, ``p`` is not a probability (from PyTorch), or
            ``forward`` got something other than ``[batch, tokens]`` with 1 to
            ``max_position_embeddings`` tokens, each from 0 to ``vocab_size - 1``.

    Source: the encoder notebook of the NYU deep-learning course (Canziani and LeCun), whose norm
    has eps 1e-12; Vaswani et al. 2017, sections 3.4 (whose factor √d_model is omitted) and 5.4.

    >>> embeddings = Embeddings(d_model=4, vocab_size=11, max_position_embeddings=5, p=0.0)
    >>> x = embeddings(torch.tensor([[3, 7, 3]]))
    >>> x.shape, torch.equal(x[0, 0], x[0, 2])
    (torch.Size([1, 3, 4]), False)
    """

    def __init__(
        self, d_model: int, vocab_size: int, max_position_embeddings: int, p: float
    ) -> None:
        super().__init__()
        if vocab_size < 2:
            raise ValueError(
                f"vocab_size must be at least 2, got {vocab_size}. Word 1 is the padding."
            )
        self.word_embeddings = nn.Embedding(vocab_size, d_model, padding_idx=1)
        self.position_embeddings = nn.Embedding.from_pretrained(
            create_sinusoidal_embeddings(max_position_embeddings, d_model)
        )
        self.LayerNorm = nn.LayerNorm(d_model, eps=1e-6)
        self.dropout = nn.Dropout(p)

    def forward(
        self, input_ids: Int[Tensor, "batch tokens"]
    ) -> Float[Tensor, "batch tokens d_model"]:
        """Return the vectors of the words, each with its place."""
        self._check(input_ids)
        position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)
        words = self.word_embeddings(input_ids)  # [batch, tokens, d_model]
        positions = self.position_embeddings(position_ids)  # [tokens, d_model]
        return self.dropout(self.LayerNorm(words + positions))  # [batch, tokens, d_model]

    def _check(self, input_ids: Tensor) -> None:
        if input_ids.dtype not in (torch.int64, torch.int32):
            raise TypeError(
                f"input_ids must be integers, got {input_ids.dtype}. Pass the numbers of the words."
            )
        longest = self.position_embeddings.num_embeddings
        if input_ids.ndim != 2 or not 1 <= input_ids.shape[1] <= longest:
            raise ValueError(
                f"input_ids must be [batch, tokens] with 1 to {longest} tokens, got "
                f"{list(input_ids.shape)}. Pass one sentence as x[None], shorten a longer one."
            )
        words = self.word_embeddings.num_embeddings
        strangers = input_ids[(input_ids < 0) | (input_ids >= words)]
        if len(strangers):
            raise ValueError(
                f"input_ids must be from 0 to {words - 1}, got {strangers[0].item()}. Build with "
                "the vocabulary that numbered the words."
            )


class Encoder(nn.Module):
    """The encoder of a transformer: words in, words that know their sentence out.

    **What is new:** layers stand on one another, each with weights of its own, on the embeddings
    of the words.

        x_0 = Embeddings(input_ids),  x_n = EncoderLayer_n(x_{n-1})

    Args:
        num_layers: how many layers.
        d_model: the width of a word, all the way up.
        num_heads: how many heads in each layer; it divides ``d_model``.
        ff_hidden_dim: the width inside the `CNN` of each layer, its ``conv_hidden_dim``.
        input_vocab_size: how many words there are, the padding among them.
        maximum_position_encoding: the most words that a sentence may have.
        p: the probability of dropout, in training only.

    Raises:
        TypeError: as `Embeddings` does.
        ValueError: ``num_layers`` is less than 1; the rest as `Embeddings` and `EncoderLayer` do.

    Source: the encoder notebook of the NYU deep-learning course (Canziani and LeCun); Vaswani et
    al. 2017, section 3.1.

    >>> encoder = Encoder(num_layers=2, d_model=6, num_heads=3, ff_hidden_dim=11,
    ...                   input_vocab_size=17, maximum_position_encoding=13)
    >>> encoder(torch.tensor([[3, 5, 7, 1, 1]])).shape
    torch.Size([1, 5, 6])
    """

    def __init__(
        self,
        num_layers: int,
        d_model: int,
        num_heads: int,
        ff_hidden_dim: int,
        input_vocab_size: int,
        maximum_position_encoding: int,
        p: float = 0.1,
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(
                f"num_layers must be at least 1, got {num_layers}. One is a beginning."
            )
        self.embedding = Embeddings(d_model, input_vocab_size, maximum_position_encoding, p)
        self.enc_layers = nn.ModuleList(
            EncoderLayer(d_model, num_heads, ff_hidden_dim, p) for _ in range(num_layers)
        )

    def forward(self, x: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens d_model"]:
        """Return what the last layer makes of the words; the padding is read as words too."""
        x = self.embedding(x)  # [batch, tokens, d_model]
        for layer in self.enc_layers:
            x = layer(x)
        return x
