"""One attention call: its tensors and checked settings, and the trace of every step."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, TypeVar, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glasshead.recipe.biases import Bias
from glasshead.recipe.masks.base import Mask, combined
from glasshead.recipe.normalizers import Normalizer
from glasshead.recipe.part import HeadIndex
from glasshead.recipe.scores import Dot, InnerProduct, Score
from glasshead.recipe.tile import (
    Intervals,
    Span,
    Tile,
    intersect,
    three_axes,
    values_unavailable,
)
from glasshead.recipe.validation import check_covers, check_gives, check_offset, named

_Made = TypeVar("_Made")


@dataclass(frozen=True, eq=False)
class Problem:
    """Input of an engine: tensors that always have a heads axis, and a checked recipe.

    The order is fixed: score → β → softcap → bias → mask → normalizer → dropout → context.

    Attributes:
        query, key, value: `[*batch, heads, length, dim]`; query head i reads key head
            i // (query heads / key heads).
        score: The score function of a query and a key.
        softcap: Scores become softcap · tanh(score / softcap); None leaves them.
        biases: Biases added to the scores.
        mask: Which pairs may see each other; None: all.
        normalizer: Turns scores into weights.
        dropout: The probability that a weight is dropped, 0 outside training.
        offset: The position of query 0 among the keys, a number or one per batch row.
        axes: The number of axes of the caller's tensors.
    """

    query: Float[Tensor, "*batch heads queries dim"]
    key: Float[Tensor, "*batch kv_heads keys dim"]
    value: Float[Tensor, "*batch kv_heads keys value_dim"]
    score: Score
    softcap: float | None
    biases: tuple[Bias | Tensor, ...]
    mask: Mask | None
    normalizer: Normalizer
    dropout: float
    offset: int | Tensor
    axes: int
    # What a call needs several times, computed once. `replace` begins again.
    _known: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def _once(self, name: str, compute: Callable[[], _Made]) -> _Made:
        if name not in self._known:
            self._known[name] = compute()
        return self._known[name]

    @property
    def scores_shape(self) -> tuple[int, ...]:
        """Return `(*batch, heads, queries, keys)`."""
        known = self._known.get("scores_shape")
        if known is None:
            known = self._known["scores_shape"] = (*self.query.shape[:-1], self.key.shape[-2])
        return known

    @property
    def group(self) -> int:
        """Return how many query heads share one key head."""
        return self.query.shape[-3] // max(self.key.shape[-3], 1) or 1

    @property
    def scale(self) -> float | Float[Tensor, "*heads_1_1"]:
        """Return β, shaped to multiply the scores."""
        return self.score.scale(self.query.shape[-1])

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype to compute in, float32 at least: half precision is too coarse."""
        return torch.promote_types(self.query.dtype, torch.float32)

    def tile(self) -> Tile:
        """Return the tile of all query-key pairs."""
        if "tile" not in self._known:
            self._known["tile"] = Tile(
                queries=Span(0, self.query.shape[-2]),
                keys=Span(0, self.key.shape[-2]),
                offset=self.offset,
                headed=self.axes > 3,
                device=self.query.device,
                dtype=self.dtype,
            )
        return self._known["tile"]

    def check(self) -> None:
        """Raise a ValueError if a part of the recipe does not fit the inputs."""
        shape, heads = self.scores_shape, self.query.shape[-3]
        self.score.check(heads, self.query.shape[-1])
        if self.normalizer.is_custom or not self.normalizer.is_softmax:
            self.normalizer.check(heads)
        check_offset("offset", self.offset, shape)
        if self.mask is not None or self.biases:
            tile = self.tile()
            for bias in self.biases:
                check_bias(bias, tile, shape)
            if self.mask is not None:
                self.mask.check(tile, shape)
        self._check_custom(heads)

    def _check_custom(self, heads: int) -> None:
        """Raise a ValueError if ranges, scale or sink of a custom part do not fit the inputs."""
        mask, scale = self.mask, self.scale if self.score.is_custom else None
        if mask is not None and any(one.is_custom for one in mask.conjuncts or (mask,)):
            self.key_ranges()
        if isinstance(scale, Tensor):
            check_gives(self.score, scale, (heads, 1, 1), what="scale")
        if self.normalizer.is_custom:
            sink = self.normalizer.sink_score()
            if isinstance(sink, Tensor):
                check_gives(self.normalizer, sink, (heads,), what="sink")

    def bias_and_visible(
        self, mask: Mask | None, tile: Tile
    ) -> tuple[
        Float[Tensor, "*#batch #heads #queries #keys"] | None,
        Bool[Tensor, "*#batch #heads #queries #keys"] | None,
    ]:
        """Sum the biases, with 0 where one hides, and return which pairs are visible.

        None means no bias, or nothing hidden. `mask` is the problem's own, or a
        simpler one that says the same of the tile.
        """
        leading, total = self.scores_shape[:-2], None
        visible = None if mask is None else three_axes(visible_pairs(mask, tile, leading))
        for bias in self.biases:
            values = three_axes(bias_values(bias, tile, leading)).to(tile.dtype)
            shows = bias_shows(bias, values)
            if shows is not None:
                values = values.masked_fill(~shows, 0.0)
                visible = shows if visible is None else visible & shows
            total = values if total is None else total + values
        return total, visible

    def scaled_features(
        self, query: Tensor, key: Tensor, *, positive: bool = False
    ) -> tuple[Tensor, Tensor, float]:
        """Compute vectors whose inner product times a number, the last result, is the score.

        The score has to be an inner product of features.

        Args:
            query, key: The inputs, maybe cut or cleared.
            positive: Whether the number must be above 0.
        """
        score, scale = cast("InnerProduct", self.score), self.scale
        folded = isinstance(scale, Tensor) or (positive and scale <= 0)
        if folded or not isinstance(score, Dot):
            # Features computed from the inputs are not rounded to half precision again.
            query, key = (x.to(self.dtype) for x in (query, key))
        query, key = score.checked_features(query, key)
        if not folded:
            return query, key, float(scale)
        return query * (scale.to(query) if isinstance(scale, Tensor) else scale), key, 1.0

    def simplified_mask(self) -> Mask | None:
        """Return the simplest equivalent mask, or None if nothing is hidden."""
        mask = self.mask
        return None if mask is None else self._once("mask", lambda: mask.simplified(self.tile()))

    def with_part_of_mask(self, part: Mask | None) -> "Problem":
        """Return the problem with some of the masks that its simplified mask combines."""
        rest = replace(self, mask=part)
        # It is as simple as the whole.
        rest._known["mask"] = part  # noqa: SLF001 - of the same class
        return rest

    def key_ranges(self, *, counted: bool = False) -> tuple[Intervals | None, Mask | None]:
        """Split the mask into one key range per query, and the mask that remains, as `split` does.

        Args:
            counted: Whether the ranges must be numbers even if the inputs, on the meta device, have
                none: a mask has its own.
        """
        mask = self.simplified_mask()
        if mask is None:
            return None, None
        name, tile = "ranges", self.tile()
        if counted and tile.device.type == "meta":
            name, tile = "counted ranges", replace(tile, device=torch.device("cpu"))
        return self._once(name, lambda: split(mask, tile, self.scores_shape[:-3]))

    def without_dropout(self) -> "Problem":
        """Return the problem of the undropped weights."""
        if not self.dropout:
            return self
        return self._once("without dropout", self._without_dropout)

    def _without_dropout(self) -> "Problem":
        bare = replace(self, dropout=0.0)
        bare._known.update(self._known)  # noqa: SLF001 - of the same class
        return bare

    def detached(self) -> "Problem":
        """Return the problem with its inputs detached from the autograd graph."""
        return self.with_inputs(self.query.detach(), self.key.detach(), self.value.detach())

    def with_inputs(self, query: Tensor, key: Tensor, value: Tensor) -> "Problem":
        """Return the problem of other inputs; a step of generation has no time for `replace`."""
        return Problem(
            query,
            key,
            value,
            self.score,
            self.softcap,
            self.biases,
            self.mask,
            self.normalizer,
            self.dropout,
            self.offset,
            self.axes,
        )

    def select_head(self, batch: tuple[int, ...], head: int) -> "Problem | None":
        """Select one head, `[queries, dim]`, with its own part of β, biases, mask and sink.

        Queries and keys are views. None if the score or the normalizer is custom, and may read
        across heads.

        Args:
            batch: A place along each batch axis.
            head: Which query head.

        >>> import glasshead as gh
        >>> q, k = torch.randn(2, 6, 5, 3), torch.randn(2, 2, 7, 3)
        >>> attention = gh.Attention(score=gh.Dot(beta=torch.arange(6.0)), bias=gh.ALiBi(6))
        >>> one = attention.problem(q, k, k).select_head((1,), 4)
        >>> one.scores_shape, one.score, one.key[0].equal(k[1, 1])
        ((1, 5, 7), Dot(beta=4), True)
        """
        place = HeadIndex(self.tile(), batch, head)
        score, normalizer = self.score.select_head(place), self.normalizer.select_head(place)
        if score is None or normalizer is None:
            return None
        of = head // self.group
        return replace(
            self,
            query=self.query[(*batch, slice(head, head + 1))],
            key=self.key[(*batch, slice(of, of + 1))],
            value=self.value[(*batch, slice(of, of + 1))],
            score=score,
            biases=tuple(select_head(bias, place) for bias in self.biases),
            mask=None if self.mask is None else self.mask.select_head(place),
            normalizer=normalizer,
            offset=place.offset,
            axes=2,
        )

    def as_given(self, value: Any) -> Any:
        """Return a result, of one tensor or several, in the layout of the caller's inputs."""
        if isinstance(value, Tensor):
            return value if self.axes > 3 else value.squeeze(self.query.ndim - 3)
        parts = [self.as_given(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


def split(
    mask: Mask | None, tile: Tile, batch: Sequence[int] = ()
) -> tuple[Intervals | None, Mask | None]:
    """Split `mask` into one key range per query, and the mask that remains.

    A query sees the keys that are in its range and that the remaining mask shows; None stands for
    every key. Of masks that are combined by `&`, those with ranges make the first part.

    Args:
        mask: The mask.
        tile: Some of the pairs.
        batch: The batch axes of the scores.

    Errors: a ValueError if the ranges of a custom mask are no ranges of the tile's keys.

    >>> import glasshead as gh
    >>> mask = gh.causal() & gh.documents([0, 1, 0]) & gh.padding(2)
    >>> ranges, rest = split(mask, gh.Tile(range(3), range(3)))
    >>> ranges.stops.flatten(), rest
    (tensor([1, 2, 2]), documents(tensor[3]))
    """
    if mask is None:
        return None, None
    ranges: list[Intervals] = []
    rest: list[Mask] = []
    for one in mask.conjuncts or (mask,):
        intervals = one.intervals(tile)
        if intervals is None:
            rest.append(one)
        else:
            if one.is_custom:
                _check_ranges(one, intervals, tile, batch)
            ranges.append(intervals)
    return (reduce(intersect, ranges) if ranges else None), (combined(rest) if rest else None)


def bias_values(
    bias: Bias | Tensor, tile: Tile, leading: Sequence[int] | None = None
) -> Float[Tensor, "*#leading #queries #keys"]:
    """Evaluate a bias object, or slice a bias tensor, for the pairs of a tile.

    Args:
        bias: The bias.
        tile: Some of the pairs.
        leading: The batch axes and the heads of the scores, if they are known.

    Errors: a ValueError if a custom bias gives no numbers of these pairs.
    """
    values = bias(tile) if isinstance(bias, Bias) else tile.cut(bias)
    if leading is not None:
        check_gives(bias, values, (*leading, *tile.shape))
    return values


def bias_shows(
    bias: Bias | Tensor, values: Float[Tensor, "*shape"]
) -> Bool[Tensor, "*shape"] | None:
    """Return which pairs a bias leaves visible (not -inf), or None if it never hides."""
    return None if isinstance(bias, Bias) and not bias.hides else ~values.isneginf()


def check_bias(bias: Bias | Tensor, tile: Tile, scores: tuple[int, ...]) -> None:
    """Check that `bias` covers scores `[*batch, heads, queries, keys]`, else raise a ValueError."""
    if isinstance(bias, Bias):
        bias.check(tile, scores)
        return
    layout = scores if tile.headed else (*scores[:-3], *scores[-2:])
    check_covers("bias=", bias.shape, layout)


def select_head(bias: Bias | Tensor, place: HeadIndex) -> Bias | Tensor:
    """Select one head of a bias object, or of a bias tensor, without its gradient."""
    return bias.select_head(place) if isinstance(bias, Bias) else place.of_given(bias.detach())


def visible_pairs(
    mask: Mask, tile: Tile, leading: Sequence[int] | None = None
) -> Bool[Tensor, "*#leading #queries #keys"]:
    """Evaluate the mask on a tile.

    Args:
        mask: The mask.
        tile: Some of the pairs.
        leading: The batch axes and the heads of the scores, if they are known.

    Errors: a TypeError or ValueError if a custom mask gives no booleans of these pairs.
    """
    visible = mask.visible(tile)
    if visible.dtype != torch.bool:
        raise TypeError(
            f"visible() of a mask must return booleans, True = may attend, got {visible.dtype} "
            f"from {mask!r}. Compare, or convert it with .bool()."
        )
    if leading is not None:
        check_gives(mask, visible, (*leading, *tile.shape))
    return visible


def _check_ranges(mask: Mask, ranges: Intervals, tile: Tile, batch: Sequence[int]) -> None:
    """Raise an error if ranges are no whole numbers of the tile's keys, or no ranges."""
    for side in ranges:
        check_gives(mask, side, (*batch, 1, tile.shape[0], 1), what="intervals")
        if side.dtype != torch.int64:
            raise TypeError(
                f"the intervals of {named(mask)} must be of torch.int64, got {side.dtype}."
            )
    first, last = tile.keys.start, tile.keys.stop
    if values_unavailable(tile) or not ranges.starts.numel():
        return
    low, high = int(ranges.starts.min()), int(ranges.stops.max())
    if low < first or high > last or bool((ranges.starts > ranges.stops).any()):
        raise ValueError(
            f"the intervals of {named(mask)} must begin before they stop, within the keys from "
            f"{first} to {last}, got some from {low} to {high}."
        )


def sees_and_seen(
    visible: Bool[Tensor, "*#batch #heads #queries #keys"],
) -> tuple[Bool[Tensor, "*#batch #heads #queries 1"], Bool[Tensor, "*#batch 1 #keys 1"]]:
    """Return which queries see any key, and which keys any query of their batch row sees.

    Unseen keys, and queries that see none, may hold anything, NaN included, and 0 · NaN would
    spread it, in the value or in the gradient: so engines put zeros in its place.
    """
    seen = visible.any(-2, keepdim=True).any(-3, keepdim=True).transpose(-1, -2)
    return visible.any(-1, keepdim=True), seen


def clear_hidden(
    query: Tensor, key: Tensor, value: Tensor, sees: Tensor, seen: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the inputs, with 0 in queries that see no key and in keys that no query sees.

    Such rows may hold anything, NaN included, which a product would spread.
    """
    return (
        torch.where(sees, query, 0.0),
        torch.where(seen, key, 0.0),
        torch.where(seen, value, 0.0),
    )


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
    """Every step of an attention; a step that does nothing repeats the one before it.

    The steps are in the layout of the inputs. Those between `values` and `context` are as they
    were computed: in float32 if the inputs have half precision.

    Attributes:
        queries, keys, values: The inputs.
        scores: The raw score of each pair.
        scaled: After β.
        capped: After the softcap.
        masked: After bias and mask: -inf where hidden.
        weights: After the normalizer, before dropout.
        dropped: After dropout.
        context: The result, dropped @ values.
        problem: The attention settings and the inputs that it was computed from.

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
        """Iterate over each step's name and tensor, in order."""
        return ((name, getattr(self, name)) for name in STEPS)

    def __repr__(self) -> str:
        shapes = "".join(f"\n  {name:<8} {list(step.shape)}" for name, step in self.steps())
        return f"Trace({shapes}\n)"

    def _repr_html_(self) -> str:
        from glasshead.drawing import Block, Document, Table, sampled_map

        rows = [[name, str(list(step.shape))] for name, step in self.steps()]
        blocks: list[Block] = [Table(["step", "shape"], rows, align=["left", "left"])]
        *leading, queries, keys = self.weights.shape
        if self.weights.numel() and not self.weights.is_meta:
            first = self.weights.detach()[(0,) * len(leading)]
            of = "".join(f"{place}, " for place in [0] * len(leading))
            picture = sampled_map(
                lambda row: first[row].tolist(), queries, keys, of=f"weights[{of}:, :]"
            )
            blocks.append(picture)
        return Document(blocks, title="Trace of an attention")._repr_html_()
