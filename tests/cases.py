"""Hypothesis strategies: attention problems of every kind, with unequal sizes."""

import math
from dataclasses import dataclass, field

import torch
from hypothesis import strategies as st
from torch import Tensor

import glasshead as gh

LENGTHS = st.sampled_from([1, 2, 3, 5, 7, 11])
WIDTHS = st.sampled_from([1, 2, 3, 5, 7])
BATCHES = st.sampled_from([(1,), (2,), (3,), (2, 3)])


class EverySecond(gh.Mask):
    """A mask of one's own that depends on distance alone, and is no band: every second key."""

    by_distance = True
    shows_own_key = True

    def visible(self, tile: gh.Tile) -> Tensor:
        return tile.distance() % 2 == 0

    def __repr__(self) -> str:
        return "every_second()"


@dataclass(frozen=True)
class Case:
    """Inputs and what is asked of them; `seed` makes the numbers."""

    batch: tuple[int, ...]
    kv_heads: int
    group: int
    queries: int
    keys: int
    dim: int
    value_dim: int
    seed: int
    mask: gh.Mask | None = None
    bias: Tensor | None = None
    offset: int | Tensor | None = None
    dtype: torch.dtype = torch.float64
    options: dict = field(default_factory=dict)

    @property
    def heads(self) -> int:
        return self.kv_heads * self.group

    def inputs(self, *, requires_grad: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(self.seed)
        shapes = (
            (*self.batch, self.heads, self.queries, self.dim),
            (*self.batch, self.kv_heads, self.keys, self.dim),
            (*self.batch, self.kv_heads, self.keys, self.value_dim),
        )
        made = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
        return tuple(x.to(self.dtype).requires_grad_(requires_grad) for x in made)

    def call(self) -> dict:
        return {"mask": self.mask, "bias": self.bias, "offset": self.offset}

    def visible(self) -> Tensor:
        """Which pairs are visible, `[*batch, heads, queries, keys]`."""
        offset = self.keys - self.queries if self.offset is None else self.offset
        shape = (*self.batch, self.heads, self.queries, self.keys)
        visible = torch.ones(shape, dtype=torch.bool)
        if self.mask is not None:
            tile = gh.Tile(range(self.queries), range(self.keys), offset)
            visible = visible & self.mask.visible(tile)
        return visible if self.bias is None else visible & ~self.bias.isneginf()


def booleans(draw, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    return torch.rand(shape, generator=generator) < draw(st.sampled_from([0.2, 0.5, 0.9]))


def whole(draw, low: int, high: int, shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    return torch.randint(low, high + 1, shape, generator=generator)


def offsets(draw, batch: tuple[int, ...]) -> int | Tensor | None:
    kind = draw(st.sampled_from(["default", "number", "per row"]))
    if kind == "default":
        return None
    return draw(st.integers(-3, 8)) if kind == "number" else whole(draw, -3, 8, batch)


def one_mask(draw, batch, heads, queries, keys) -> gh.Mask:
    kind = draw(st.sampled_from(["causal", "window", "padding", "documents", "prefix", "dense"]))
    bound = st.one_of(st.none(), st.integers(0, 5))
    if kind == "causal":
        return gh.causal(offsets(draw, batch))
    if kind == "window":
        return gh.window(draw(bound), draw(bound), offsets(draw, batch))
    if kind == "padding":
        return gh.padding(whole(draw, 0, keys + 1, batch))
    if kind == "documents":
        return gh.documents(whole(draw, 0, 2, (*batch, keys)))
    if kind == "prefix":
        return gh.prefix(whole(draw, 0, keys, batch))
    leading = draw(st.sampled_from([(), (heads,), (*batch, heads), (*batch, 1)]))
    rows = draw(st.sampled_from([1, queries]))
    return gh.dense(booleans(draw, *leading, rows, keys))


@st.composite
def masks(draw, batch, heads, queries, keys) -> gh.Mask:
    mask = one_mask(draw, batch, heads, queries, keys)
    for _ in range(draw(st.integers(0, 2))):
        other = one_mask(draw, batch, heads, queries, keys)
        how = draw(st.sampled_from(["and", "or", "and not"]))
        mask = mask & other if how == "and" else mask | other if how == "or" else mask & ~other
    return mask


@st.composite
def cases(draw, dtypes=(torch.float32, torch.float64), batches=BATCHES) -> Case:
    batch, kv_heads, group = draw(batches), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    queries, keys, heads = draw(LENGTHS), draw(LENGTHS), kv_heads * group
    dtype = draw(st.sampled_from(dtypes))
    mask = draw(st.one_of(st.none(), masks(batch, heads, queries, keys)))
    bias = None
    if draw(st.booleans()):
        leading = draw(st.sampled_from([(), (heads,), (*batch, heads), (*batch, 1)]))
        shape = (*leading, draw(st.sampled_from([1, queries])), keys)
        generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
        bias = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        if draw(st.booleans()):
            bias = bias.masked_fill(booleans(draw, *shape), -torch.inf)
    return Case(
        batch=batch,
        kv_heads=kv_heads,
        group=group,
        queries=queries,
        keys=keys,
        dim=draw(WIDTHS),
        value_dim=draw(WIDTHS),
        seed=draw(st.integers(0, 9999)),
        mask=mask,
        bias=bias,
        offset=offsets(draw, batch),
        dtype=dtype,
    )


NORMALIZERS = (
    gh.Softmax,
    gh.SoftmaxOne,
    gh.HardMax,
    gh.Sparsemax,
    gh.Entmax15,
    gh.Sigmoid,
)


def statistics_for(case, normalizer=gh.Softmax):
    """The statistics that fit a case."""
    exponential = normalizer in (gh.Softmax, gh.SoftmaxOne)
    return [
        *([gh.LogSumExp()] if exponential else []),
        gh.MaxWeight(),
        gh.MaxScore(),
        gh.Entropy(),
        gh.Received(),
        gh.MassOn([0, case.keys - 1] if case.keys > 1 else [0]),
        gh.MeanDistance(),
        gh.DistanceHistogram([0, 1, 4, math.inf]),
        gh.TopK(min(2, case.keys)),
        gh.PooledMap(1, min(3, case.keys)),
    ]
