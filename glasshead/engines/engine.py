"""What an engine is: one way to compute a problem, with its price told beforehand."""

from dataclasses import dataclass
from typing import Protocol

from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.problem import Problem


@dataclass(frozen=True)
class Cost:
    """The price of one forward pass.

    Attributes:
        flops: Floating-point operations of the two matrix products, a multiply-add counting two.
        bytes: Peak memory beyond the inputs, the context included.
    """

    flops: int
    bytes: int


class Engine(Protocol):
    """One way to compute a problem. The reference defines what is right; the others agree."""

    name: str
    about: str

    def refusal(self, problem: Problem) -> str | None:
        """Why this engine does not serve the problem; None where it does."""
        ...

    def cost(self, problem: Problem) -> Cost:
        """What the problem costs here. It looks at shapes alone, never at numbers."""
        ...

    def run(self, problem: Problem) -> Float[Tensor, "*batch heads queries value_dim"]:
        """The context, with a gradient."""
        ...
