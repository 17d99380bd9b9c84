"""The rule: what it raises, when, and what it lets pass.

Readings: the numbers of each head, by hand and against the whole matrix.
"""

import json
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from glasshead.watching.alarms import Alarm, AlarmRule, Every, HeadReading, Probe, VisibleKeys
from glasshead.watching.alarms.probe import AlarmDispatcher
from glasshead.watching.alarms.rule import _ROWS


def fed(rule, *numbers, layer="blocks.0", head=0, entropy=0.5):
    """The steps and kinds of the alarms of one head with these scores, a reading every 10 steps."""
    return raised(rule, *((entropy, score) for score in numbers), layer=layer, head=head)


def raised(rule, *pairs, layer="blocks.0", head=0):
    return [
        (alarm.step, alarm.kind)
        for number, (share, score) in enumerate(pairs, 1)
        for alarm in rule.feed([HeadReading(10 * number, layer, head, 1.0, share, score)])
    ]


def test_a_score_above_the_threshold_is_an_alarm_the_second_time_in_a_row():
    assert fed(AlarmRule(), 1, 101, 99, 101, 102, 103) == [(50, "maximum_logit")]
    assert fed(AlarmRule(), 1, 100, 100, 100) == []
    assert fed(AlarmRule(patience=1), 1, 101) == [(20, "maximum_logit")]
    assert fed(AlarmRule(score=7, patience=3), 1, 8, 8, 8) == [(40, "maximum_logit")]


def test_an_alarm_is_raised_once_for_each_head_and_kind():
    rule = AlarmRule(patience=1)
    assert fed(rule, 1, 200, 1, 300) == [(20, "maximum_logit")]
    assert fed(rule, 1, 200, head=1) == [(20, "maximum_logit")]
    assert fed(rule, 1, 200, layer="blocks.1") == [(20, "maximum_logit")]
    assert raised(rule, (0.01, 300)) == [(10, "entropy_collapse")]


def test_a_head_of_low_entropy_is_well_as_long_as_its_scores_are():
    healthy = [(0.9, 1), (0.3, 12), (0.01, 30), (0.005, 75), (0.002, 75)]
    assert raised(AlarmRule(), *healthy) == []
    collapsing = [(0.9, 1), (0.3, 12), (0.09, 76), (0.05, 80)]
    assert raised(AlarmRule(), *collapsing) == [(40, "entropy_collapse")]
    assert raised(AlarmRule(), (0.9, 1), (0.11, 90), (0.12, 99)) == []


def test_a_model_that_began_beyond_the_thresholds_may_go_on_there():
    assert fed(AlarmRule(), 80, 150, 159, 161, 162) == [(50, "maximum_logit")]
    assert raised(AlarmRule(), (0.08, 80), (0.05, 80), (0.041, 80)) == []
    assert raised(AlarmRule(), (0.08, 80), (0.03, 80), (0.03, 80)) == [(30, "entropy_collapse")]


def test_wherever_it_began_ten_thousand_is_an_alarm():
    assert fed(AlarmRule(), 9000, 9900, 10001, 10001) == [(40, "maximum_logit")]


def test_the_alarm_says_what_it_saw():
    rule = AlarmRule(patience=1)
    rule.feed([HeadReading(1, "a", 2, 1.5, 0.75, 3.0)])
    told = rule.feed([HeadReading(7, "a", 2, 0.1, 0.05, 123.5)])
    assert told == [
        Alarm(7, "a", 2, "entropy_collapse", 0.05, 0.1),
        Alarm(7, "a", 2, "maximum_logit", 123.5, 100.0),
    ]
    assert told[0].sentence.startswith(
        "step 7: the entropy of head 2 in a is 0.05 of its maximum, below 0.1. Lower the learn"
    )
    assert "the maximum score of head 2 in a is 124, above 100. Lower" in told[1].sentence
    assert "in the model is" in Alarm(1, "", 0, "maximum_logit", 2.0, 1.0).sentence


