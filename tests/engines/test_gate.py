"""No tensor of another shape, dtype, range or memory reaches machine code, and engines agree on it.

A part of a user's own may give anything. Where the reference computes a value, so do the others,
and where it refuses, they refuse.
"""

from dataclasses import dataclass

import pytest
import torch

import glasshead as gh
from glasshead.engines.streaming.kernels.streamed import OutputSpec
from glasshead.engines.streaming.operator import streaming, streaming_backward
from glasshead.recipe.tile import Intervals
from glasshead.statistics.reductions import TimesKeys, TimesQueries

BATCH, HEADS, KV_HEADS, QUERIES, KEYS, DIM = 3, 6, 2, 5, 7, 11
PAIRS = (BATCH, HEADS, QUERIES, KEYS)


def inputs(dtype=torch.float32):
    generator = torch.Generator().manual_seed(7)
    shapes = (BATCH, HEADS, QUERIES, DIM), (BATCH, KV_HEADS, KEYS, DIM), (BATCH, KV_HEADS, KEYS, 3)
    made = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    return tuple(x.requires_grad_() for x in made)


def noise(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(11))


class GivenMask(gh.Mask):
    def __init__(self, given):
        self.given = given

    def visible(self, tile):
        return self.given > -0.5


class GivenIntervals(gh.Mask):
    def __init__(self, starts, stops):
        self.starts, self.stops = starts, stops

    def visible(self, tile):
        starts, stops = self.intervals(tile)
        return (tile.columns() >= starts) & (tile.columns() < stops)

    def intervals(self, tile):
        return Intervals(self.starts.to(tile.device), self.stops.to(tile.device))


class GivenKeyRange(gh.Mask):
    def __init__(self, given):
        self.given = given

    def visible(self, tile):
        return tile.distance() >= 0

    def key_range(self, tile):
        return self.given


class GivenBias(gh.Bias):
    def __init__(self, given):
        super().__init__()
        self.given = torch.nn.Parameter(given)

    def forward(self, tile):
        return self.given


class GivenByDistance(gh.Bias):
    by_distance = True

    def __init__(self, given):
        super().__init__()
        self.given = given

    def forward(self, tile):
        count = self.given.shape[-1]
        if count <= 1:
            return self.given[..., None]
        keys = torch.arange(tile.keys.start, tile.keys.stop + count - (QUERIES + KEYS - 1))
        places = QUERIES - 1 - torch.arange(tile.queries.start, tile.queries.stop)[:, None] + keys
        return self.given[..., places.clamp(max=count - 1)]


class GivenFeatures(gh.InnerProduct):
    formula = "f(q)·g(k)"

    def __init__(self, query=None, key=None):
        super().__init__()
        self.query, self.key = query, key

    def features(self, query, key):
        if self.query is not None:
            return self.query, key
        # The reference has a key head for each query head.
        shared = self.key.shape[:-2][-1:] == (KV_HEADS,)
        times = key.shape[-3] // KV_HEADS if shared else 1
        return query, self.key.repeat_interleave(times, -3) if times > 1 else self.key


class GivenScale(gh.Dot):
    def __init__(self, given):
        super().__init__()
        self.given = given

    def scale(self, dim):
        return self.given


class GivenSink(gh.Softmax):
    exponential, is_softmax = True, False

    def __init__(self, given):
        super().__init__()
        self.given = given

    def sink_score(self):
        return self.given

    def normalize(self, scores):
        sink = self.given.reshape(-1, 1, 1).expand(*scores.shape[:-3], -1, scores.shape[-2], 1)
        sink = sink.expand(*scores.shape[:-1], 1)
        return torch.cat([scores, sink], -1).softmax(-1)[..., :-1]


@dataclass(frozen=True, eq=False)
class Given(gh.Statistic):
    reduction: object
    unit = "weight"

    def reductions(self, problem):
        return (self.reduction,)

    def finish(self, problem, result):
        return result[0]


def variants(*full):
    """Each axis one short, one long, zero and one, and axes left out or added."""
    yield full
    for axis in range(len(full)):
        for size in {full[axis] - 1, full[axis] + 1, 0, 1}:
            yield (*full[:axis], size, *full[axis + 1 :])
    for fewer in range(1, len(full)):
        yield full[fewer:]
    yield (1, *full)
    yield (3, *full)


