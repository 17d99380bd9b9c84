"""What the studio tells of files that are written to, cut off, broken, and taken away."""

import json
import math

import pytest

from glasshead.studio.background_jobs import NotThere
from glasshead.tasks.training.attention_log import line_of, text_of
from glasshead.watching.alarms import Alarm, HeadReading
from studio.small_runs import line
from studio.training.told import curve


def test_a_line_that_is_being_written_is_left_out(run, log):
    run.go(5)
    whole = log.told()
    run.folder.append(run.folder.log, "60,0.4")
    run.folder.append(run.folder.attention, "80,blocks.0.att")
    run.folder.append(run.folder.alarms, '{"step": 80')
    told = log.told(whole["version"])
    assert told["changed"]
    assert told["charts"] == whole["charts"]
    assert told["heads"] == whole["heads"]
    assert told["problems"] == []
    run.folder.append(run.folder.log, "5,0.001,3.5,,\n")
    assert curve(log.told(), "loss")[60] == 0.45


def test_rows_that_are_cut_back_are_gone(run, log):
    run.go(23)
    assert log.told()["pace"]["step"] == 230
    run.cut(110)
    told = log.told()
    assert (told["pace"]["step"], max(curve(told, "loss"))) == (110, 110)
    # Whoever only appends, as a run that was copied, makes the steps again as well.
    run.folder.append(run.folder.log, line(["90", "7.5", "0.1", "9.0", "", ""]))
    told = log.told()
    assert curve(told, "loss")[90] == 7.5
    assert 110 not in curve(told, "loss")


@pytest.mark.parametrize("text", ["", "step,lo", "step,loss\n", "loss\n1.5\n", "\n\n\n"])
def test_a_log_without_a_row_is_a_run_that_has_not_begun(run, log, text):
    run.folder.log.write_text(text)
    told = log.told()
    assert (told["charts"], told["table"]["rows"], told["pace"]["step"]) == ({}, [], 0)
    assert (told["problems"], told["phase"]) == ([], "waiting")


def test_numbers_that_are_none_are_told_as_what_they_are(run, log):
    run.folder.append(run.folder.log, "10,nan,inf,1.0,-inf,none\n²,1,1,1,1,1\n20,1.5\n")
    told = log.told(smoothing=0.9)
    assert curve(told, "loss") == {10: "NaN", 20: 1.5}
    assert curve(told, "smoothed loss") == {10: "NaN", 20: 1.5}
    assert curve(told, "validation_loss") == {10: "-Infinity"}
    assert told["table"]["rows"][0] == [10, "NaN", "Infinity", 1.0, "-Infinity", None]
    json.dumps(told, allow_nan=False)


@pytest.mark.parametrize("name", ["config.json", "metrics.json", "attention.csv", "alarms.jsonl"])
def test_a_broken_file_is_named_and_the_others_are_told(run, log, name):
    run.go(9)
    (run.folder.path / name).write_text('{"a\n}\n')
    told = log.told()
    assert any(name in problem for problem in told["problems"])
    assert len(curve(told, "loss")) == 9
    run.folder.write_config({"training": {"steps": 700}})
    run.folder.write_json(run.folder.metrics, {})
    run.watch()
    assert log.told()["problems"] == []


def test_a_file_that_is_a_folder_is_named(run, log):
    run.folder.log.unlink()
    run.folder.log.mkdir()
    (problem,) = log.told()["problems"]
    assert "log.csv cannot be read (Is a directory)." in problem


def test_a_folder_that_vanishes_is_told_of_and_is_read_when_it_is_back(run, log):
    run.go(9)
    before = log.told()
    away = run.folder.path.with_name("away")
    run.folder.path.rename(away)
    with pytest.raises(NotThere, match="there is no folder .* at the moment.$"):
        log.told(before["version"])
    run.folder.path.mkdir()
    with pytest.raises(NotThere, match="there is no run in .*: it has no config.json.$"):
        log.told(before["version"])
    run.folder.path.rmdir()
    away.rename(run.folder.path)
    assert log.told()["charts"] == before["charts"]


def test_a_file_that_vanishes_while_it_is_read_is_read_when_it_is_back(run, log, monkeypatch):
    run.go(9)

    def gone(*_):
        raise FileNotFoundError

    with monkeypatch.context() as patch:
        patch.setattr("glasshead.studio.views.training.read_rows", gone)
        missed = log.told()
    assert (missed["charts"], missed["problems"]) == ({}, [])
    told = log.told(missed["version"])
    assert told["changed"]
    assert len(curve(told, "loss")) == 9


def test_hostile_names_are_made_visible(run, log):
    run.folder.write_text(
        run.folder.attention, text_of([HeadReading(1, "a\u202eb\x00<img src=x>", 0, 1.0, 0.5, 2.0)])
    )
    run.folder.write_text(
        run.folder.alarms, line_of(Alarm(1, "a\u202eb", 0, "maximum_logit", math.inf, 100.0))
    )
    told = log.told()
    assert told["heads"]["layers"] == ["a\\u202eb\\x00<img src=x>"]
    (alarm,) = told["alarms"]
    assert (alarm["layer"], alarm["value"]) == ("a\\u202eb", "inf")
    assert "\u202e" not in alarm["sentence"]
