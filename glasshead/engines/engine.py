"""What an engine is: one way to compute a problem, with its price told beforehand."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.problem import Problem
from glasshead.statistics.reductions import Reduction


@dataclass(frozen=True)
class Cost:
    """The price of one forward pass.

    Attributes:
        flops: Floating-point operations of the two matrix products, a multiply-add counting two.
        bytes: Peak memory beyond the inputs, the context included.
    """

    flops: int
    bytes: int


class Observed(NamedTuple):
    """The context, and the results of each reduction that was asked, `[*batch, heads, …]`."""

    context: Float[Tensor, "*batch heads queries value_dim"]
    reduced: list[tuple[Tensor, ...]]


@runtime_checkable
class Engine(Protocol):
    """One way to compute a problem. The reference defines what is right; the others agree."""

    name: str
    about: str

    def refusal(self, problem: Problem) -> str | None:
        """Why this engine does not serve the problem; None where it does."""
        ...

    def cost(self, problem: Problem) -> Cost:
        """What the problem costs here, by shapes and masks; the inputs' numbers are not read."""
        ...

    def run(self, problem: Problem) -> Float[Tensor, "*batch heads queries value_dim"]:
        """The context, with a gradient."""
        ...

    def observe(self, problem: Problem, reductions: Sequence[Reduction]) -> Observed:
        """The same context, bit for bit, and reductions of the weights before dropout."""
        ...
