"""Several runs over one another, a part of their steps, and what is told of their alarms."""

import pytest

from glasshead.studio.background_jobs import NotThere, Refusal
from glasshead.studio.views.training import TrainingLog, charts_of
from glasshead.studio.views.training_heads import alarm_groups, alarms_of, heads_of
from glasshead.studio.views.training_log import read_rows
from glasshead.studio.views.training_runs import MOST_OVER, TrainingRuns
from glasshead.watching.alarms import Alarm, AlarmRule, HeadReading
from studio.small_runs import SmallRun
from studio.training.told import curve


@pytest.fixture
def runs(tmp_path):
    """Three runs that lie side by side, and one elsewhere of the same name."""
    names = ("own", "side", "slow", "else/side")
    return {
        name: SmallRun(tmp_path / name).watch().go(rows)
        for name, rows in zip(names, (37, 23, 11, 5), strict=True)
    }


def told_of(run):
    return TrainingLog(run.folder.path).summary(smoothing=0.5)


def test_runs_beside_are_offered_and_drawn_where_they_are_chosen(runs):
    over = TrainingRuns(runs["own"].folder.path)
    (runs["own"].folder.path.parent / "no run").mkdir()
    told = over.summary(smoothing=0.5)
    assert (told["run"], told["runs"], told["others"]) == ("own", ["side", "slow"], {})
    told = over.summary(smoothing=0.5, chosen=["slow", "gone"])
    assert list(told["others"]) == ["slow"]
    for name in ("loss", "smoothed loss", "validation_loss"):
        assert curve(told["others"]["slow"], name) == curve(told_of(runs["slow"]), name)
    own = told_of(runs["slow"])
    assert told["others"]["slow"]["figures"]["step"] == own["pace"]["step"] == 110
    for name, extremes in told["others"]["slow"]["extremes"].items():
        assert extremes == own["heads"]["measures"][name]["extreme"]


def test_runs_that_are_given_are_drawn_from_the_beginning(runs):
    given = runs["else/side"].folder.path
    over = TrainingRuns(runs["own"].folder.path, [given, runs["own"].folder.path])
    told = over.summary()
    assert told["runs"] == ["side", "side (2)", "slow"]
    assert {name: other["figures"]["step"] for name, other in told["others"].items()} == {
        "side": 50
    }
    assert over.summary(chosen=["side (2)"])["others"]["side (2)"]["figures"]["step"] == 230
    assert over.summary(chosen=[])["others"] == {}


def test_a_change_of_any_of_them_is_told(runs):
    over = TrainingRuns(runs["own"].folder.path)
    first = over.summary(chosen=["slow"])
    assert not over.summary(first["version"], chosen=["slow"])["changed"]
    assert over.summary(first["version"], chosen=[])["changed"]
    runs["slow"].go(2)
    later = over.summary(first["version"], chosen=["slow"])
    assert later["changed"]
    assert later["others"]["slow"]["figures"]["step"] == 130
    runs["slow"].folder.config.unlink()
    assert over.summary(later["version"], chosen=["slow"])["others"] == {}


def test_too_many_runs_are_refused_and_a_run_that_is_gone_is_told_of(runs):
    over = TrainingRuns(runs["own"].folder.path)
    with pytest.raises(Refusal, match="at most 5 other runs can be drawn over one, got 6"):
        over.summary(chosen=[str(at) for at in range(MOST_OVER + 1)])
    runs["own"].folder.config.unlink()
    with pytest.raises(NotThere, match="there is no run"):
        over.summary()


def test_a_part_has_its_own_points_and_one_on_each_side(runs):
    rows = read_rows(runs["own"].folder.log)
    whole = charts_of(rows, 0.5)
    part = charts_of(rows, 0.5, (95, 133))
    for chart, curves in part.items():
        for own, all_of_it in zip(curves, whole[chart], strict=True):
            known = dict(zip(all_of_it["steps"], all_of_it["values"], strict=True))
            assert all(known[s] == v for s, v in zip(own["steps"], own["values"], strict=True))
            within = {step for step in known if 95 <= step <= 133}
            assert within <= set(own["steps"])
            assert {min(known), max(known)} <= set(own["steps"])
    assert part["loss"][0]["steps"] == [10, 90, 100, 110, 120, 130, 140, 370]
    assert part["validation_accuracy"][0]["steps"] == [70, 140, 350]


def test_a_long_part_is_exact_where_the_whole_is_thinned(run):
    lines = "".join(f"{step},{1 / step:.8g},0.1,{step},,\n" for step in range(1, 9001))
    run.folder.append(run.folder.log, lines)
    log = TrainingLog(run.folder.path)
    assert len(curve(log.summary(), "loss")) <= 1200
    part = curve(log.summary(span=(4000, 4700)), "loss")
    assert list(part) == [1, *range(3999, 4702), 9000]


def test_alarms_are_grouped_by_kind():
    raised = [
        Alarm(40, "a", 1, "maximum_logit", 131.0, 100.0),
        Alarm(80, "a", 1, "maximum_logit", 171.0, 100.0),
        Alarm(80, "b", 1, "maximum_logit", 191.0, 100.0),
        Alarm(20, "a", 0, "entropy_collapse", 0.05, 0.1),
    ]
    logits, entropies = alarm_groups(alarms_of(raised))
    assert logits == {"kind": "maximum_logit", "count": 3, "heads": 2, "first": 40, "last": 80}
    assert (entropies["count"], entropies["first"]) == (1, 20)
    assert alarm_groups(None) == []


def test_thresholds_are_those_of_the_rule_and_extremes_of_all_heads():
    readings = [HeadReading(3, "a", head, 1.0, 0.5 - head / 1e5, head) for head in range(1031)]
    measures = heads_of(readings)["measures"]
    rule = AlarmRule()
    assert measures["max_score"]["threshold"] == rule.score
    assert measures["normalized_entropy"]["threshold"] == rule.entropy
    assert len(measures["max_score"]["values"]) == 1024
    assert measures["max_score"]["extreme"] == [1030]
    assert measures["normalized_entropy"]["extreme"] == [0.5 - 1030 / 1e5]
