"""Inference of a mask's axes from its shape, its values and the caller's hints."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from glasshead.diagnosis.mask_input import (
    Edge,
    Finding,
    Layout,
    MaskInput,
    Meaning,
    RowSummary,
    last_edge,
    marks_of,
    own_keys_seen,
    rows_in_chunks,
)
from glasshead.message import Message


@dataclass(frozen=True)
class AxisHints:
    """Hints from the caller about the attention and the mask; None if nothing was stated."""

    queries: int | None = None
    keys: int | None = None
    convention: str | None = None
    offset: int | None = None


@dataclass(frozen=True, eq=False)
class InferredAxes:
    """Mask with known axes; `fits` says whether its size is that of the attention."""

    given: MaskInput
    layout: Layout
    findings: tuple[Finding, ...] = ()
    fits: bool = True


def infer_axes(given: MaskInput, hints: AxisHints) -> InferredAxes:
    """Infer the layout of a mask, and find faults of its shape."""
    shape = tuple(given.values.shape)
    if len(shape) == 1 or (len(shape) == 2 and _lists_rows(given.values, hints)):
        return _by_key(given, hints)
    own_queries, own_keys = shape[-2:]
    if hints.queries is None and own_queries == 1:
        queries = None
    else:
        queries = own_queries if hints.queries is None else hints.queries
    keys = own_keys if hints.keys is None else hints.keys
    if own_queries in (1, queries) and own_keys in (1, keys):
        layout = Layout(shape, by_key=False, queries=queries, keys=keys, offset=hints.offset)
        return InferredAxes(given, layout)
    if (own_queries, own_keys) == (keys, queries):
        return _transposed(given, hints)
    finding = Finding(
        "length",
        "error",
        Message(
            "The mask must have {queries} queries and {keys} keys, as the attention has, got "
            "{own_queries} and {own_keys}. Create it for these lengths; with a cache, cached keys "
            "count, too.",
            own_queries=own_queries,
            own_keys=own_keys,
            queries=queries,
            keys=keys,
        ),
    )
    layout = Layout(shape, by_key=False, queries=own_queries, keys=own_keys, offset=hints.offset)
    return InferredAxes(given, layout, (finding,), fits=False)


def _transposed(given: MaskInput, hints: AxisHints) -> InferredAxes:
    own_queries, own_keys = given.values.shape[-2:]
    finding = Finding(
        "transposed",
        "error",
        Message(
            "The mask must be [queries, keys], got [keys, queries]: {own_queries} rows and "
            "{own_keys} columns for {own_keys} queries and {own_queries} keys. Transpose it: "
            "mask.mT.",
            own_queries=own_queries,
            own_keys=own_keys,
        ),
    )
    turned = MaskInput(given.values.mT, f"{given.source}.mT", given.typed)
    shape = tuple(turned.values.shape)
    layout = Layout(shape, by_key=False, queries=own_keys, keys=own_queries, offset=hints.offset)
    return InferredAxes(turned, layout, (finding,))


def _by_key(given: MaskInput, hints: AxisHints) -> InferredAxes:
    shape = tuple(given.values.shape)
    keys = shape[-1] if hints.keys is None else hints.keys
    findings: list[Finding] = []
    fits = shape[-1] in (1, keys)
    if not fits:
        findings.append(
            Finding(
                "length",
                "error",
                Message(
                    "The mask must have {keys} keys, as the attention has, got {size}. Create it "
                    "for all keys; with a cache, cached keys count, too.",
                    size=shape[-1],
                    keys=keys,
                ),
            )
        )
    trap = hints.queries if hints.queries is not None else shape[-1]
    if len(shape) == 2 and 1 < shape[0] == trap:
        findings.append(
            Finding(
                "layout",
                "warning",
                Message(
                    "The mask looks like [batch, keys], but its batch of {size} is also the "
                    "number of queries, so a library would silently broadcast it as [queries, "
                    "keys]. Pass mask[:, None, None, :].",
                    size=shape[0],
                ),
            )
        )
    layout = Layout(shape, True, hints.queries, keys if fits else shape[-1], hints.offset)
    return InferredAxes(given, layout, tuple(findings), fits)


def _lists_rows(values: Shaped[Tensor, "first keys"], hints: AxisHints) -> bool:
    """Return whether two axes are [batch, keys] rather than [queries, keys]."""
    if hints.convention == "tokenizer":
        return True
    first, keys = values.shape
    if keys == 1 or _are_added(values, hints.convention):
        return False
    whole = values.dtype != torch.bool and not values.is_floating_point()
    if whole and hints.convention is None and first != keys:
        return (first, keys) != (hints.keys, hints.queries)
    other = hints.queries not in (None, first) and hints.keys in (None, keys)
    edges = _edges(marks_of(values))
    if edges is None or not len(edges):
        return other or (whole and edges is not None)
    stairs = _is_stairs(edges, square=first == keys) or _is_causal(marks_of(values))
    return first == 1 or not stairs


def _are_added(values: Shaped[Tensor, "first keys"], stated: str | None) -> bool:
    """Return whether floats are additive; 0.0 and 1.0 may stand for False and True."""
    if not values.is_floating_point():
        return False
    return stated == "additive" or not bool(((values == 0) | (values == 1)).all())


def _is_causal(marks: Bool[Tensor, "queries keys"]) -> bool:
    """Return whether a mask, or its opposite, is exactly causal at either alignment."""
    queries, keys = marks.shape
    if queries == 1:
        return False
    shown = marks if bool(marks[0, 0]) else ~marks
    every = torch.ones_like(shown)
    return any(torch.equal(shown, every.tril(offset)) for offset in {0, keys - queries})


def _edges(marks: Bool[Tensor, "rows keys"]) -> Tensor | None:
    """Return row and column of each change, `[rows that do, 2]`; None if a row has two."""
    changes = marks[:, 1:] != marks[:, :-1]
    if any(bool((chunk.sum(-1) > 1).any()) for chunk in rows_in_chunks(changes)):
        return None
    return changes.nonzero()


def _is_stairs(edges: Tensor, *, square: bool) -> bool:
    """Return whether each row changes one key later than the last, as a causal mask's do."""
    if len(edges) < 2:
        return False
    _, counts = (edges[:, 1] - edges[:, 0]).unique(return_counts=True)
    most = int(counts.max())
    if most < 2:
        return False
    if square:
        return most > len(edges) / 2
    return most == len(edges) or most > max(3, 0.6 * len(edges))