def whole(shape):
    return torch.zeros(shape, dtype=torch.int64)


PARTS = {
    "mask": (PAIRS, lambda shape: {"mask": GivenMask(noise(*shape))}),
    "starts": (
        (BATCH, 1, QUERIES, 1),
        lambda shape: {"mask": GivenIntervals(whole(shape), whole((QUERIES, 1)) + 3)},
    ),
    "stops": (
        (BATCH, 1, QUERIES, 1),
        lambda shape: {"mask": GivenIntervals(whole((QUERIES, 1)), whole(shape) + 3)},
    ),
    "bias": (PAIRS, lambda shape: {"bias": GivenBias(noise(*shape))}),
    "by distance": (
        (BATCH, HEADS, QUERIES + KEYS - 1),
        lambda shape: {"bias": GivenByDistance(noise(*shape))},
    ),
    "features of queries": (
        (BATCH, HEADS, QUERIES, DIM),
        lambda shape: {"score": GivenFeatures(query=noise(*shape))},
    ),
    "features of keys": (
        (BATCH, KV_HEADS, KEYS, DIM),
        lambda shape: {"score": GivenFeatures(key=noise(*shape))},
    ),
    "scale": ((HEADS, 1, 1), lambda shape: {"score": GivenScale(noise(*shape))}),
    "sink": ((HEADS,), lambda shape: {"normalizer": GivenSink(noise(*shape))}),
}
OPERANDS = {
    "per_key": ((BATCH, HEADS, KEYS, 2), lambda shape: TimesKeys(noise(*shape))),
    "per_query": ((BATCH, HEADS, QUERIES, 2), lambda shape: TimesQueries(noise(*shape))),
}


def outcome(engine, statistics=(), **parts):
    """Context, statistics and gradients, or the class of the error."""
    given = inputs()
    try:
        attention = gh.Attention(engine=engine, **parts)
        seen = attention.observe(*given, {"entropy": gh.Entropy(), **dict(statistics)})
        found = [seen.context, *seen.values.values()]
        learned = [x for x in (*given, *attention.parameters()) if x.requires_grad]
        gradients = torch.autograd.grad(seen.context.sum(), learned, allow_unused=True)
    except (TypeError, ValueError) as error:
        return type(error), str(error)
    return None, [x for x in (*found, *gradients) if x is not None]


