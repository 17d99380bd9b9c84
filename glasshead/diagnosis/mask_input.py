"""Conversion of masks of any type to tensors, and summaries of their rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from glasshead.message import Message, _

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
# As a report heads them.
_SEVERITIES = _("ERROR"), _("WARNING"), _("NOTE")


@dataclass(frozen=True)
class Finding:
    """Finding about a mask.

    Attributes:
        kind: Its name, such as "dead-rows" or "future".
        severity: "error": the attention is wrong; "warning": it is likely to be; "note": worth
            knowing, and no fault.
        sentence: The fault, its location, and the remedy.
        where: The first few places, as indices of the mask's own axes.
    """

    kind: str
    severity: Severity
    sentence: str
    where: tuple[tuple[int, ...], ...] = ()


LARGE = 1000.0
MOST_PAIRS = 2**30


@dataclass(frozen=True, eq=False)
class Hiding:
    """Cells of an additive mask that hide, and the numbers they hide by.

    Attributes:
        cells: True = hidden.
        infinite: Whether -inf hides some.
        lowest: Whether the lowest number of the dtype hides some.
        large: The finite number, other than that, nearest to 0 that hides some, or None.
        largest: The one furthest from 0, or None.
    """

    cells: Bool[Tensor, "..."]
    infinite: bool
    lowest: bool
    large: float | None = None
    largest: float | None = None


def hiding(values: Float[Tensor, "..."]) -> Hiding:
    """Find the cells that hide: -inf, the dtype's lowest number, and large ones far from the rest.

    A large number hides where no other cell comes near a tenth of it: a bias that grows with the
    distance, such as ALiBi's, reaches -1000 by small steps, and hides nothing.
    """
    bottom = torch.finfo(values.dtype).min
    infinite, lowest = values == -torch.inf, values == bottom
    below = (values <= -LARGE) & ~infinite & ~lowest
    found = (bool(infinite.any()), bool(lowest.any()))
    if not bool(below.any()):
        return Hiding(infinite | lowest, *found)
    nearest = float(values.masked_fill(~below, -torch.inf).amax())
    furthest = float(values.masked_fill(~below, torch.inf).amin())
    others = values.masked_fill(values <= -LARGE, 0.0).nan_to_num(0.0, posinf=0.0)
    if abs(nearest) < 10 * max(float(others.abs().amax()), LARGE / 10):
        return Hiding(infinite | lowest, *found)
    return Hiding(infinite | lowest | below, *found, nearest, furthest)


@dataclass(frozen=True, eq=False)
class Meaning:
    """Interpretation of a mask in one convention.

    Attributes:
        convention: Its name, or None if it could not be decided.
        visible: Which cells are visible, in the mask's own axes; None if that is not decided.
        hiding: The numbers it hides by, where it is additive.
        shows: Of a mask of two values, whether the one other than 0 is visible.
        findings: Findings of the interpretation.
    """

    convention: str | None
    visible: Bool[Tensor, "..."] | None
    hiding: Hiding | None = None
    shows: bool = True
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Layout:
    """Axes of a mask, and the sizes of the attention.

    Attributes:
        shape: The mask's own.
        by_key: Whether its last axis is the only one of queries or keys: `[keys]`, `[batch, keys]`.
        queries: The attention's number of queries; None if that is not known.
        keys: The attention's number of keys.
        offset: The position of query 0 among the keys, or None if it is not stated.
    """

    shape: tuple[int, ...]
    by_key: bool
    queries: int | None
    keys: int
    offset: int | None = None

    @property
    def position(self) -> int:
        """Return the expected position of query 0: by default the last query sees every key."""
        if self.offset is not None:
            return self.offset
        return self.keys - (self.queries or self.keys)

    @property
    def leading(self) -> tuple[int, ...]:
        """Return the axes before those of queries and keys."""
        return self.shape[:-1] if self.by_key else self.shape[:-2]

    def pairs(self, cells: Shaped[Tensor, "..."]) -> Shaped[Tensor, "*leading queries keys"]:
        """Expand cells of the mask's own axes to `[*leading, queries, keys]`, as far as known."""
        if self.by_key:
            return cells[..., None, :].expand(*self.leading, 1, self.keys)
        queries = cells.shape[-2] if self.queries is None else self.queries
        return cells.expand(*self.leading, queries, self.keys)

    def describe(self, place: tuple[int, ...]) -> str:
        """Describe an index of the mask in words.

        >>> Layout((2, 3, 5, 7), False, 5, 7).describe((1, 0, 4, 6))
        'query 4, key 6 (batch row 1, head 0)'
        """
        inner = ("key",) if self.by_key else ("query", "key")
        leading = place[: len(self.leading)]
        words = [
            _placed(name, index) for name, index in zip(inner, place[len(leading) :], strict=False)
        ]
        around = [_placed(name, index) for name, index in zip(self._names(), leading, strict=True)]
        if not words:
            return Message.joined(", ", around) if around else Message("the mask")
        inside = Message.joined(", ", words)
        if not around:
            return inside
        return Message("{inside} ({around})", inside=inside, around=Message.joined(", ", around))

    def _names(self) -> tuple[str, ...]:
        count = len(self.leading)
        if self.by_key:
            return ("batch row",) * count
        if count == 1:
            return ("row",)
        return (*("batch row",) * (count - 1), "head")[:count]


