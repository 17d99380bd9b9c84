"""Every step of one attention, named, in order."""

from collections.abc import Iterator
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.problem import Problem

STEPS = (
    "queries",
    "keys",
    "values",
    "scores",
    "scaled",
    "capped",
    "masked",
    "weights",
    "dropped",
    "context",
)


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """What an attention did, step by step; a step that does nothing repeats the one before it.

    The steps are in the layout of the inputs. Those between `values` and `context` are as they
    were computed: in float32 where the inputs are of half precision.

    Attributes:
        queries, keys, values: The inputs.
        scores: The raw score of each pair.
        scaled: After β.
        capped: After the softcap.
        masked: After bias and mask: -inf where hidden.
        weights: After the normalizer, before dropout.
        dropped: After dropout.
        context: The result, dropped @ values.
        problem: The recipe and the inputs that it was computed from.

    >>> import torch
    >>> import glasshead as gh
    >>> x = torch.eye(2)
    >>> trace = gh.Attention(mask=gh.causal()).trace(x, x, x)
    >>> trace.masked
    tensor([[0.7071,   -inf],
            [0.0000, 0.7071]])
    >>> [name for name, _ in trace.steps()][3:5]
    ['scores', 'scaled']
    """

    queries: Float[Tensor, "... queries dim"]
    keys: Float[Tensor, "... keys dim"]
    values: Float[Tensor, "... keys value_dim"]
    scores: Float[Tensor, "... queries keys"]
    scaled: Float[Tensor, "... queries keys"]
    capped: Float[Tensor, "... queries keys"]
    masked: Float[Tensor, "... queries keys"]
    weights: Float[Tensor, "... queries keys"]
    dropped: Float[Tensor, "... queries keys"]
    context: Float[Tensor, "... queries value_dim"]
    problem: Problem

    def steps(self) -> Iterator[tuple[str, Tensor]]:
        """Each step's name and tensor, in order."""
        return ((name, getattr(self, name)) for name in STEPS)

    def __repr__(self) -> str:
        shapes = "".join(f"\n  {name:<8} {list(step.shape)}" for name, step in self.steps())
        return f"Trace({shapes}\n)"
