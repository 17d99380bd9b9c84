"""Score functions of a query and a key, and their inverse temperature β."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, final, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.recipe.part import Description, HeadIndex, Part
from glasshead.recipe.validation import (
    check_gives,
    check_per_head,
    number_or_tensor,
    per_head,
    register_value,
    whole_number,
)


@runtime_checkable
class NumberWriter(Protocol):
    """Numbers as text, as `explain` shows them."""

    def figure(self, x: float, /) -> str: ...

    def factor(self, x: float, /) -> str: ...  # in brackets where negative

    def total(self, terms: Sequence[str], /) -> str: ...  # of many terms the first

    def products(self, left: Sequence[float], right: Sequence[float], /) -> str: ...


class Score(Part, nn.Module):
    """Base class of scores: s_ij = β · score(q_i, k_j), with the inverse temperature β.

    Attributes:
        beta: The inverse temperature: a number, or a tensor `[heads]`, which learns if it is a
            parameter. None is the score's default.
        formula: The raw score as text.
        expanded: The raw score with the numbers of the vectors; None: as the formula.
        is_inner_product: Whether the score is computed as an inner product of features.
    """

    beta: float | Tensor | None
    formula: str
    expanded: str | None = None
    is_inner_product: ClassVar[bool] = False

    def __init__(self, beta: float | Tensor | None = 1.0) -> None:
        super().__init__()
        register_value(self, "beta", None if beta is None else number_or_tensor(beta, "beta"))

    @abstractmethod
    def forward(
        self,
        query: Float[Tensor, "*leading queries dim"],
        key: Float[Tensor, "*leading keys dim"],
    ) -> Float[Tensor, "*leading queries keys"]:
        """Compute the raw score of each pair, before β."""

    def written(self, query: list[float], key: list[float], write: NumberWriter) -> str | None:
        """Write out the computation of one raw score, for `explain`; None: only its result."""

    def scale(self, dim: int) -> float | Float[Tensor, "*heads_1_1"]:
        """Return β for queries of width `dim`, shaped to multiply the scores."""
        return per_head(self.default_beta(dim) if self.beta is None else self.beta)

    def default_beta(self, dim: int) -> float:
        """Return the β used when `beta` is None."""
        return 1.0

    def numbers_a_pair(self, dim: int) -> int:
        """Return how many numbers per pair the score needs as temporary memory."""
        return 0

    def check(self, heads: int, dim: int) -> None:
        """Raise a ValueError if this score does not support `heads` queries of width `dim`."""
        check_per_head("beta", self.beta, heads)

    def select_head(self, place: HeadIndex) -> "Score | None":
        """Return the score with the β of one head, or None for a custom score.

        A custom score may read across heads.
        """
        if self.is_custom:
            return None
        beta = place.number(self.beta)
        return self if beta is self.beta else self._with_beta(beta)

    def _with_beta(self, beta: float) -> "Score":
        """Return the score with another β; of ours, most take no other argument."""
        return type(self)(beta=beta)

    def extra_repr(self) -> str:
        return "" if self.beta is None else f"beta={shown(self.beta)}"


def shown(value: Any) -> str:
    """Format a number, or a tensor by its shape."""
    if isinstance(value, Tensor):
        kind = "parameter" if isinstance(value, nn.Parameter) else "tensor"
        return f"{kind}{list(value.shape)}"
    return f"{value:g}"


class InnerProduct(Score):
    """Base class of inner products of features: score(q, k) = f(q) · g(k), widths unchanged."""

    is_inner_product = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.is_inner_product = cls.forward is InnerProduct.forward

    @final
    def forward(
        self,
        query: Float[Tensor, "*leading queries dim"],
        key: Float[Tensor, "*leading keys dim"],
    ) -> Float[Tensor, "*leading queries keys"]:
        query, key = self.checked_features(query, key)
        return query @ key.transpose(-1, -2)

    def checked_features(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the features; raise a ValueError if those of a custom score do not fit."""
        left, right = self.features(query, key)
        if left is not query or right is not key:
            check_gives(self, left, (*query.shape[:-1], left.shape[-1]), exactly=True)
            check_gives(self, right, (*key.shape[:-1], left.shape[-1]), exactly=True)
        return left, right

    @abstractmethod
    def features(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Compute f(query) and g(key), in the inputs' shapes."""


class Dot(InnerProduct):
    """Dot product: score(q, k) = q · k.

    Args:
        beta: The inverse temperature, a number or a tensor `[heads]`.

    Source: Luong et al. 2015, section 3.1, "dot".

    >>> import torch
    >>> Dot()(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([[11.,  2.]])
    """

    formula = "q·k"
    expanded = "q·k = q₁·k₁ + q₂·k₂ + …"
    saved: ClassVar[tuple[str, ...]] = ("beta",)

    def features(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return query, key

    def written(self, query: list[float], key: list[float], write: NumberWriter) -> str:
        return write.products(query, key)

    def describe(self) -> Description:
        return Description(
            "Why multiply and add: the sum is large where both vectors have large numbers in the "
            "same places, near 0 where they have nothing to do with each other, and negative where "
            "one is positive and the other negative. Direction and length both count: a key that "
            "points exactly like the query can score less than a longer one."
        )


class ScaledDot(Dot):
    """Scaled dot product: score(q, k) = q · k with β = 1/√dim.

    The inner product of two vectors of `dim` independent numbers of variance 1 has variance `dim`;
    divided by √dim it has variance 1, whatever the width.

    Args:
        beta: The inverse temperature, a number or a tensor `[heads]`; None is 1/√dim.

    Source: Vaswani et al. 2017, section 3.2.1, equation 1.

    >>> ScaledDot().scale(dim=64), ScaledDot(beta=0.5).scale(dim=64)
    (0.125, 0.5)
    """

    saved = ("beta",)

    def __init__(self, beta: float | Tensor | None = None) -> None:
        super().__init__(beta)

    def default_beta(self, dim: int) -> float:
        # With a width of 0 every score is 0, whatever β.
        return dim**-0.5 if dim else 1.0


class Cosine(InnerProduct):
    """Cosine similarity: score(q, k) = q · k / (|q| |k|).

    It lies in [-1, 1], so a β above 1 (often learned) is what makes the weights differ. A vector
    of zeros scores 0.

    Args:
        beta: The inverse temperature, a number or a tensor `[heads]`.

    Source: Graves et al. 2014 (Neural Turing Machines), section 3.3.1; Henry et al. 2020 (QKNorm).

    >>> query, key = torch.tensor([[3.0, 4.0]]), torch.tensor([[4.0, 3.0], [-30.0, -40.0]])
    >>> Cosine()(query, key)
    tensor([[ 0.9600, -1.0000]])
    """

    formula = "q·k / (|q|·|k|)"
    expanded = "q·k / (|q|·|k|),   |q| = √(q₁² + q₂² + …)"
    saved = ("beta",)

    def features(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return _unit(query), _unit(key)

    def written(self, query: list[float], key: list[float], write: NumberWriter) -> str:
        dot = math.fsum(a * b for a, b in zip(query, key, strict=True))
        lengths = f"{write.figure(math.hypot(*query))}·{write.figure(math.hypot(*key))}"
        return f"({write.products(query, key)}) / (|q|·|k|) = {write.factor(dot)} / ({lengths})"

    def describe(self) -> Description:
        return Description(
            "Why divide by the lengths |q| and |k|: then only the direction counts. The score is "
            "the cosine of the angle between the two vectors, 1 where they point the same way, 0 "
            "at a right angle, −1 where they are opposite; no key wins by being long. (A vector "
            "of zeros scores 0.)"
        )


def _unit(vectors: Tensor) -> Tensor:
    """Normalize vectors to length 1, in float32 at least: the floor is 0 in half precision."""
    exact = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    return F.normalize(exact, dim=-1).to(vectors.dtype)


class Gaussian(Score):
    """Gaussian kernel (after a softmax, of variance 1/(2β)): score(q, k) = -|q - k|².

    Args:
        beta: The inverse temperature, a number or a tensor `[heads]`.

    Source: Nadaraya 1964 and Watson 1964, kernel regression; Tsai et al. 2019, section 3.

    >>> import torch
    >>> Gaussian()(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 2.0], [4.0, 6.0]]))
    tensor([[ -0., -25.]])
    """

    formula = "-|q - k|²"
    expanded = "-|q - k|² = -[(q₁ - k₁)² + (q₂ - k₂)² + …]"
    saved = ("beta",)

    def forward(
        self,
        query: Float[Tensor, "*leading queries dim"],
        key: Float[Tensor, "*leading keys dim"],
    ) -> Float[Tensor, "*leading queries keys"]:
        # |q|² + |k|² - 2 q·k would lose its digits where both vectors are far from the origin.
        return -(query.unsqueeze(-2) - key.unsqueeze(-3)).square().sum(-1)

    def written(self, query: list[float], key: list[float], write: NumberWriter) -> str:
        pairs = zip(query, key, strict=True)
        return f"-[{write.total([f'({write.figure(a)}-{write.factor(b)})²' for a, b in pairs])}]"

    def describe(self) -> Description:
        return Description(
            "Why a distance: a key in exactly the same place as the query scores 0, the highest "
            "there is, and the farther away a key is, the lower it scores. It measures how near "
            "the two are to each other."
        )

    def numbers_a_pair(self, dim: int) -> int:
        return 2 * dim


class Additive(Score):
    """Additive (Bahdanau) attention: score(q, k) = v · tanh(W_query q + W_key k), learned.

    In the paper q is the decoder's last state s, k the encoder's annotation h, and the names are
    W_a, U_a and v_a. All heads share the parameters.

    Args:
        dim: The width of queries and keys.
        hidden: The width of the network's one layer; `dim` if not given.
        beta: The inverse temperature, a number or a tensor `[heads]`.

    Source: Bahdanau et al. 2015, appendix A.1.2.

    >>> _ = torch.manual_seed(0)
    >>> score = Additive(dim=3, hidden=5)
    >>> score(torch.rand(2, 3), torch.rand(7, 3)).shape
    torch.Size([2, 7])
    """

    formula = "v·tanh(W_query·q + W_key·k)"
    saved = ("dim", "hidden", "beta")
    learned = ("W_query.weight", "W_key.weight", "v")

    def __init__(
        self, dim: int, hidden: int | None = None, beta: float | Tensor | None = 1.0
    ) -> None:
        super().__init__(beta)
        self.dim = whole_number(dim, "Additive(dim)", least=1)
        hidden = self.dim if hidden is None else whole_number(hidden, "Additive(hidden)", least=1)
        self.W_query = nn.Linear(dim, hidden, bias=False)
        self.W_key = nn.Linear(dim, hidden, bias=False)
        self.v = nn.Parameter(torch.empty(hidden).uniform_(-1, 1) / math.sqrt(hidden))

    def forward(
        self,
        query: Float[Tensor, "*leading queries dim"],
        key: Float[Tensor, "*leading keys dim"],
    ) -> Float[Tensor, "*leading queries keys"]:
        # The inputs may be of a higher precision than the parameters, never of a lower one.
        query, key = (
            x @ layer.weight.to(x.dtype).transpose(-1, -2)
            for x, layer in ((query, self.W_query), (key, self.W_key))
        )
        return torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3)) @ self.v.to(query.dtype)

    def written(self, query: list[float], key: list[float], write: NumberWriter) -> str:
        with torch.no_grad():
            sides = ((self.W_query, query), (self.W_key, key))
            query_part, key_part = (
                layer.weight.double().cpu() @ torch.tensor(vector, dtype=torch.float64)
                for layer, vector in sides
            )
            hidden = torch.tanh(query_part + key_part)
        return f"v·tanh(…) = {write.products(self.v.tolist(), hidden.tolist())}"

    def describe(self) -> Description:
        return Description(
            "Why a network: two matrices, W_query and W_key, bring query and key into one common "
            "space, tanh squeezes each number of their sum to between −1 and 1, and the vector v "
            "weighs these numbers. All three are learned, so the network itself finds out what "
            "fits what. The attention that first learned to translate worked this way (Bahdanau et "
            "al., 2015)."
        )

    def numbers_a_pair(self, dim: int) -> int:
        return 2 * self.hidden

    @property
    def hidden(self) -> int:
        """Return the width of the network's one layer."""
        return len(self.v)

    def _with_beta(self, beta: float) -> "Score":
        # On the meta device, initialization does not advance the random generator.
        with torch.device("meta"):
            one = type(self)(self.dim, self.hidden, beta)
        one.W_query, one.W_key, one.v = self.W_query, self.W_key, self.v
        return one

    def check(self, heads: int, dim: int) -> None:
        super().check(heads, dim)
        if dim != self.dim:
            raise ValueError(
                f"Additive(dim={self.dim}) must have queries and keys of that width, got {dim}."
            )

    def extra_repr(self) -> str:
        return f"dim={self.dim}, hidden={self.hidden}, {super().extra_repr()}"