# Other dtypes cannot be compared in torch, by the code that a report gives.
_WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True, eq=False)
class MaskInput:
    """Mask as a tensor, and the Python code that gives it.

    Attributes:
        values: The numbers.
        source: Python code for this tensor, where the input is called `mask`.
        typed: Whether its dtype was chosen, as of a tensor; not so of a list.
        convention: The convention of its type; None if it has none.
    """

    values: Shaped[Tensor, "..."]
    source: str
    typed: bool
    convention: str | None = None


def read(mask: Any) -> MaskInput:
    """Convert a tensor, an array or nested lists to a tensor.

    Errors: a TypeError for anything else, or numbers of another type than booleans, whole numbers
    and floats; a ValueError for ragged lists, and what has no axis or no cell.

    >>> read([[1, 0], [1, 1]]).values
    tensor([[1, 0],
            [1, 1]])
    """
    if isinstance(mask, Tensor):
        given = MaskInput(_checked(mask), "mask", typed=True)
    elif type(mask).__name__ == "BlockMask":
        given = _of_blocks(mask)
    elif isinstance(mask, np.ndarray):
        values = _of_array(mask)
        given = MaskInput(values, _written(mask, values), typed=True)
    elif isinstance(mask, Sequence) and not isinstance(mask, str | bytes | range):
        source = "torch.as_tensor(mask)"
        # torch converts lists of arrays by itself.
        if any(isinstance(row, Tensor) and row.ndim for row in mask):
            source = "torch.stack([torch.as_tensor(row) for row in mask])"
        given = MaskInput(_of_array(_listed(mask)), source, typed=False)
    else:
        raise TypeError(
            Message(
                "mask must be a tensor, an array, nested lists of numbers, a BlockMask, a "
                "glasshead mask or a dict of masks, got {kind}.",
                kind=type(mask).__name__,
            )
        )
    if not given.values.ndim or not given.values.numel():
        raise ValueError(
            Message(
                "mask must be [keys], [queries, keys] or more axes with at least one cell, got "
                "shape {shape}.",
                shape=list(given.values.shape),
            )
        )
    return given