@pytest.mark.parametrize("nothing", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_passed_over(nothing):
    rule = AlarmRule()
    assert fed(rule, nothing, 1, 150, nothing, 150) == [(50, "maximum_logit")]
    assert raised(AlarmRule(), (0.5, 1), (nothing, 150), (nothing, 150)) == []


def test_a_rule_goes_on_with_what_another_remembers():
    first, second = AlarmRule(), AlarmRule()
    assert fed(first, 80, 161) == []
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert fed(second, 162, 170) == [(10, "maximum_logit")]
    third = AlarmRule()
    third.load_state_dict(second.state_dict())
    assert fed(third, 200, 300) == []
    # The first one has nothing of what the others saw.
    assert fed(first, 1) == []


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"score": 0}, "score must be a number above 0, got 0"),
        ({"entropy": "low"}, "entropy must be a number, got"),
        (
            {"entropy": 1.5},
            "must have an entropy of at most 1 and a growth of at least 1, got 1.5 and 2. Give",
        ),
        (
            {"growth": 0.5},
            "must have an entropy of at most 1 and a growth of at least 1, got 0.1 and 0.5",
        ),
        ({"patience": 0}, "patience must be a whole number"),
    ],
)
def test_what_is_no_setting_is_named(setting, message):
    with pytest.raises((ValueError, TypeError), match=message):
        AlarmRule(**setting)


def test_steps_are_due_at_the_first_and_at_multiples():
    every = Every(7)
    assert [step for step in range(1, 23) if every.due(step)] == [1, 7, 14, 21]
    later = Every(7)
    assert [step for step in range(9, 23) if later.due(step)] == [14, 21]
    assert Every(7).due(14)
    twice = Every(3)
    assert [twice.due(step) for step in (3, 3, 5, 5, 7)] == [True, False, False, False, True]
    with pytest.raises(ValueError, match="every must be a whole number"):
        Every(0)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"rule": 0}, "rule must be an AlarmRule such as AlarmRule"),
        ({"on_alarm": 5}, "on_alarm must be a function such as print, got 5"),
        ({"on_readings": "log"}, "on_readings must be a function such as print, got 'log'"),
    ],
)
def test_who_is_told_is_checked_before_training(told, message):
    with pytest.raises(TypeError, match=message):
        AlarmDispatcher(**({"rule": AlarmRule()} | told))


class Attending(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.rule = gh.Attention(mask=mask)

    def forward(self, x):
        return self.rule(x, x, x)


def read(model, *inputs, step=3):
    return read_passes(model, [inputs], step)


def read_passes(model, passes, step=3):
    """The readings of a step of several forward passes, each with its inputs."""
    probe = Probe(model)
    probe.begin()
    for inputs in passes:
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
    model = Attending(MASKS[name])
    readings = read_passes(model, [(x,) for x in texts])
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
    model = Attending(gh.causal())
    (even,) = read(model, torch.zeros(2, 1, 7, 5))
    assert even.normalized_entropy == pytest.approx(1)
    assert even.entropy == pytest.approx(sum(math.log(n) for n in range(2, 8)) / 6)
    (sharp,) = read(model, torch.eye(7).expand(1, 1, 7, 7) * 60)
    assert sharp.normalized_entropy == pytest.approx(0, abs=1e-9)
    assert sharp.max_score == pytest.approx(3600 / math.sqrt(7))


def test_a_text_of_one_token_has_nothing_to_spread():
    (one,) = read(Attending(gh.causal()), torch.randn(2, 1, 1, 5))
    assert (one.entropy, one.normalized_entropy) == (0, 1)


def test_an_empty_batch_has_nothing_to_tell():
    rule, x = gh.Attention(mask=gh.causal()), torch.zeros(0, 2, 3, 5)
    probe = Probe(rule)
    probe.begin()
    rule(x, x, x)
    told = [(one.entropy, one.normalized_entropy, one.max_score) for one in probe.end(1)]
    assert told == [(0.0, 1.0, -math.inf)] * 2


def test_an_attention_without_heads_has_one():
    (one,) = read(Attending(None), torch.zeros(2, 7, 5))
    assert (one.head, one.normalized_entropy) == (0, pytest.approx(1))


def test_cross_attention_of_grouped_heads_is_read_by_the_heads_that_ask():
    class Crossing(nn.Module):
        def forward(self, query, key):
            return F.scaled_dot_product_attention(query, key, key, enable_gqa=True)

    readings = read(Crossing(), torch.zeros(2, 6, 5, 4), torch.zeros(2, 2, 7, 4))
    assert [one.head for one in readings] == list(range(6))
    assert readings[5].entropy == pytest.approx(math.log(7))


def test_a_probe_that_left_watches_no_longer_and_asks_for_nothing():
    model = Attending(None)
    probe = Probe(model)
    assert probe.end(1) == []
    probe.begin()
    probe.leave()
    assert probe.end(1) == []
    assert len(read(model, torch.randn(1, 3, 5, 2))) == 3
    probe.begin()
    with pytest.raises(RuntimeError, match="watch saw no attention of Attending"):
        probe.end(1)
    assert probe.end(1) == []
