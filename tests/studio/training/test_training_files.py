"""What the studio tells of files that are written to, cut off, broken, and taken away.

What the studio tells of a long run is bounded, and keeps what matters.
"""

import json
import math

import pytest

from glasshead.studio.background_jobs import NotThere
from glasshead.studio.views.training import TrainingLog, notes_of
from glasshead.studio.views.training_heads import alarms_of, heads_of, last_alarms
from glasshead.studio.views.training_log import NO_ROWS, buckets, downsampled, smoothed
from glasshead.tasks.training.logs import line_of, text_of
from glasshead.watching.alarms import Alarm, HeadReading
from studio.small_runs import line
from studio.training.told import curve


def test_a_line_that_is_being_written_is_left_out(run, log):
    run.go(5)
    whole = log.summary()
    run.folder.append(run.folder.log, "60,0.4")
    run.folder.append(run.folder.attention, "80,blocks.0.att")
    run.folder.append(run.folder.alarms, '{"step": 80')
    told = log.summary(whole["version"])
    assert told["changed"]
    assert told["charts"] == whole["charts"]
    assert told["heads"] == whole["heads"]
    assert told["problems"] == []
    run.folder.append(run.folder.log, "5,0.001,3.5,,\n")
    assert curve(log.summary(), "loss")[60] == 0.45


def test_rows_that_are_cut_back_are_gone(run, log):
    run.go(23)
    assert log.summary()["pace"]["step"] == 230
    run.cut(110)
    told = log.summary()
    assert (told["pace"]["step"], max(curve(told, "loss"))) == (110, 110)
    # Whoever only appends, as a run that was copied, makes the steps again as well.
    run.folder.append(run.folder.log, line(["90", "7.5", "0.1", "9.0", "", ""]))
    told = log.summary()
    assert curve(told, "loss")[90] == 7.5
    assert 110 not in curve(told, "loss")


@pytest.mark.parametrize("text", ["", "step,lo", "step,loss\n", "loss\n1.5\n", "\n\n\n"])
def test_a_log_without_a_row_is_a_run_that_has_not_begun(run, log, text):
    run.folder.log.write_text(text)
    told = log.summary()
    assert (told["charts"], told["table"]["rows"], told["pace"]["step"]) == ({}, [], 0)
    assert (told["problems"], told["phase"]) == ([], "waiting")


def test_numbers_that_are_none_are_told_as_what_they_are(run, log):
    run.folder.append(run.folder.log, "10,nan,inf,1.0,-inf,none\n²,1,1,1,1,1\n20,1.5\n")
    told = log.summary(smoothing=0.9)
    assert curve(told, "loss") == {10: "NaN", 20: 1.5}
    assert curve(told, "smoothed loss") == {10: "NaN", 20: 1.5}
    assert curve(told, "validation_loss") == {10: "-Infinity"}
    assert told["table"]["rows"][0] == [10, "NaN", "Infinity", 1.0, "-Infinity", None]
    json.dumps(told, allow_nan=False)


@pytest.mark.parametrize("name", ["config.json", "metrics.json", "attention.csv", "alarms.jsonl"])
def test_a_broken_file_is_named_and_the_others_are_told(run, log, name):
    run.go(9)
    (run.folder.path / name).write_text('{"a\n}\n')
    told = log.summary()
    assert any(name in problem for problem in told["problems"])
    assert len(curve(told, "loss")) == 9
    run.folder.write_config({"training": {"steps": 700}})
    run.folder.write_json(run.folder.metrics, {})
    run.watch()
    assert log.summary()["problems"] == []


def test_a_file_that_is_a_folder_is_named(run, log):
    run.folder.log.unlink()
    run.folder.log.mkdir()
    (problem,) = log.summary()["problems"]
    assert "log.csv cannot be read (Is a directory)." in problem


