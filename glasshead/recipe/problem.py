"""One attention call: its tensors and checked settings, and the trace of every step."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glasshead.recipe.biases import Bias, bias_shows, bias_values, check_bias
from glasshead.recipe.masks import Mask
from glasshead.recipe.normalizers import Normalizer
from glasshead.recipe.scores import Score
from glasshead.recipe.tile import Span, Tile, three_axes
from glasshead.recipe.validation import check_offset


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

    @property
    def scores_shape(self) -> tuple[int, ...]:
        """Return `(*batch, heads, queries, keys)`."""
        return (*self.query.shape[:-1], self.key.shape[-2])

    @property
    def group(self) -> int:
        """Return how many query heads share one key head."""
        return self.query.shape[-3] // self.key.shape[-3]

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
        queries, keys = self.scores_shape[-2:]
        return Tile(
            queries=Span(0, queries),
            keys=Span(0, keys),
            offset=self.offset,
            headed=self.axes > 3,
            device=self.query.device,
            dtype=self.dtype,
        )

    def check(self) -> None:
        """Raise a ValueError where a part of the recipe does not fit the inputs."""
        shape, heads = self.scores_shape, self.query.shape[-3]
        self.score.check(heads, self.query.shape[-1])
        self.normalizer.check(heads)
        check_offset("offset", self.offset, shape)
        if self.mask is not None or self.biases:
            tile = self.tile()
            for bias in self.biases:
                check_bias(bias, tile, shape)
            if self.mask is not None:
                self.mask.check(tile, shape)

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
        total, visible = None, None if mask is None else three_axes(visible_pairs(mask, tile))
        for bias in self.biases:
            values = three_axes(bias_values(bias, tile)).to(tile.dtype)
            shows = bias_shows(bias, values)
            if shows is not None:
                values = values.masked_fill(~shows, 0.0)
                visible = shows if visible is None else visible & shows
            total = values if total is None else total + values
        return total, visible

    def detached(self) -> "Problem":
        """Return the problem with its inputs detached from the autograd graph."""
        query, key, value = (x.detach() for x in (self.query, self.key, self.value))
        return replace(self, query=query, key=key, value=value)

    def as_given(self, tensor: Tensor) -> Tensor:
        """Return a result in the layout of the caller's inputs."""
        return tensor if self.axes > 3 else tensor.squeeze(self.query.ndim - 3)


def visible_pairs(mask: Mask, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
    """Evaluate the mask on a tile; raise a TypeError where a custom mask returns no booleans."""
    visible = mask.visible(tile)
    if visible.dtype != torch.bool:
        raise TypeError(
            f"visible() of a mask gives booleans, True = may attend, and {mask!r} gave "
            f"{visible.dtype}: compare, or convert it with .bool()."
        )
    return visible


def sees_and_seen(
    visible: Bool[Tensor, "*#batch #heads #queries #keys"],
) -> tuple[Bool[Tensor, "*#batch #heads #queries 1"], Bool[Tensor, "*#batch 1 #keys 1"]]:
    """Return which queries see any key, and which keys any query of their batch row sees.

    Unseen keys, and queries that see none, may hold anything, NaN included, and 0 · NaN would
    spread it, in the value or in the gradient: so engines put zeros in its place.
    """
    seen = visible.any(-2, keepdim=True).any(-3, keepdim=True).transpose(-1, -2)
    return visible.any(-1, keepdim=True), seen


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
        """Iterate over each step's name and tensor, in order."""
        return ((name, getattr(self, name)) for name in STEPS)

    def __repr__(self) -> str:
        shapes = "".join(f"\n  {name:<8} {list(step.shape)}" for name, step in self.steps())
        return f"Trace({shapes}\n)"
