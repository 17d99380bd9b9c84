"""Projection of a sentence's vectors to queries, keys and values, in heads."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


def head_counts(width: int) -> list[int]:
    """Into how many heads of equal width a vector of that many numbers can be cut.

    >>> head_counts(6)
    [1, 2, 3, 6]
    """
    return [count for count in range(1, width + 1) if width % count == 0]


def in_heads(vectors: Float[Tensor, "tokens dim"], heads: int) -> Float[Tensor, "..."]:
    """`[tokens, dim]` for one head, else `[1, heads, tokens, dim / heads]`.

    >>> import torch
    >>> in_heads(torch.arange(12).reshape(3, 4), 2).shape
    torch.Size([1, 2, 3, 2])
    """
    if heads == 1:
        return vectors
    return vectors.unflatten(-1, (heads, -1)).transpose(0, 1).unsqueeze(0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Projection:
    """queries = x W_query + b_query, keys = x W_key + b_key, values = x W_value + b_value.

    A matrix stands as it is applied, `[d_in, d_out]`, as in rung 2 of the ladder; `nn.Linear`
    keeps the transpose.

    Attributes:
        inputs: The vectors x, one row a token.
        W_query, W_key, W_value: The matrices; queries and keys are of one width.
        b_query, b_key, b_value: What is added, or None.

    Errors: a TypeError where one of them is no floating-point tensor or not of the inputs' type, a
    ValueError where their shapes do not fit each other.

    Source: Vaswani et al. 2017, section 3.2.2.

    >>> import torch
    >>> swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> x = torch.tensor([[1.0, 2.0]])
    >>> Projection(inputs=x, W_query=swap, W_key=swap, W_value=2 * swap, b_key=x[0]).keys
    tensor([[3., 3.]])
    """

    inputs: Float[Tensor, "tokens d_in"]
    W_query: Float[Tensor, "d_in d_out"]
    W_key: Float[Tensor, "d_in d_out"]
    W_value: Float[Tensor, "d_in d_value"]
    b_query: Float[Tensor, "d_out"] | None = None
    b_key: Float[Tensor, "d_out"] | None = None
    b_value: Float[Tensor, "d_value"] | None = None

    def __post_init__(self) -> None:
        self._check("inputs", self.inputs, axes=2)
        for role in ("query", "key", "value"):
            self._check_matrix(f"W_{role}", getattr(self, f"W_{role}"))
            self._check_bias(f"b_{role}", getattr(self, f"b_{role}"), f"W_{role}")
        if self.W_query.shape[1] != self.W_key.shape[1]:
            raise ValueError(
                f"W_query and W_key take one width of output, to be compared, and got "
                f"{list(self.W_query.shape)} and {list(self.W_key.shape)}."
            )

    @property
    def queries(self) -> Float[Tensor, "tokens d_out"]:
        """What each token asks."""
        return _applied(self.inputs, self.W_query, self.b_query)

    @property
    def keys(self) -> Float[Tensor, "tokens d_out"]:
        """What each token is found by."""
        return _applied(self.inputs, self.W_key, self.b_key)

    @property
    def values(self) -> Float[Tensor, "tokens d_value"]:
        """What each token tells."""
        return _applied(self.inputs, self.W_value, self.b_value)

    def _check(self, name: str, tensor: object, axes: int) -> None:
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            got = getattr(tensor, "dtype", type(tensor).__name__)
            raise TypeError(
                f"{name} takes a tensor of floating-point numbers, and got {got}: convert it with "
                f".float()."
            )
        if tensor.dtype != self.inputs.dtype:
            raise TypeError(
                f"{name} takes the type of the inputs, {self.inputs.dtype}, and got "
                f"{tensor.dtype}: convert it with .to()."
            )
        if tensor.ndim != axes:
            shape = "[d_in, d_out]" if axes == 2 else "[d_out]"
            shape = "[tokens, d_in]" if name == "inputs" else shape
            raise ValueError(f"{name} takes the shape {shape}, and got {list(tensor.shape)}.")

    def _check_matrix(self, name: str, matrix: Tensor) -> None:
        self._check(name, matrix, axes=2)
        width = self.inputs.shape[1]
        if matrix.shape[0] != width:
            turned = ": transpose it" if matrix.shape[1] == width else ""
            raise ValueError(
                f"{name} takes [{width}, d_out] for vectors of {width} numbers, and got "
                f"{list(matrix.shape)}{turned}."
            )

    def _check_bias(self, name: str, bias: Tensor | None, matrix: str) -> None:
        if bias is None:
            return
        self._check(name, bias, axes=1)
        width = getattr(self, matrix).shape[1]
        if len(bias) != width:
            raise ValueError(
                f"{name} takes {width} numbers, one a column of {matrix}, and got {len(bias)}."
            )


def _applied(inputs: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    outputs = inputs @ matrix
    return outputs if bias is None else outputs + bias
