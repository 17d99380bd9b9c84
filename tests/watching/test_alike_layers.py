"""Layers of a compiled step that share their mask are observed as each would be by itself."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from glasshead.watching.interception.session import Session
from glasshead.watching.watcher import Watcher

BATCH, HEADS, DIM, ROOM, LAYERS = 2, 3, 5, 11, 3
STATISTICS = [gh.Entropy(), gh.Received(), gh.MassOn([0]), gh.MaxWeight()]


class Cached(nn.Module):
    """Attention over a cache of fixed size, which a step writes to."""

    def __init__(self, scale: float | None):
        super().__init__()
        width = HEADS * DIM
        self.project, self.scale = nn.Linear(width, 3 * width), scale
        self.register_buffer("keys", torch.zeros(BATCH, HEADS, ROOM, DIM))
        self.register_buffer("values", torch.zeros(BATCH, HEADS, ROOM, DIM))

    def forward(self, x, place, mask):
        query, key, value = (
            self.project(x).unflatten(-1, (3, HEADS, DIM)).permute(2, 0, 3, 1, 4).unbind(0)
        )
        self.keys.index_copy_(2, place, key)
        self.values.index_copy_(2, place, value)
        context = F.scaled_dot_product_attention(
            query, self.keys, self.values, attn_mask=mask, scale=self.scale
        )
        return x + context.transpose(1, 2).flatten(2)


class Steps(nn.Module):
    """Layers that are given one mask, or some of them another one."""

    def __init__(self, scales=(None, None, None)):
        super().__init__()
        self.layers = nn.ModuleList(map(Cached, scales))

    def forward(self, x, place, masks):
        for layer, mask in zip(self.layers, masks, strict=True):
            x = layer(x, place, mask)
        return x


def growing(step: int, first: int = 0) -> torch.Tensor:
    """The mask of a text of `step` tokens before this one, of which the first may be padding."""
    places = torch.arange(ROOM)
    shown = (places <= step) & (places >= torch.tensor([0, first])[:, None])
    return shown[:, None, None, :]


def masks_alike(step):
    return (growing(step),) * LAYERS


def masks_of_copies(step):
    return tuple(growing(step) for _ in range(LAYERS))


def masks_with_one_other(step):
    # In the last pass the layer in the middle has padding of its own.
    return growing(step), growing(step, first=2 if step == 6 else 0), growing(step)


def masks_of_two_kinds(step):
    return growing(step), growing(step, first=1), growing(step)


def masks_added(step):
    shown = growing(step)
    return (torch.zeros(shown.shape).masked_fill(~shown, -torch.inf),) * LAYERS


def masks_with_biases(step):
    shown = growing(step)
    bias = torch.linspace(-1, 1, ROOM).expand(shown.shape)
    return tuple(n * bias.masked_fill(~shown, -torch.inf) for n in (1.0, 2.0, 3.0))


def masks_of_one(step):
    del step
    return masks_alike(0)


MASKS = [
    masks_alike,
    masks_of_copies,
    masks_with_one_other,
    masks_of_two_kinds,
    masks_added,
    masks_with_biases,
]


def watched(model, masks, *, steps=range(2, 7), **options):
    torch.manual_seed(1)
    code = torch.compile(model, backend="aot_eager", fullgraph=True)
    outputs = []
    with torch.no_grad(), gh.watch(model, STATISTICS, **options) as seen:
        for step in steps:
            x = torch.randn(BATCH, 1, HEADS * DIM)
            outputs.append(code(x, torch.tensor([step]), masks(step)))
    return seen, outputs


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Steps()


@pytest.fixture
def served(monkeypatch):
    """The calls that were observed by what they share."""
    calls, original = [], Watcher.observe_alike

    def counting(self, site, masks):
        done = original(self, site, masks)
        calls.extend([site] if done else [])
        return done

    monkeypatch.setattr(Watcher, "observe_alike", counting)
    return calls


def one_by_one(monkeypatch):
    """Let each call be captured by itself."""
    monkeypatch.setattr(Session, "observe_alike", lambda self, site: False)


def same_calls(one, other):
    assert list(one) == list(other)
    for name in one:
        assert len(one[name]) == len(other[name])
        for ours, theirs in zip(one[name], other[name], strict=True):
            assert (ours.position, ours.keys, ours.forward, ours.run) == (
                theirs.position,
                theirs.keys,
                theirs.forward,
                theirs.run,
            )
            assert ours.interleaved == theirs.interleaved
            assert ours.crossing == theirs.crossing
            assert ours.shape == theirs.shape
            assert (ours.real is None) == (theirs.real is None)
            for statistic in ours.values:
                torch.testing.assert_close(ours.values[statistic], theirs.values[statistic])


@pytest.mark.parametrize("masks", MASKS)
def test_as_each_by_itself(model, masks, monkeypatch):
    found, outputs = watched(model, masks)
    for layer in model.layers:
        layer.keys.zero_()
        layer.values.zero_()
    one_by_one(monkeypatch)
    expected, alone = watched(model, masks)
    same_calls(found, expected)
    assert all(torch.equal(*both) for both in zip(outputs, alone, strict=True))


# Of 5 passes of 3 layers: in the first nothing is known, and the second is learned from.
@pytest.mark.parametrize(
    ("masks", "count"),
    [
        (masks_alike, 9),
        (masks_of_copies, 9),
        (masks_with_one_other, 8),
        (masks_of_two_kinds, 9),
        (masks_added, 9),
        (masks_with_biases, 0),
    ],
)
def test_what_is_shared(model, masks, count, served):
    watched(model, masks)
    assert len(served) == count


def test_the_weights_are_those_of_the_cache(model, served):
    found, _ = watched(model, masks_alike)
    layer, call = model.layers[2], found["layers.2"][-1]
    assert served
    assert call.position == 6
    torch.manual_seed(1)
    for step in range(2, 7):
        x = torch.randn(BATCH, 1, HEADS * DIM)
        for before in model.layers[:2]:
            x = before(x, torch.tensor([step]), growing(step))
    query = layer.project(x).unflatten(-1, (3, HEADS, DIM))[:, :, 0].transpose(1, 2)
    weights = (query @ layer.keys[:, :, :7].mT / DIM**0.5).softmax(-1)
    torch.testing.assert_close(call.received, weights[:, :, 0])
    torch.testing.assert_close(call.entropy, torch.special.entr(weights).sum(-1))


def test_other_scales_are_not_shared(served, monkeypatch):
    torch.manual_seed(0)
    model = Steps(scales=(None, 2.0, None))
    found, _ = watched(model, masks_alike)
    assert len(served) == 9
    one_by_one(monkeypatch)
    expected, _ = watched(model, masks_alike)
    same_calls(found, expected)


@pytest.mark.parametrize("option", [{"heads": [1]}, {"layers": "layers.[02]"}, {"keep": "weights"}])
def test_options(model, option, monkeypatch):
    found, _ = watched(model, masks_alike, **option)
    one_by_one(monkeypatch)
    expected, _ = watched(model, masks_alike, **option)
    same_calls(found, expected)


def test_padding_that_the_watch_is_given(model, served, monkeypatch):
    padded = torch.ones(BATCH, 1, dtype=torch.long)
    padded[1, 0] = 0
    # Its position in the text is 0, so that the mask of one token is that of the query.
    found, _ = watched(model, masks_of_one, attention_mask=padded)
    assert served
    assert found["layers.1"][-1].real.tolist() == [[True], [False]]
    assert found["layers.1"][-1].received[1].eq(0).all()
    one_by_one(monkeypatch)
    expected, _ = watched(model, masks_of_one, attention_mask=padded)
    same_calls(found, expected)


def test_two_watches_see_each_call(model, served):
    code = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.manual_seed(1)
    with (
        torch.no_grad(),
        gh.watch(model, STATISTICS) as outer,
        gh.watch(model, STATISTICS) as inner,
    ):
        for step in range(2, 7):
            x = torch.randn(BATCH, 1, HEADS * DIM)
            code(x, torch.tensor([step]), masks_alike(step))
    assert not served
    alone, _ = watched(model, masks_alike)
    same_calls(outer, inner)
    same_calls(outer, alone)
