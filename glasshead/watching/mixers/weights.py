"""The lazy weights that a recurrence or a convolution implies."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.attention.lazy_matrix import LazyMatrix
from glasshead.attention.plan import decimal_prefix
from glasshead.watching.mixers.recurrence import Operator

# Numbers of a state that a scan holds at once.
_NUMBERS = 2**25
# Rows of the magnitudes of weights that are computed at once.
_ROWS = 256


class ImpliedWeights(LazyMatrix):
    """Lazy weights W, `[batch, heads, queries, keys]`, by which a layer without attention mixes.

    A linear attention, a delta rule, a state space or a short convolution writes each output as a
    sum over earlier tokens, y_t = Σ_s W_ts v_s, once its gates are fixed at those of this run.
    Weights may be negative, and rows need not sum to 1. `keys` are the tokens of the text so far,
    `queries` those of the call.

    Nothing of size queries × keys is built: W @ R is a scan forwards, W.T @ L one backwards, and a
    row or a tile the scan of a one-hot vector. Where a layer has gates for each channel, each
    channel is a head. Nothing here has a gradient.

    Source: Katharopoulos et al. 2020 (Transformers are RNNs), equations 16 to 20; Ali et al. 2024
    (The hidden attention of Mamba models), section 3.

    Attributes:
        shape: Of the matrix.
        kind: What the layer computes, in words.
    """

    def __init__(
        self,
        make: Callable[[], Operator],
        kind: str,
        *,
        shape: tuple[int, int, int],
        first: int = 0,
        device: torch.device | None = None,
        headed: bool = True,
    ) -> None:
        """Initialize the weights.

        Args:
            make: Returns what computes them, from the first token of the text on.
            kind: What the layer computes, in words.
            shape: Batch, heads and tokens.
            first: The position of the first query in the text.
            device: Where they are computed.
            headed: Whether they have axes of batch and heads.
        """
        self._make, self.kind, self._headed = make, kind, headed
        self._full, self._first, self._device = shape, first, device or torch.device("cpu")

    @property
    def shape(self) -> torch.Size:
        """Return `[batch, heads, queries, keys]`; of one head `[queries, keys]`."""
        batch, heads, tokens = self._full
        return torch.Size([*([batch, heads] if self._headed else []), tokens - self._first, tokens])

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def offset(self) -> int:
        """Return the position of the first query among the keys."""
        return self._first

    @property
    def numbers_a_pair(self) -> int:
        return 2 * self.shape[:-2].numel()

    def shares(self) -> "Shares":
        """Return |W_ts| / Σ_s |W_ts|, as lazy: how much of each row's weight a token has.

        A row of zeros stays one.
        """
        return Shares(self)

    @torch.no_grad()
    def selected(
        self, rows: Int[Tensor, " rows"] | None, queries: int, keys: int | None = None
    ) -> "ImpliedWeights":
        """Return the weights of some rows of the batch, and of its first queries and keys."""
        tokens = self._first + queries
        if keys is not None:
            tokens = min(tokens, keys)
        if rows is None and tokens == self.shape[-1]:
            return self
        operator = self._make().selected(rows).first(tokens)
        batch = self._full[0] if rows is None else len(rows)
        return self._like(lambda: operator, (batch, self._full[1], tokens))

    def _like(
        self, make: Callable[[], Operator], shape: tuple[int, int, int], *, headed: bool = True
    ) -> "ImpliedWeights":
        return ImpliedWeights(
            make, self.kind, shape=shape, first=self._first, device=self._device, headed=headed
        )

    def _tile(self, rows: range, columns: range) -> Tensor:
        operator, own = self._make(), range(rows.start + self._first, rows.stop + self._first)
        stop = max(own.stop, columns.start)
        shape = *self._full[:2], len(rows), len(columns)
        made = torch.zeros(shape, dtype=self.dtype, device=self.device)
        span = range(columns.start, stop)
        if rows and span:
            by_rows = len(rows) <= len(columns)
            hot, other = (own, columns) if by_rows else (columns, own)
            for part in self._parts(operator, hot):
                found = self._scanned(operator, part, span, back=by_rows)
                found = found[:, :, max(other.start - span.start, 0) : other.stop - span.start]
                at = slice(part.start - hot.start, part.stop - hot.start)
                if by_rows:
                    made[:, :, at, : found.shape[2]] = found.mT
                else:
                    # Rows before the first column see none of them.
                    made[:, :, len(rows) - found.shape[2] :, at] = found
        return made if self._headed else made[0, 0]

    def _parts(self, operator: Operator, hot: range) -> Iterator[range]:
        """Divide one-hot vectors so that the states of each part fit into memory."""
        batch, heads, _ = operator.shape
        many = max(_NUMBERS // (batch * heads * operator.state), 1)
        for start in range(hot.start, hot.stop, many):
            yield range(start, min(start + many, hot.stop))

    def _scanned(self, operator: Operator, hot: range, span: range, *, back: bool) -> Tensor:
        """Scan one-hot vectors at some tokens over a span."""
        vectors = torch.zeros(1, 1, len(span), len(hot), dtype=self.dtype, device=self.device)
        inside = [token for token in hot if token in span]
        places = torch.tensor([token - span.start for token in inside], dtype=torch.long)
        vectors[0, 0, places, torch.tensor([token - hot.start for token in inside]).long()] = 1.0
        scan = operator.scan_back if back else operator.scan
        return scan(vectors, span.start)

    def _seen(self, rows: range) -> range:
        return range(rows.stop + self._first if rows else 0)

    def _head(self, places: tuple[int, ...]) -> "ImpliedWeights":
        batch, head = places

        def make() -> Operator:
            return self._make().selected(torch.tensor([batch]), [head])

        return self._like(make, (1, 1, self._full[2]), headed=False)

    def _right_product(self, right: Tensor) -> Tensor:
        operator = self._make()
        made = operator.scan(_with_axes(right))[:, :, self._first :]
        return made if self._headed else made[0, 0]

    def _left_product(self, left: Tensor) -> Tensor:
        operator, left = self._make(), _with_axes(left)
        before = left.new_zeros(*left.shape[:2], self._first, left.shape[-1])
        made = operator.scan_back(torch.cat([before, left], 2))
        return made if self._headed else made[0, 0]

    def __repr__(self) -> str:
        size = decimal_prefix(self.shape.numel() * self.dtype.itemsize)
        return f"ImpliedWeights {list(self.shape)} of {self.kind}, {size}B if it were dense"


def _with_axes(factor: Tensor) -> Float[Tensor, "batch heads tokens n"]:
    return factor.reshape(*[1] * (4 - factor.ndim), *factor.shape)


class Shares(LazyMatrix):
    """The magnitudes of weights as shares of their rows, |W_ts| / Σ_s |W_ts|, as lazy as these.

    Magnitudes are not linear: products are computed from rows, in O(queries · keys) time.

    Args:
        weights: The weights.
    """

    def __init__(self, weights: LazyMatrix) -> None:
        self._weights = weights

    @property
    def shape(self) -> torch.Size:
        """Return `[..., queries, keys]`."""
        return self._weights.shape

    @property
    def dtype(self) -> torch.dtype:
        return self._weights.dtype

    @property
    def device(self) -> torch.device:
        return self._weights.device

    @property
    def numbers_a_pair(self) -> int:
        return 2 * self._weights.numbers_a_pair

    def _tile(self, rows: range, columns: range) -> Tensor:
        sizes = self._weights.tile(rows, range(self.shape[-1])).abs()
        sums = sizes.sum(-1, keepdim=True)
        return torch.where(sums > 0, sizes / sums, 0.0)[..., columns.start : columns.stop]

    def _pairs(self, rows: range, columns: range) -> int:
        return len(rows) * self.shape[-1]

    def _seen(self, rows: range) -> range:
        return self._weights.seen(rows)

    def _head(self, places: tuple[int, ...]) -> "Shares":
        return Shares(self._weights.head(*places))

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the rows, and their places, a part at a time."""
        queries, keys = self.shape[-2:]
        for start in range(0, queries, _ROWS):
            rows = range(start, min(start + _ROWS, queries))
            yield slice(rows.start, rows.stop), self.tile(rows, range(keys))

    def _right_product(self, right: Tensor) -> Tensor:
        return torch.cat([tile @ right for _, tile in self.blocks()], -2)

    def _left_product(self, left: Tensor) -> Tensor:
        made: Any = 0
        for rows, tile in self.blocks():
            made = made + tile.mT @ left[..., rows, :]
        return made

    def __repr__(self) -> str:
        return f"{self._weights!r}, as shares"
