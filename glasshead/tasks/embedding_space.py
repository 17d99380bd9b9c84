"""Embedding space: which tokens a model came to see as near each other."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.tasks.tokenizing import Tokenizer


@dataclass(frozen=True)
class Neighbor:
    """A token near another.

    Attributes:
        token: As it is read.
        similarity: The cosine of the angle between the two vectors, from -1 to 1.
    """

    token: str
    similarity: float


class EmbeddingSpace:
    """The vectors that a model learned for its tokens.

    Args:
        vectors: One for each token.
        tokenizer: What the tokens are.
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
        """The tokens most similar to a word, the most similar first, without itself.

        Errors: a ValueError where the word is no single token.
        """
        number = self.number(word)
        similar = self.vectors @ self.vectors[number]
        order = similar[self._known].argsort(descending=True, stable=True)
        others = [self._known[i] for i in order.tolist() if self._known[i] != number]
        return [Neighbor(self.tokenizer.token(i), float(similar[i])) for i in others[:count]]

    def number(self, word: str) -> int:
        """The token that a word is, alone or after a space.

        Errors: a ValueError where there is none, with the pieces that it is made of.
        """
        for written in (f" {word}", word, f" {word.lower()}", word.lower()):
            tokens = self.tokenizer.encode(written)
            if len(tokens) == 1 and tokens[0] in self._known:
                return tokens[0]
        pieces = " ".join(repr(self.tokenizer.token(i)) for i in self.tokenizer.encode(word))
        raise ValueError(
            f"{word!r} is no token of this run, but {pieces or 'nothing'}: take one that the text "
            "has often."
        )

    def flat(self) -> Float[Tensor, "known 2"]:
        """Each token as a point of the plane in which they differ most.

        Source: principal components, Pearson 1901.
        """
        vectors = self.vectors[self._known]
        centered = vectors - vectors.mean(0)
        _, _, axes = torch.linalg.svd(centered, full_matrices=False)
        # The sign of an axis means nothing; this one is the same at each call.
        signs = axes[:2].gather(1, axes[:2].abs().argmax(1, keepdim=True)).sign()
        return centered @ (axes[:2] * signs).T

    def draw(self, path: Path, word: str, near: list[Neighbor]) -> None:
        """A picture of the space, as PNG: all tokens, and the word and its neighbours by name."""
        from matplotlib.figure import Figure

        points = self.flat()
        place = {number: i for i, number in enumerate(self._known)}
        figure = Figure(figsize=(8, 6), layout="constrained")
        axes: Any = figure.subplots()
        axes.scatter(*points.T.tolist(), s=4, color="0.75")
        named = {self.tokenizer.token(number): i for number, i in place.items()}
        for token in near:
            self._label(axes, points[named[token.token]], token.token, "C0")
        self._label(axes, points[place[self.number(word)]], word, "C3")
        axes.set_axis_off()
        axes.set_title(f"the tokens nearest to {word!r}, in the plane in which all differ most")
        figure.savefig(path, dpi=120)

    @staticmethod
    def _label(axes: Any, point: Tensor, text: str, color: str) -> None:
        x, y = point.tolist()
        axes.scatter([x], [y], s=16, color=color)
        axes.annotate(
            text.strip() or repr(text),
            (x, y),
            xytext=(3, 3),
            textcoords="offset points",
            color=color,
        )
