"""Step 9, third part: one answer for a whole sentence."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glasshead.ladder.rung9_encoder import Encoder


class TransformerClassifier(nn.Module):
    """Classify a sentence as one of several things: a good review, or a bad one.

    **What is new:** the words of a sentence become one vector, the largest number that any of them
    has in each place, and one matrix turns that into a score for each answer.

        x = Encoder(words),  z_d = max over t of x_td,  scores = z W_denseᵀ + b_dense

    Sentences of one batch are padded to one length, and the notebook does not hide the padding: it
    is attended to, it attends, and it has its say in the maximum, so that what a sentence is
    depends on how long its neighbors are. Give ``lengths``, and each sentence is cut to its words
    and read by itself, which is what hiding the padding from attention and maximum comes to (a
    mask does so for all sentences at once, and faster).

    Args:
        num_layers: how many layers the encoder has.
        d_model: the width of a word.
        num_heads: how many heads in each layer; it divides ``d_model``.
        conv_hidden_dim: the width inside the `CNN` of each layer.
        input_vocab_size: how many words there are; word 0 is any unknown one, word 1 the padding.
        num_answers: how many answers there are to choose from.
        p: the probability of dropout, in training only; 0.0 is the notebook as it runs.

    Raises:
        TypeError: the words are not integers.
        ValueError: a sentence has no word, or more than 10,000, ``lengths`` does not fit the words;
            the rest as `Encoder` does.

    Source: the encoder notebook of the NYU deep-learning course (Canziani and LeCun), which reads
    film reviews with three layers of this width.

    Example: with its length, a sentence is itself in any company.

    >>> _ = torch.manual_seed(123)
    >>> classifier = TransformerClassifier(input_vocab_size=17).eval()
    >>> alone, padded = torch.tensor([[3, 5, 7]]), torch.tensor([[3, 5, 7, 1, 1]])
    >>> torch.allclose(classifier(padded), classifier(alone))
    False
    >>> torch.allclose(classifier(padded, lengths=torch.tensor([3])), classifier(alone))
    True
    """

    def __init__(
        self,
        num_layers: int = 1,
        d_model: int = 32,
        num_heads: int = 2,
        conv_hidden_dim: int = 128,
        input_vocab_size: int = 50002,
        num_answers: int = 2,
        p: float = 0.1,
    ) -> None:
        super().__init__()
        self.encoder = Encoder(
            num_layers,
            d_model,
            num_heads,
            conv_hidden_dim,
            input_vocab_size,
            maximum_position_encoding=10_000,
            p=p,
        )
        self.dense = nn.Linear(d_model, num_answers)

    def forward(
        self, x: Int[Tensor, "batch tokens"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch answers"]:
        """Return one score an answer, before any softmax: what `cross_entropy` wants.

        ``lengths`` says how many words of each row are words, the rest being padding; None reads
        the padding as the notebook does.
        """
        if lengths is not None:
            return torch.cat([self(sentence) for sentence in self._cut(x, lengths)])
        words = self.encoder(x)  # [batch, tokens, d_model]
        # max along an axis gives a pair, and the places of the largest are not wanted.
        largest, _ = torch.max(words, dim=1)  # [batch, d_model]
        return self.dense(largest)  # [batch, num_answers]

    @staticmethod
    def _cut(x: Tensor, lengths: Tensor) -> list[Tensor]:
        """Return each sentence as a batch of its own, without its padding."""
        if x.ndim != 2 or lengths.shape != x.shape[:1]:
            raise ValueError(
                f"x must be [batch, tokens] and lengths [batch], got {list(x.shape)} and "
                f"{list(lengths.shape)}. Give one length for each sentence."
            )
        if not ((lengths >= 1) & (lengths <= x.shape[1])).all():
            raise ValueError(
                f"lengths must be from 1 to the {x.shape[1]} tokens of a row, got "
                f"{lengths.tolist()}. Count the words without the padding."
            )
        return [row[None, :length] for row, length in zip(x, lengths.tolist(), strict=True)]
