"""Token embeddings: nearest neighbors, and a projection to the plane."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.drawing.printable import visible
from glasshead.tasks.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class Neighbor:
    """A nearest neighbor of a token.

    Attributes:
        number: Token id.
        token: Text of the token.
        similarity: Cosine similarity, from -1 to 1.
    """

    number: int
    token: str
    similarity: float


class EmbeddingSpace:
    """The token embeddings of a model.

    Args:
        vectors: One embedding per token.
        tokenizer: The model's tokenizer.

    >>> from glasshead.tasks.tokenizers import characters
    >>> tokenizer = characters(["abc"])
    >>> vectors = torch.eye(7)
    >>> vectors[5] = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0])
    >>> [neighbor.token for neighbor in EmbeddingSpace(vectors, tokenizer).near("a")]
    ['b', 'c']
    """

    def __init__(self, vectors: Float[Tensor, "vocab d_model"], tokenizer: Tokenizer) -> None:
        self.vectors = F.normalize(vectors.detach().float(), dim=-1)
        self.tokenizer = tokenizer
        special = {
            tokenizer.pad_id,
            tokenizer.unknown_id,
            tokenizer.start_id,
            tokenizer.end_id,
        }
        self._known = [number for number in range(len(vectors)) if number not in special]

    def near(self, word: str, count: int = 10) -> list[Neighbor]:
        """Return the nearest neighbors of a word by cosine similarity, without itself.

        Errors: a ValueError if the word is not a single token.
        """
        number = self.number(word)
        similar = self.vectors @ self.vectors[number]
        order = similar[self._known].argsort(descending=True, stable=True)
        others = [self._known[i] for i in order.tolist() if self._known[i] != number]
        return [Neighbor(i, self.tokenizer.token(i), float(similar[i])) for i in others[:count]]

    def number(self, word: str) -> int:
        """Return the token id of a word, alone or after a space.

        Errors: a ValueError if it is not a single token, with the tokens that it consists of.
        """
        if not word.strip():
            raise ValueError(f"a word must have at least one letter, got {word!r}.")
        for written in (f" {word}", word, f" {word.lower()}", word.lower()):
            tokens = self.tokenizer.encode(written)
            if len(tokens) == 1 and tokens[0] in self._known:
                return tokens[0]
        pieces = " ".join(repr(self.tokenizer.token(i)) for i in self.tokenizer.encode(word))
        raise ValueError(
            f"{word!r} must be a token of this run, but is cut into {pieces or 'nothing'}. Choose "
            "a word that occurs often in the text."
        )

    def flat(self) -> Float[Tensor, "known 2"]:
        """Project the embeddings to their first two principal components.

        Source: principal components, Pearson 1901.
        """
        vectors = self.vectors[self._known]
        centered = vectors - vectors.mean(0)
        _, _, axes = torch.linalg.svd(centered, full_matrices=False)
        # The sign of a component is arbitrary; fix it, so that calls agree.
        signs = axes[:2].gather(1, axes[:2].abs().argmax(1, keepdim=True)).sign()
        return centered @ (axes[:2] * signs).T

    def picture(self, word: str, near: Sequence[Neighbor]) -> bytes:
        """Draw the projection as PNG, labeling the word and its neighbors."""
        from matplotlib.figure import Figure

        points = dict(zip(self._known, self.flat().tolist(), strict=True))
        figure = Figure(figsize=(8, 6), layout="constrained")
        axes: Any = figure.subplots()
        axes.scatter(*zip(*points.values(), strict=True), s=4, color="0.75")
        for token in near:
            _label(axes, points[token.number], token.token, "C0")
        _label(axes, points[self.number(word)], word, "C3")
        axes.set_axis_off()
        title = f"the tokens nearest to {word!r}, in the plane in which all differ most"
        axes.set_title(title, parse_math=False)
        written = BytesIO()
        figure.savefig(written, dpi=120, format="png")
        return written.getvalue()


def _label(axes: Any, point: Sequence[float], text: str, color: str) -> None:
    axes.scatter(*point, s=16, color=color)
    axes.annotate(
        visible(text.strip() or text),
        point,
        xytext=(3, 3),
        textcoords="offset points",
        color=color,
        parse_math=False,
    )