def agree(first, second):
    assert first[0] == second[0], (first, second)
    if first[0] is None:
        for one, other in zip(first[1], second[1], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    return first[0] is None


@pytest.mark.parametrize("engine", ["streaming", "fused"])
@pytest.mark.parametrize("name", PARTS)
def test_engines_agree_on_what_a_part_gives(name, engine):
    full, make = PARTS[name]
    if engine == "fused" and name == "sink":
        pytest.skip("SDPA has no sink")
    fits = [
        agree(outcome("reference", **make(shape)), outcome(engine, **make(shape)))
        for shape in variants(*full)
    ]
    assert fits[0]
    assert not all(fits)


@pytest.mark.parametrize("engine", ["streaming", "fused"])
@pytest.mark.parametrize("name", OPERANDS)
def test_engines_agree_on_the_operand_of_a_statistic(name, engine):
    full, make = OPERANDS[name]
    fits = []
    for shape in variants(*full):
        asked = {"asked": Given(make(shape))}
        fits.append(agree(outcome("reference", asked), outcome(engine, asked)))
    assert fits[0]
    assert not all(fits)


@pytest.mark.parametrize("engine", ["reference", "streaming", "fused"])
@pytest.mark.parametrize(
    ("starts", "stops"), [(-1, 3), (0, KEYS + 1), (KEYS + 1, KEYS + 2), (3, 2), (0, 2**40)]
)
def test_intervals_beyond_the_keys_are_refused(engine, starts, stops):
    mask = GivenIntervals(whole((QUERIES, 1)) + starts, whole((QUERIES, 1)) + stops)
    kind, said = outcome(engine, mask=mask)
    assert kind is ValueError
    assert said.startswith("the intervals of GivenIntervals must begin before they stop, within")


@pytest.mark.parametrize("engine", ["reference", "streaming", "fused"])
def test_intervals_of_another_dtype_are_refused(engine):
    mask = GivenIntervals(whole((QUERIES, 1)).int(), whole((QUERIES, 1)).int() + 3)
    assert outcome(engine, mask=mask) == (
        TypeError,
        "the intervals of GivenIntervals must be of torch.int64, got torch.int32.",
    )


@pytest.mark.parametrize(
    "given", [range(-3, KEYS), range(KEYS + 100), range(-(2**40), 2**40), range(KEYS)]
)
def test_a_key_range_that_holds_more_than_the_keys_holds_them(given):
    expected, found = (
        outcome(engine, mask=GivenKeyRange(given)) for engine in ("reference", "streaming")
    )
    assert agree(expected, found)


def test_an_error_names_the_part_its_shape_and_the_shape_that_it_must_have():
    _, said = outcome("streaming", bias=GivenBias(noise(HEADS, QUERIES - 1, KEYS)))
    assert said == (
        "the result of GivenBias must have a shape that broadcasts to [3, 6, 5, 7], got [6, 4, 7]."
    )
    _, said = outcome("streaming", {"asked": Given(TimesKeys(noise(3, 2)))})
    assert said == (
        "the per_key of Given must have a shape that broadcasts to [3, 6, 7, 2], got [3, 2]."
    )


# What the operator takes, by name: a call of it, and one tensor of another shape.
def operands():
    query, key, value = (x.detach() for x in inputs())
    bounds = torch.tensor([0, KEYS])[None, :, None].expand(BATCH, 2, QUERIES).contiguous()
    return {
        "query": query,
        "key": key,
        "value": value,
        "bounds": bounds,
        "offsets": whole(BATCH),
        "visible": torch.ones(PAIRS, dtype=torch.bool),
        "bias": noise(*PAIRS),
        "table": noise(BATCH, HEADS, QUERIES + KEYS - 1),
        "sink": noise(HEADS),
        "known": noise(BATCH, HEADS, QUERIES),
    }


def call(tensors, **asked):
    return streaming(*tensors.values(), 1.0, 0.0, 0, *OutputSpec(**asked))


def call_backward(tensors, **changes):
    given = {
        "row_stats": noise(BATCH, HEADS, 2, QUERIES),
        "context": noise(BATCH, HEADS, QUERIES, 3),
        "logsumexp": noise(BATCH, HEADS, QUERIES),
        "entropy": noise(BATCH, HEADS, QUERIES),
        "by_key": noise(BATCH, HEADS, 2, QUERIES),
        "per_key": noise(BATCH, HEADS, 2, KEYS),
    } | changes
    return streaming_backward(*tensors.values(), 1.0, 0.0, 0, [True] * 3, *given.values())


def cut(tensor, axis):
    return tensor.narrow(axis, 0, tensor.shape[axis] - 1).contiguous()


@pytest.mark.parametrize("name", operands())
def test_the_operator_refuses_each_tensor_with_an_axis_one_short(name):
    call(operands())
    for axis in range(operands()[name].ndim):
        if (name, axis) in {("value", 3), ("sink", 1)}:
            continue  # The width of the values is free.
        tensors = operands()
        tensors[name] = cut(tensors[name], axis)
        for run in (call, call_backward):
            with pytest.raises(ValueError, match=" must "):
                run(tensors)


@pytest.mark.parametrize(
    "name", ["row_stats", "context", "logsumexp", "entropy", "by_key", "per_key"]
)
def test_the_backward_operator_refuses_gradients_of_another_shape(name):
    call_backward(operands())
    full = {"row_stats": (3, 6, 2, 5), "context": (3, 6, 5, 3), "by_key": (3, 6, 2, 5)}
    shape = full.get(name, (3, 6, 2, 7) if name == "per_key" else (3, 6, 5))
    for axis in range(len(shape)):
        with pytest.raises(ValueError, match=" must "):
            call_backward(operands(), **{name: cut(noise(*shape), axis)})


@pytest.mark.parametrize("name", operands())
def test_the_operator_refuses_each_tensor_of_another_dtype(name):
    tensors = operands()
    tensors[name] = tensors[name].to(torch.int16)
    with pytest.raises(TypeError, match=f"{name} must be of torch"):
        call(tensors)


@pytest.mark.parametrize("ends", [(-1, KEYS), (0, KEYS + 1), (2**40, 2**41)])
def test_the_operator_refuses_bounds_beyond_the_keys(ends):
    tensors = operands()
    tensors["bounds"] = torch.tensor(ends)[None, :, None].expand(1, 2, QUERIES).contiguous()
    with pytest.raises(ValueError, match="bounds must be keys from 0 to 7"):
        call(tensors)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"top": -1}, "top must be at least 0, got -1"),
        ({"far": -1}, "far must be at least 0, got -1"),
        ({"maps": (3,)}, r"maps must be rows and columns of at least 1 each, got \[3\]"),
        ({"maps": (3, 0)}, r"maps must be rows and columns of at least 1 each, got \[3, 0\]"),
        (
            {"per_key": torch.zeros(1, 1, 2, KEYS - 1)},
            r"per_key must have the axes \[3, 6,",
        ),
        (
            {"per_query": torch.zeros(1, 1, 2, KEYS)},
            r"per_query must have the axes \[3, 6",
        ),
    ],
)
def test_the_operator_refuses_requests_that_cannot_be(asked, said):
    with pytest.raises(ValueError, match=said):
        call(operands(), **asked)


