"""Readings: the numbers of each head, by hand and against the whole matrix."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from glasshead.watching.alarms import Probe, VisibleKeys
from glasshead.watching.alarms.rule import _ROWS


class Twice(nn.Module):
    """Its attention is called twice, with texts of unequal lengths."""

    def __init__(self, mask):
        super().__init__()
        self.rule = gh.Attention(mask=mask)

    def forward(self, *texts):
        return [self.rule(x, x, x) for x in texts]


def read(model, *inputs, step=3):
    probe = Probe(model)
    probe.begin()
    model(*inputs)
    return probe.end(step)


MASKS = {
    "none": None,
    "causal": gh.causal(),
    "window": gh.window(before=2, after=1),
    "padding": gh.padding([3, 11]),
    "documents": gh.causal() & gh.documents([0, 1, 0, 1, 2, 0, 0, 1, 2, 2, 1]),
    "dense": gh.dense(torch.arange(121).view(11, 11) % 3 == 1),
    "empty": gh.causal(offset=-4),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("bias", [None, gh.ALiBi(3)])
def test_visible_keys_are_those_of_the_matrix(name, bias):
    attention = gh.Attention(mask=MASKS[name], bias=bias)
    x = torch.randn(2, 3, 11, 5)
    seen = attention.observe(x, x, x, [VisibleKeys()]).visible_keys
    expected = VisibleKeys().of(attention.trace(x, x, x))
    assert seen.shape == (2, 3, 11)
    assert torch.equal(seen, expected)


def test_visible_keys_of_a_bias_that_hides():
    hidden = torch.zeros(7, 7).masked_fill(torch.eye(7).bool(), -torch.inf)
    x = torch.randn(1, 2, 7, 5)
    assert (gh.Attention(bias=hidden).observe(x, x, x, [VisibleKeys()]).visible_keys == 6).all()


def test_visible_keys_of_more_queries_than_are_asked_at_once():
    length = _ROWS + 5
    dense = gh.dense(torch.ones(length, length, dtype=torch.bool).tril())
    x = torch.randn(1, 1, length, 3)
    seen = gh.Attention(mask=dense).observe(x, x, x, [VisibleKeys()]).visible_keys
    assert seen.flatten().tolist() == list(range(1, length + 1))


@pytest.mark.parametrize("name", MASKS)
def test_readings_are_those_of_the_matrix(name):
    texts = [torch.randn(2, 3, 11, 5) * 2 for _ in range(2)]
    model = Twice(MASKS[name])
    readings = read(model, *texts)
    assert [(one.step, one.layer, one.head) for one in readings] == [(3, "", h) for h in range(3)]
    traces = [model.rule.trace(x, x, x) for x in texts]
    for one in readings:
        weights = torch.cat([trace.weights[:, one.head].flatten(0, 1) for trace in traces]).double()
        scores = torch.stack([trace.masked[:, one.head] for trace in traces])
        count = torch.cat([VisibleKeys().of(trace)[:, one.head].flatten() for trace in traces])
        entropy = torch.special.entr(weights).sum(-1)[count > 1]
        assert one.entropy == pytest.approx(entropy.mean().item(), rel=1e-5)
        share = entropy.sum() / count[count > 1].double().log().sum()
        assert one.normalized_entropy == pytest.approx(share.item(), rel=1e-5)
        assert one.max_score == pytest.approx(scores.max().item(), rel=1e-5)


def test_a_head_that_spreads_alike_has_all_of_its_entropy_and_one_of_one_key_none():
    model = Twice(gh.causal())
    (even,) = read(model, torch.zeros(2, 1, 7, 5))
    assert even.normalized_entropy == pytest.approx(1)
    assert even.entropy == pytest.approx(sum(math.log(n) for n in range(2, 8)) / 6)
    (sharp,) = read(model, torch.eye(7).expand(1, 1, 7, 7) * 60)
    assert sharp.normalized_entropy == pytest.approx(0, abs=1e-9)
    assert sharp.max_score == pytest.approx(3600 / math.sqrt(7))


def test_a_text_of_one_token_has_nothing_to_spread():
    (one,) = read(Twice(gh.causal()), torch.randn(2, 1, 1, 5))
    assert (one.entropy, one.normalized_entropy) == (0, 1)


def test_an_empty_batch_has_nothing_to_tell():
    rule, x = gh.Attention(mask=gh.causal()), torch.zeros(0, 2, 3, 5)
    probe = Probe(rule)
    probe.begin()
    rule(x, x, x)
    told = [(one.entropy, one.normalized_entropy, one.max_score) for one in probe.end(1)]
    assert told == [(0.0, 1.0, -math.inf)] * 2


def test_an_attention_without_heads_has_one():
    (one,) = read(Twice(None), torch.zeros(2, 7, 5))
    assert (one.head, one.normalized_entropy) == (0, pytest.approx(1))


def test_cross_attention_of_grouped_heads_is_read_by_the_heads_that_ask():
    class Crossing(nn.Module):
        def forward(self, query, key):
            return F.scaled_dot_product_attention(query, key, key, enable_gqa=True)

    readings = read(Crossing(), torch.zeros(2, 6, 5, 4), torch.zeros(2, 2, 7, 4))
    assert [one.head for one in readings] == list(range(6))
    assert readings[5].entropy == pytest.approx(math.log(7))


def test_a_probe_that_left_watches_no_longer_and_asks_for_nothing():
    model = Twice(None)
    probe = Probe(model)
    assert probe.end(1) == []
    probe.begin()
    probe.leave()
    assert probe.end(1) == []
    assert len(read(model, torch.randn(1, 3, 5, 2))) == 3
    probe.begin()
    with pytest.raises(RuntimeError, match="watch saw no attention of Twice"):
        probe.end(1)
    assert probe.end(1) == []
