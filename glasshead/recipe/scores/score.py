"""What every score is: how a query and a key make a number, and how sharply."""

from abc import abstractmethod
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from glasshead.recipe.checks import check_per_head
from glasshead.recipe.holding import hold, per_head
from glasshead.recipe.numbers import number_or_tensor


class Score(nn.Module):
    """s_ij = β · score(q_i, k_j): the raw score first, then the inverse temperature β.

    Attributes:
        beta: How sharp the weights are: a number, or a tensor `[heads]`, which learns if it is a
            parameter. None stands for the score's own default.
        formula: The raw score as text.
    """

    beta: float | Tensor | None
    formula: str

    def __init__(self, beta: float | Tensor | None = 1.0) -> None:
        super().__init__()
        hold(self, "beta", None if beta is None else number_or_tensor(beta, "beta"))

    @abstractmethod
    def forward(
        self,
        query: Float[Tensor, "*leading queries dim"],
        key: Float[Tensor, "*leading keys dim"],
    ) -> Float[Tensor, "*leading queries keys"]:
        """The raw score of each pair, before β."""

    def scale(self, dim: int) -> float | Float[Tensor, "*heads_1_1"]:
        """β for queries that are `dim` wide, shaped to multiply the scores."""
        return per_head(self.default_beta(dim) if self.beta is None else self.beta)

    def default_beta(self, dim: int) -> float:
        """The β that None stands for."""
        del dim
        return 1.0

    def numbers_a_pair(self, dim: int) -> int:
        """How many numbers the score keeps for each pair of a query and a key, the score aside."""
        del dim
        return 0

    def check(self, heads: int, dim: int) -> None:
        """Raise a ValueError where this score cannot serve `heads` queries of width `dim`."""
        del dim
        check_per_head("beta", self.beta, heads)

    def extra_repr(self) -> str:
        return "" if self.beta is None else f"beta={shown(self.beta)}"


def shown(value: Any) -> str:
    """A number as it is; a tensor by its shape."""
    if isinstance(value, Tensor):
        kind = "parameter" if isinstance(value, nn.Parameter) else "tensor"
        return f"{kind}{list(value.shape)}"
    return f"{value:g}"
