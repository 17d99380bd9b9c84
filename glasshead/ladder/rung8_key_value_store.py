"""Step 8: attention as a soft dictionary, from sharing to choosing."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.attention import Attention
from glasshead.recipe.normalizers import HardMax
from glasshead.recipe.scores import Dot


def hard_attention(
    query: Float[Tensor, " d"], keys: Float[Tensor, "n d"], values: Float[Tensor, "n d_v"]
) -> Float[Tensor, " d_v"]:
    """Return the one value whose key answers the query best: the end β = ∞ of `soft_attention`.

    >>> hard_attention(torch.tensor([1.0, 0.0]), torch.eye(2), torch.tensor([[3.0], [5.0]]))
    tensor([3.])
    """
    return soft_attention(query, keys, values, beta=math.inf)


def soft_attention(
    query: Float[Tensor, " d"],
    keys: Float[Tensor, "n d"],
    values: Float[Tensor, "n d_v"],
    beta: float = 1.0,
) -> Float[Tensor, " d_v"]:
    """Mix the values, each by how well its key answers the query.

    **What is new:** β, the inverse temperature, turns sharing into choosing.

        a = softmax(β K q),  context = aᵀ V

    At β = 0 every value counts alike, at β = 1/√d this is the scaled dot product of the steps
    below, and as β grows the best key takes all: at β = ∞ the weights are one 1 among 0s, the first
    if several are best.

    Args:
        query: the question.
        keys: one row a key.
        values: one row a value, in the order of the keys.
        beta: how decided the answer is, from 0 to `math.inf`, in units of 1 / score.

    Raises:
        ValueError: ``beta`` is negative, or NaN.

    Source: the NYU deep-learning course (Canziani and LeCun), lecture on attention, with
    *[soft](arg)max_β*; hard and soft attention are so named in Xu et al. 2015, section 4.

    >>> soft_attention(torch.tensor([1.0, 0.0]), torch.eye(2), torch.tensor([[3.0], [5.0]]), beta=0)
    tensor([4.])
    """
    return _retrieval(beta)(query[None], keys, values)[0]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a `KeyValueStore`: a value, its weight, and the place of its key."""

    value: Any
    weight: float
    index: int


class KeyValueStore:
    """A dictionary that is asked with a question instead of a key.

    **What is new:** a value can be any object at all, for instance a recipe, so instead of being
    mixed the values are ranked by their weights.

        weights = softmax(β K q)

    An ordinary dictionary wants its key letter for letter; here the question is matched with every
    key, and β says how decided the answer is (see `soft_attention`).

    Args:
        keys: one row a key; or any objects, for ``embed`` to turn into rows.
        values: the objects that the keys stand for, in their order.
        embed: turns a key, and a question, that is not a tensor into a vector ``[d]``.

    Raises:
        TypeError: a key or a question is not a tensor, and there is no ``embed``.
        ValueError: there is no key, or not one value for each, or the keys are not ``[n, d]``.

    Source: the lasagna of the NYU deep-learning course (Canziani and LeCun), lecture on attention;
    queries, keys and values bear these names in Vaswani et al. 2017, section 3.2.

    Example: a question that is mostly about lasagna, a little about soup.

    >>> keys = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> store = KeyValueStore(keys, ["layer, then bake", "chop, then boil"])
    >>> question = torch.tensor([0.9, 0.2])
    >>> [(answer.value, round(answer.weight, 2)) for answer in store.ask(question, beta=2)]
    [('layer, then bake', 0.8), ('chop, then boil', 0.2)]
    >>> store.ask(question, beta=math.inf)
    [Answer(value='layer, then bake', weight=1.0, index=0)]
    """

    def __init__(
        self,
        keys: Float[Tensor, "n d"] | Sequence[Any],
        values: Sequence[Any],
        embed: Callable[[Any], Float[Tensor, " d"]] | None = None,
    ) -> None:
        if not len(keys) == len(values) > 0:
            raise ValueError(
                f"a store needs one value for each key and at least one key, got {len(keys)} keys "
                f"and {len(values)} values. Give them in pairs."
            )
        self.embed = embed
        self.values = values
        self.keys = (
            keys if isinstance(keys, Tensor) else torch.stack([self._vector(key) for key in keys])
        )  # [n, d]
        if self.keys.ndim != 2:
            raise ValueError(
                f"keys must be [n, d], got {list(self.keys.shape)}. Give each key one vector."
            )

    def ask(self, query: Any, beta: float = 1.0, top: int | None = None) -> list[Answer]:
        """Return the answers, heaviest first, and the lower index first if they weigh the same.

        An answer that weighs exactly 0 is none: so at ``beta=math.inf`` there is one.

        Args:
            query: a vector ``[d]``, or something for ``embed`` to turn into one.
            beta: how decided the answer is, from 0 (every value alike) to `math.inf` (one value).
            top: how many answers at most; None for all.

        Raises:
            TypeError: ``query`` is not a tensor, and the store has no ``embed``.
            ValueError: ``query`` is not as wide as the keys, ``beta`` is negative or NaN or too
                large for finite weights, or ``top`` is less than 1.
        """
        if top is not None and top < 1:
            raise ValueError(f"top must be at least 1, got {top}. Omit it for every answer.")
        vector = self._vector(query)  # [d]
        if vector.shape != self.keys.shape[1:]:
            raise ValueError(
                f"a question must be as wide as the keys, {list(self.keys.shape[1:])}, got "
                f"{list(vector.shape)}. Embed both in the same way."
            )
        # The values may be recipes, which no matrix holds: the keys stand in for them.
        weights = _retrieval(beta).trace(vector[None], self.keys, self.keys).weights[0]  # [n]
        if not weights.isfinite().all():
            raise ValueError(
                f"weights must be finite numbers, got others at beta={beta}. Look for NaN and "
                "infinity in keys and question, or choose a smaller beta, or math.inf."
            )
        ranked, order = weights.sort(descending=True, stable=True)
        answers = [
            Answer(self.values[index], weight, index)
            for weight, index in zip(ranked.tolist(), order.tolist(), strict=True)
            if weight > 0
        ]
        return answers[:top]

    def _vector(self, thing: Any) -> Float[Tensor, " d"]:
        if isinstance(thing, Tensor):
            return thing
        if self.embed is None:
            raise TypeError(
                f"a key or a question must be a tensor, got {type(thing).__name__}. Give the "
                "store an embed= that turns one into a vector."
            )
        return self.embed(thing)


def _retrieval(beta: float) -> Attention:
    """Return the recipe for β; ∞ × score is no number, so at the end it is another normalizer."""
    if not beta >= 0:
        raise ValueError(f"beta must be from 0 to math.inf, got {beta}. A larger one is harder.")
    if beta == math.inf:
        return Attention(score=Dot(), normalizer=HardMax())
    return Attention(score=Dot(beta))