def marks_of(values: Shaped[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
    """Return which cells are not 0; booleans stay, as torch compares them in eight bytes each."""
    return values if values.dtype == torch.bool else values != 0


def _of_blocks(mask: Any) -> MaskInput:
    """Evaluate the rule of FlexAttention's `BlockMask` for each pair."""
    from torch.nn.attention import flex_attention

    shape = tuple(mask.shape)
    if prod(shape) > MOST_PAIRS:
        raise ValueError(
            Message(
                "mask must have at most {most:,} pairs in a BlockMask, got shape {shape}.",
                most=MOST_PAIRS,
                shape=list(shape),
            )
        )
    device = mask.kv_num_blocks.device
    cells = flex_attention.create_mask(mask.mask_mod, *shape, device=str(device))
    sizes = ", ".join(map(str, shape))
    made = f'create_mask(mask.mask_mod, {sizes}, device="{device}")'
    return MaskInput(cells, f"torch.nn.attention.flex_attention.{made}", True, "attend")


def _checked(tensor: Tensor) -> Tensor:
    if tensor.is_nested:
        raise TypeError(
            Message(
                "mask must have rows of one length, got a nested tensor. Convert it with "
                "torch.nested.to_padded_tensor(mask, 0)."
            )
        )
    known = tensor.layout == torch.strided and tensor.device.type != "meta"
    if not known or tensor.is_quantized:
        raise TypeError(
            Message(
                "mask must be a dense tensor whose numbers can be read, got one of layout "
                "{layout} on {device}. Convert it with .to_dense() or create it on cpu.",
                layout=tensor.layout,
                device=tensor.device,
            )
        )
    if tensor.dtype not in _WHOLE and tensor.dtype not in FLOATS:
        way = ".long()" if str(tensor.dtype).startswith("torch.uint") else ".float()"
        raise TypeError(
            Message(
                "mask must be bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32 "
                "or float64, got {dtype}. Convert it with {way}.",
                dtype=tensor.dtype,
                way=way,
            )
        )
    return tensor.detach()


def _listed(mask: Sequence[Any]) -> np.ndarray:
    try:
        # Row by row, as a list may hold tensors.
        return np.array([np.asarray(row) for row in mask])
    except (ValueError, TypeError, RuntimeError, OverflowError, RecursionError):
        raise ValueError(
            Message(
                "mask must be lists of one length, of numbers, got ragged ones. Pad the shorter."
            )
        ) from None


def _written(array: np.ndarray, values: Tensor) -> str:
    """Write Python code for the tensor of an array that torch may not convert as it is."""
    own = str(values.dtype).removeprefix("torch.")
    taken = array.dtype.isnative and array.dtype.name == own
    if taken and all(stride >= 0 for stride in array.strides):
        return "torch.as_tensor(mask)"
    return f'torch.as_tensor(mask.astype("{own}"))'


def _of_array(array: np.ndarray) -> Tensor:
    if array.dtype.kind not in "biuf":
        raise TypeError(
            Message(
                "mask must contain booleans, integers or floats, got an array of {dtype}. Convert "
                "it with .astype(float).",
                dtype=array.dtype,
            )
        )
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        if array.size and int(array.max()) >= 2**63:
            raise ValueError(
                Message(
                    "mask must be whole numbers below 2^63, got {value}. Use 0 and 1, or False "
                    "and True.",
                    value=array.max(),
                )
            )
        array = array.astype(np.int64)
    native = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(native)


MOST_PLACES = 4
_CELLS = 2**22


@dataclass(frozen=True, eq=False)
class RowSummary:
    """Number, first and last of the keys that each query sees; 0 if it sees none."""

    count: Int[Tensor, "*leading queries"]
    first: Int[Tensor, "*leading queries"]
    last: Int[Tensor, "*leading queries"]

    @classmethod
    def of(cls, visible: Bool[Tensor, "*leading queries keys"]) -> "RowSummary":
        """Summarize the rows of a mask."""
        parts: tuple[list[Tensor], ...] = ([], [], [])
        for chunk in rows_in_chunks(visible):
            count = chunk.sum(-1)
            first = chunk.view(torch.uint8).argmax(-1)
            last = visible.shape[-1] - 1 - chunk.flip(-1).view(torch.uint8).argmax(-1)
            for part, numbers in zip(parts, (count, first, last * (count > 0)), strict=True):
                part.append(numbers)
        return cls(*(torch.cat(part, -1) for part in parts))

    @property
    def alive(self) -> Bool[Tensor, "*leading queries"]:
        """Return which queries see a key."""
        return self.count > 0


def own_keys_seen(
    seen: Bool[Tensor, "*leading keys"], queries: int, position: int
) -> Bool[Tensor, "*leading queries"]:
    """Return whether any query sees the key at each query's own position.

    A token whose key no query sees is padding. A position outside the keys counts as seen.
    """
    positions = torch.arange(queries, device=seen.device) + position
    inside = (positions >= 0) & (positions < seen.shape[-1])
    return seen[..., positions.clamp(0, seen.shape[-1] - 1)] | ~inside


def only_later(
    visible: Bool[Tensor, "*leading queries keys"], rows: RowSummary, position: int
) -> Bool[Tensor, "*leading"]:
    """Return where queries see later positions than their own, and none sees an earlier one.

    Queries that are padding do not count, and a single query shows no direction.

    Args:
        visible: The mask.
        rows: The summary of its rows.
        position: The position of query 0 among the keys.

    >>> shown = torch.ones(3, 3, dtype=torch.bool)
    >>> [bool(only_later(x, RowSummary.of(x), 0)) for x in (shown.triu(), shown.tril())]
    [True, False]
    """
    positions = torch.arange(visible.shape[-2], device=visible.device) + position
    real = rows.alive & own_keys_seen(visible.any(-2), visible.shape[-2], position)
    earlier, later = rows.first < positions, rows.last > positions
    return ~(real & earlier).any(-1) & ((real & later).sum(-1) > 1)


@dataclass(frozen=True)
class Edge:
    """Diagonal at which most queries see their last key: i + `lag`.

    Attributes:
        lag: The most frequent lag.
        share: The share of queries at this lag, of those that see a last key before the last
            that any query sees.
        count: The number of queries at this lag.
    """

    lag: int
    share: float
    count: int


def last_edge(rows: RowSummary) -> Edge | None:
    """Find the diagonal that cuts a mask on the right; None if no query tells."""
    highest = rows.last.amax(-1, keepdim=True)
    telling = rows.alive & (rows.last < highest)
    queries = torch.arange(rows.last.shape[-1], device=rows.last.device)
    lags = (rows.last - queries)[telling]
    if not len(lags):
        return None
    lag, count = most_frequent(lags)
    return Edge(lag, count / len(lags), count)


def most_frequent(numbers: Int[Tensor, " n"]) -> tuple[int, int]:
    """Return the most frequent number, the lowest of several, and its count."""
    found, counts = numbers.unique(return_counts=True)
    best = int(counts.argmax())
    return int(found[best]), int(counts[best])


def stretches(cells: Bool[Tensor, "*leading queries keys"]) -> Iterator[range]:
    """Yield ranges of rows of bounded size."""
    queries = cells.shape[-2]
    step = max(1, _CELLS // max(1, cells[..., :1, :].numel()))
    for start in range(0, queries, step):
        yield range(start, min(start + step, queries))


def rows_in_chunks(cells: Bool[Tensor, "*leading queries keys"]) -> Iterator[Tensor]:
    """Yield chunks of rows of bounded size: torch counts booleans in eight bytes each."""
    for rows in stretches(cells):
        yield cells[..., rows.start : rows.stop, :]


def total(cells: Bool[Tensor, "..."]) -> int:
    """Count the True cells."""
    if cells.ndim < 2:
        return int(cells.sum())
    return sum(int(chunk.sum()) for chunk in rows_in_chunks(cells))


def places(cells: Bool[Tensor, "..."], most: int = MOST_PLACES) -> tuple[tuple[int, ...], ...]:
    """Return the indices of the first few True cells.

    >>> places(torch.tensor([[False, True], [True, True]]), most=2)
    ((0, 1), (1, 0))
    """
    if cells.ndim == 1:
        return tuple((int(place),) for place in cells.nonzero()[:most, 0])
    found: list[tuple[int, ...]] = []
    for row in cells.any(-1).nonzero()[:most].tolist():
        keys = cells[tuple(row)].nonzero()[: most - len(found), 0].tolist()
        found += [(*row, key) for key in keys]
        if len(found) == most:
            break
    return tuple(found)


def _placed(name: str, index: int) -> str:
    """Name an index of an axis."""
    return Message("{name} {index}", name=Message(name), index=index)


_AXES = _("batch row"), _("row"), _("head"), _("query"), _("key")
