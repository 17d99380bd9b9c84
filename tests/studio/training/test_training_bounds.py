"""What the studio tells of a long run is bounded, and keeps what matters."""

import math

import pytest

from glasshead.studio.views.training import alarms_of, heads_of, last_alarms, notes_of
from glasshead.studio.views.training_log import NO_ROWS, buckets, downsampled, smoothed
from glasshead.watching.alarms import Alarm, HeadReading
from studio.training.told import curve


def test_a_long_log_is_thinned_and_keeps_its_peaks_and_its_end(run, log):
    rows = [f"{step},{1 + math.sin(step) / 9:.8g},0.1,{step},," for step in range(1, 9001)]
    rows[4321] = "4322,97.5,0.1,4322,,"
    rows[5432] = "5433,-3.25,0.1,5433,,"
    run.folder.append(run.folder.log, "\n".join(rows) + "\n")
    told = log.told()
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
        "training.thinned.heads", "training.heads.left_out", "training.alarms.none"
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