def test_a_folder_that_vanishes_is_told_of_and_is_read_when_it_is_back(run, log):
    run.go(9)
    before = log.summary()
    away = run.folder.path.with_name("away")
    run.folder.path.rename(away)
    with pytest.raises(NotThere, match="there is no folder .* at the moment.$"):
        log.summary(before["version"])
    run.folder.path.mkdir()
    with pytest.raises(NotThere, match="there is no run in .*: it has no config.json.$"):
        log.summary(before["version"])
    run.folder.path.rmdir()
    away.rename(run.folder.path)
    assert log.summary()["charts"] == before["charts"]


def test_a_file_that_vanishes_while_it_is_read_is_read_when_it_is_back(run, log, monkeypatch):
    run.go(9)

    def gone(*_):
        raise FileNotFoundError

    with monkeypatch.context() as patch:
        patch.setattr("glasshead.studio.views.training.read_rows", gone)
        missed = log.summary()
    assert (missed["charts"], missed["problems"]) == ({}, [])
    told = log.summary(missed["version"])
    assert told["changed"]
    assert len(curve(told, "loss")) == 9


def test_hostile_names_are_made_visible(run, log):
    run.folder.write_text(
        run.folder.attention, text_of([HeadReading(1, "a\u202eb\x00<img src=x>", 0, 1.0, 0.5, 2.0)])
    )
    run.folder.write_text(
        run.folder.alarms, line_of(Alarm(1, "a\u202eb", 0, "maximum_logit", math.inf, 100.0))
    )
    told = log.summary()
    assert told["heads"]["layers"] == ["a\\u202eb\\x00<img src=x>"]
    (alarm,) = told["alarms"]
    assert (alarm["layer"], alarm["value"]) == ("a\\u202eb", "inf")
    assert "\u202e" not in alarm["sentence"]


def test_a_long_log_is_thinned_and_keeps_its_peaks_and_its_end(run, log):
    rows = [f"{step},{1 + math.sin(step) / 9:.8g},0.1,{step},," for step in range(1, 9001)]
    rows[4321] = "4322,97.5,0.1,4322,,"
    rows[5432] = "5433,-3.25,0.1,5433,,"
    run.folder.append(run.folder.log, "\n".join(rows) + "\n")
    told = log.summary()
    points = curve(told, "loss")
    assert len(points) <= 1200
    assert (points[4322], points[5433]) == (97.5, -3.25)
    assert points[9000] == float(rows[-1].split(",")[1])
    assert ("training.thinned", {"count": "9\u2009000"}) in told["notes"]


def test_buckets_have_each_place_once_and_stay_as_they_are_while_a_series_grows():
    for count in (1, 2, 13, 97, 1009):
        made = buckets(count, 13)
        assert [place for bucket in made for place in bucket] == list(range(count))
        assert len(made) <= 13
        assert len(made[-1]) == 1
    assert buckets(89, 13)[:10] == buckets(97, 13)[:10]


def test_a_bucket_without_a_number_keeps_its_place():
    values = [math.nan] * 8 + [2.0, 1.0]
    steps, kept = downsampled(range(10), values, 6)
    assert steps[-1] == 9
    assert math.isnan(kept[0])
    assert kept[-2:] == [2.0, 1.0]


def test_the_smoothed_loss_is_the_weighted_mean_of_what_was_before():
    values, share = [3.0, 1.0, 4.0, 1.5, 9.0], 0.7
    for at, mean in enumerate(smoothed(values, share)):
        weights = [share ** (at - i) for i in range(at + 1)]
        total = sum(w * x for w, x in zip(weights, values, strict=False))
        assert mean == pytest.approx(total / sum(weights))


def test_many_heads_and_steps_are_bounded_and_keep_lowest_and_highest():
    readings = [
        HeadReading(step, f"layer {layer}", head, 2.0, math.sin(step * head), math.cos(step * head))
        for step in range(1, 102)
        for layer in range(41)
        for head in range(29)
    ]
    told = heads_of(readings)
    assert (told["of_heads"], len(told["heads"]), told["of_steps"]) == (1189, 1024, 101)
    assert len(told["columns"]) <= 16
    assert told["columns"][-1] == [101, 101]
    own = [r for r in readings if r.head == 7 and r.layer == "layer 0"]
    for name, pick in (("normalized_entropy", min), ("max_score", max)):
        for (first, last), value in zip(
            told["columns"], told["measures"][name]["values"][7], strict=True
        ):
            assert value == pick(getattr(one, name) for one in own[first - 1 : last])
    assert [name for name, _ in notes_of(NO_ROWS, told, [], 0)] == [
        "training.thinned.heads", "training.heads.left_out"
    ]  # fmt: skip