# The least share of queries that makes a diagonal.
_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class Case:
    """Mask whose meaning is known.

    Attributes:
        inferred: The mask with its axes.
        meaning: Its interpretation.
        visible: Which pairs are visible.
    """

    inferred: InferredAxes
    meaning: Meaning
    visible: Bool[Tensor, "*leading queries keys"]

    @property
    def layout(self) -> Layout:
        """Return the meaning of the mask's axes."""
        return self.inferred.layout

    @cached_property
    def rows(self) -> RowSummary:
        """Summarize which keys each query sees."""
        return RowSummary.of(self.visible)

    @cached_property
    def seen(self) -> Bool[Tensor, "*leading keys"]:
        """Return which keys any query sees."""
        return self.visible.any(-2)

    @cached_property
    def real(self) -> Bool[Tensor, "*leading queries"]:
        """Return which queries are real tokens: a query of their batch row sees their own key."""
        seen = self.seen
        if seen.ndim == 3:
            seen = seen.any(-2, keepdim=True).expand_as(seen)
        return own_keys_seen(seen, self.queries, self.layout.position)

    @cached_property
    def uniform(self) -> bool:
        """Return whether all queries see the same keys."""
        return self.visible.shape[-2] == 1 or bool((self.visible == self.visible[..., :1, :]).all())

    @cached_property
    def edge(self) -> Edge | None:
        """Return the diagonal where most queries see their last key, or None."""
        if self.uniform:
            return None
        edge = last_edge(self.rows)
        enough = (
            edge is not None and edge.share >= _SHARE and edge.count >= min(2, self.queries - 1)
        )
        return edge if enough else None

    @property
    def queries(self) -> int:
        """Return how many queries there are; 1 where all are alike and their number is unknown."""
        return self.visible.shape[-2]

    @property
    def keys(self) -> int:
        """Return how many keys there are."""
        return self.visible.shape[-1]

    def place(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """Convert an index of a pair `[*leading, query, key]` to one of the mask's own axes."""
        leading = len(self.layout.leading)
        return (*index[:leading], *index[leading + 1 :]) if self.layout.by_key else index

    def describe(self, index: tuple[int, ...]) -> str:
        """Describe the index of a pair in words."""
        return self.layout.describe(self.place(index))