def test_pairs_in_another_layout_are_read_as_they_are():
    """A compiler may change the strides of the mask and the bias."""
    tensors = operands()
    expected = call(tensors)
    for name in ("visible", "bias"):
        tensors[name] = tensors[name].transpose(-1, -2).contiguous().transpose(-1, -2)
    assert all(torch.equal(one, other) for one, other in zip(expected, call(tensors), strict=True))


def test_a_remembered_program_is_not_taken_for_values_of_another_dtype():
    """Of half precision, queries that are scaled by head are in float32, and values are not."""
    attention = gh.Attention(score=gh.Dot(beta=torch.rand(HEADS)), engine="streaming")
    query, key, value = (torch.randn(2, HEADS, length, 32) for length in (67, 131, 131))
    attention.observe(query, key, value, [gh.Entropy()])
    half = [x.bfloat16() for x in (query, key, value)]
    expected = gh.Attention(score=attention.score, engine="reference")(*half)
    found = attention.observe(*half, [gh.Entropy()]).context
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)


def shrunk(x, size):
    x.untyped_storage().resize_(size)
    return x


@pytest.mark.parametrize("size", [0, 1000])
@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("options", [{}, {"bias": gh.ALiBi(2)}, {"mask": gh.padding([5, 5, 3])}])
@pytest.mark.parametrize("engine", ["streaming", "reference", "fused"])
def test_freed_or_shrunken_memory_is_refused(engine, options, which, size):
    attention = gh.Attention(engine=engine, **options)
    for calls in range(2):  # The second one may be remembered.
        given = [torch.randn(3, 2, 67, 32) for _ in range(3)]
        for _ in range(calls):
            attention(*given)
        shrunk(given[which], size)
        with pytest.raises((ValueError, RuntimeError), match="storage"):
            attention(*given)


@pytest.mark.parametrize("size", [0, 1000])
@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("options", [{}, {"bias": gh.ALiBi(2)}])
def test_memory_freed_before_the_backward_is_refused(options, which, size):
    attention = gh.Attention(engine="streaming", **options)
    given = [torch.randn(3, 2, 67, 32, requires_grad=True) for _ in range(3)]
    context = attention(*given)
    shrunk(given[which], size)
    with pytest.raises(ValueError, match="storage of at least 51456 bytes, got"):
        context.sum().backward()


def test_a_view_into_a_storage_that_is_long_enough_is_read():
    x = torch.randn(3, 2, 67, 64)[..., 32:]
    assert gh.Attention(engine="streaming")(x, x, x).isfinite().all()
    x.untyped_storage().resize_(x.untyped_storage().nbytes() - 4)
    with pytest.raises(ValueError, match="storage"):
        gh.Attention(engine="streaming")(x, x, x)
