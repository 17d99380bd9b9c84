"""The sentences about what came of a run, and the settings in which compared runs differ."""

import json
import math

import pytest

from glasshead.studio.views.training_findings import differing, findings_of
from glasshead.studio.views.training_heads import alarms_of, heads_of
from glasshead.studio.views.training_log import LogRows
from glasshead.studio.views.training_runs import TrainingRuns
from glasshead.watching.alarms import Alarm, HeadReading
from studio.small_runs import SmallRun
from studio.training.told import curve

HEADS = {"a": 3, "b": 5}


def heads(layers=HEADS):
    readings = [
        HeadReading(1, layer, head, 1.0, 0.5, 3.0)
        for layer, count in layers.items()
        for head in range(count)
    ]
    return heads_of(readings)


def collapses(step_of, layers=HEADS):
    """Return an alarm of each head, at the step that a function of layer and head gives."""
    return alarms_of(
        [
            Alarm(step_of(layer, head), layer, head, "entropy_collapse", 0.05, 0.1)
            for layer, count in layers.items()
            for head in range(count)
        ]
    )


def log(*losses):
    return LogRows(["loss"], [7 * (at + 1) for at in range(len(losses))], [[x] for x in losses])


def test_all_heads_that_collapsed_are_one_sentence():
    (found, *_) = findings_of(log(4.0, 3.0), collapses(lambda *_: 80), heads())
    assert found[0] == "training.found.entropy_collapse.all"
    assert (found[1]["of"], found[1]["step"]) == ("8", "80")


def test_a_head_counts_by_its_first_alarm():
    raised = collapses(lambda layer, head: 20 * head + 11)
    again = [{**alarm, "step": alarm["step"] + 700} for alarm in raised]
    (found, *_) = findings_of(log(4.0, 3.0), again + raised, heads())
    assert found[0] == "training.found.entropy_collapse.spread"
    assert (found[1]["step"], found[1]["last"]) == ("11", "91")


def test_some_heads_are_counted_among_all_of_them():
    raised = collapses(lambda *_: 1300, {"b": 2})
    (found, *_) = findings_of(log(4.0, 3.0), raised, heads())
    assert found[0] == "training.found.entropy_collapse"
    assert [found[1][place] for place in ("count", "of", "step")] == ["2", "8", "1\u2009300"]


def test_the_step_of_the_first_alarm_is_said_once():
    scores = alarms_of([Alarm(19, "a", 1, "maximum_logit", 131.0, 100.0)])
    names = lambda alarms: [name for name, _ in findings_of(log(4.0), alarms, heads())]  # noqa: E731
    *_, first = findings_of(log(4.0), scores + collapses(lambda *_: 23, {"b": 2}), heads())
    assert first == ("training.found.first", {"step": "19"})
    # A sentence about all heads has it, too.
    every = [collapses(lambda *_: 17), collapses(lambda _, head: 17 + head)]
    assert [names(scores + one)[1:] for one in every] == [
        ["training.found.entropy_collapse.all"],
        ["training.found.entropy_collapse.spread"],
    ]
    assert "training.found.first" in names(scores + collapses(lambda *_: 23))


def test_a_single_head_is_not_told_of_as_all():
    raised = collapses(lambda *_: 13, {"a": 1})
    (found, *_) = findings_of(log(4.0), raised, heads({"a": 1}))
    assert found[0] == "training.found.entropy_collapse"


def test_each_kind_of_alarm_has_its_sentence():
    scores = alarms_of([Alarm(19, "a", 1, "maximum_logit", 131.0, 100.0)])
    found = findings_of(log(4.0), scores + collapses(lambda *_: 23, {"a": 2}), heads())
    kinds = ["maximum_logit", "entropy_collapse"]
    assert [name for name, _ in found[:2]] == [f"training.found.{kind}" for kind in kinds]
    assert [places["threshold"] for _, places in found[:2]] == ["100", "0.1"]
    assert [places["count"] for _, places in found[:2]] == ["1", "2"]


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_a_loss_that_is_lost_comes_first(lost):
    found = findings_of(log(4.0, lost, 3.0, lost, lost), [], heads())
    assert found == [
        ("training.found.diverged", {"step": "28"}),
        ("training.alarms.none", {}),
    ]
    # What was mended is no finding.
    assert findings_of(log(lost, 4.0, lost, 3.0), None, None) == []
    assert findings_of(log(lost, lost), None, None)[0][1] == {"step": "7"}


def test_the_loss_is_told_of_from_the_first_row_to_the_last():
    (found,) = findings_of(log(4.25, 9.0, 0.5), None, None)
    places = {"first": "4.25", "last": "0.5", "steps": "21"}
    assert found == ("training.found.loss", places)
    assert findings_of(log(4.25), None, None) == findings_of(log(), None, None) == []


def test_settings_that_differ_are_those_that_are_not_in_all_alike():
    told = differing(
        {
            "own": {"task": "write", "training": {"steps": 40, "betas": [0.9, 0.99]}},
            "b": {"task": "write", "training": {"steps": 40, "betas": [0.9, 0.95], "clip": None}},
        }
    )
    assert told == {
        "runs": ["own", "b"],
        "rows": [
            ["training.betas", "[0.9, 0.99]", "[0.9, 0.95]"],
            ["training.clip", None, "null"],
        ],
        "more": 0,
    }


def test_settings_name_files_without_their_folders_and_are_kept_short():
    names = {"files": ["/home/someone/a.txt"], "held_out": "/home/someone/b.txt"}
    told = differing({"a": {"data": names}, "b": {}, "c": {"word": "x" * 99}})
    files, held_out, word = told["rows"]
    assert files == ["data.files", '["a.txt"]', None, None]
    assert held_out[1] == "b.txt"
    assert word[3] == "x" * 39 + "…"


def test_more_settings_than_a_table_shows_are_counted():
    told = differing({"a": {f"s{at}": at for at in range(53)}, "b": {}})
    assert (len(told["rows"]), told["more"]) == (48, 5)


def test_runs_that_are_drawn_over_another_are_told_of_too(tmp_path):
    own, slow = (SmallRun(tmp_path / name).watch().go(23) for name in ("own", "slow"))
    config = slow.folder.read_config()
    slow.folder.config.write_text(json.dumps(config | {"seed": 11}))
    runs = TrainingRuns(own.folder.path)
    assert "settings" not in runs.summary()
    told = runs.summary(chosen=["slow"])
    assert told["settings"]["runs"] == ["own", "slow"]
    assert told["settings"]["rows"] == [["seed", None, "11"]]
    losses = [*curve(told, "loss").values()]
    (alarm, _, loss) = told["others"]["slow"]["found"]
    assert loss[1] == {"first": f"{losses[0]:.4g}", "last": f"{losses[-1]:.4g}", "steps": "230"}
    assert alarm[1]["step"] == "200"
    assert told["found"] == told["others"]["slow"]["found"]