def test_the_last_of_many_alarms_are_told():
    raised = alarms_of([Alarm(step, "a", 1, "maximum_logit", 131.0, 100.0) for step in range(203)])
    shown = last_alarms(raised, None)
    assert ([shown[0]["step"], shown[-1]["step"]], shown[0]["row"]) == ([3, 202], None)
    told = heads_of([HeadReading(1, "a", 1, 1.0, 0.5, 2.0)])
    assert last_alarms(raised, told)[0]["row"] == 0
    (note,) = notes_of(NO_ROWS, told, shown, len(raised))
    assert note == ("training.alarms.some", {"shown": "200", "count": "203"})


def test_heads_that_were_not_seen_in_a_step_have_nothing_there():
    told = heads_of(
        [HeadReading(1, "a", 0, 2.0, 0.5, -math.inf), HeadReading(2, "b", 3, 1.0, 0.5, 7.0)]
    )
    assert told["heads"] == [[0, 0], [1, 3]]
    assert told["measures"]["max_score"]["values"] == [["-Infinity", None], [None, 7.0]]


@pytest.mark.parametrize("name", ["alarms.jsonl", "attention.csv", "metrics.json", "config.json"])
def test_what_was_mended_is_read_again(run, log, name):
    run.go(41)
    alarm = Alarm(40, "blocks.0.attention", 0, "maximum_logit", 500.0, 100.0)
    run.folder.append(run.folder.alarms, line_of(alarm))
    whole = TrainingLog(run.folder.path).summary()
    assert whole["heads"] is not None
    assert whole["alarms"]
    file = run.folder.path / name
    good = file.read_bytes()
    file.write_text("x\ny\n")
    broken = log.summary()
    assert any(name in problem for problem in broken["problems"])
    assert not log.summary(broken["version"])["changed"]
    file.write_bytes(good)
    repaired = log.summary(broken["version"])
    assert repaired["changed"]
    for part in ("heads", "alarms", "problems", "best", "charts"):
        assert repaired[part] == whole[part], part


def test_another_problem_is_another_version(run, log):
    run.go(41)
    run.folder.alarms.write_text("x\n")
    first = log.summary()
    run.folder.append(run.folder.attention, "y\n")
    second = log.summary(first["version"])
    assert second["changed"]
    assert "attention.csv" in second["problems"][0]


@pytest.mark.parametrize(
    "change",
    [
        {"value": int("9" * 400)},
        {"value": "y"},
        {"value": True},
        {"threshold": None},
        {"threshold": [1.0]},
        {"layer": 5},
        {"layer": None},
        {"head": []},
        {"head": -1},
        {"head": 1.0},
        {"step": "x"},
        {"step": 2**60},
        {"step": True},
        {"kind": {}},
        {"kind": "other"},
    ],
)
def test_an_alarm_of_another_type_is_a_sentence_each_time(run, log, change):
    run.go(41)
    good = json.loads(line_of(Alarm(1, "blocks.0.attention", 0, "maximum_logit", 500.0, 100.0)))
    run.folder.alarms.write_text(json.dumps(good) + "\n" + json.dumps(good | change) + "\n")
    for _ in range(2):
        told = log.summary()
        assert len(told["problems"]) == 1
        assert "alarms.jsonl is broken in line 2. Fix it" in told["problems"][0]


def test_a_log_too_large_is_refused_before_it_is_read(run, log):
    run.go(5)
    with run.folder.log.open("a") as opened:
        opened.truncate(2**24 + 1)
    told = log.summary()
    assert len(told["problems"]) == 1
    assert (
        "log.csv cannot be read (it has 16,777,217 bytes, more than the 16,777,216"
        in (told["problems"][0])
    )
    assert told["heads"] is not None
