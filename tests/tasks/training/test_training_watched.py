"""A run that is watched: the same weights, a table of its heads that is whole, and its alarms."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from tiny_training import Sequences, everything, run
from tiny_training_watched_killed import SETTINGS, Attending

import forked
import systems
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training import read_attention_log
from glasshead.tasks.training.logs import line_of, text_of
from glasshead.watching.alarms import Alarm, HeadReading

WATCHED = [1, 4, 8, 12]


class StoppedError(Exception):
    """What ends a run in these tests."""


class Ending(Sequences):
    """Fails while a step is computed."""

    def __init__(self, step):
        super().__init__()
        self.left = step + 3

    def collate(self, indices):
        self.left -= 1
        if self.left < 0:
            raise StoppedError
        return super().collate(indices)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole"), SETTINGS, task=Attending(), watch=True)


def test_the_weights_are_those_of_a_run_that_nobody_watched(tmp_path, whole):
    unwatched = run(tmp_path, SETTINGS, task=Attending())
    assert everything(unwatched) == everything(whole)
    assert not unwatched.attention.exists()
    assert not unwatched.alarms.exists()


def test_each_watched_step_has_a_row_for_each_head(whole):
    log = read_attention_log(whole.path)
    heads = [("1.attention", head) for head in range(3)]
    expected = [(step, *head) for step in WATCHED for head in heads]
    assert [(one.step, one.layer, one.head) for one in log.readings] == expected
    assert all(0 < one.normalized_entropy < 1 for one in log.readings)
    assert len({one.max_score for one in log.readings}) == len(expected)
    assert log.alarms == []
    first = whole.attention.read_text().splitlines()[0]
    assert first == "step,layer,head,entropy,normalized_entropy,max_score"


def test_a_part_of_a_batch_is_watched_where_it_is_computed_in_parts(tmp_path, whole):
    settings = dataclasses.replace(SETTINGS, accumulate=2)
    parts = run(tmp_path, settings, task=Attending(), watch=True)
    steps = [one.step for one in read_attention_log(parts.path).readings]
    assert steps == [one.step for one in read_attention_log(whole.path).readings]


@pytest.mark.parametrize(("step", "watch"), [(8, True), (5, True), (8, False)])
def test_a_run_goes_on_without_a_row_that_is_doubled_or_lost(tmp_path, whole, step, watch):
    with pytest.raises(StoppedError):
        run(tmp_path, SETTINGS, task=Attending(), source=Ending(step), watch=True)
    folder = RunFolder(tmp_path)
    # As whoever is killed amid a row leaves it.
    folder.append(folder.attention, "12,1.attention,0,1.5\n13,1.att")
    text = folder.attention.read_text().replace("12,1.attention,0,1.5\n", "")
    folder.attention.write_text(text)
    before = folder.attention.read_bytes()
    assert everything(
        run(tmp_path, SETTINGS, task=Attending(), resume=True, watch=watch)
    ) == everything(whole)
    if watch:
        assert folder.attention.read_bytes() == whole.attention.read_bytes()
    else:
        assert folder.attention.read_bytes() == before


def test_a_run_that_was_not_watched_may_go_on_watched(tmp_path, whole):
    with pytest.raises(StoppedError):
        run(tmp_path, SETTINGS, task=Attending(), source=Ending(8))
    run(tmp_path, SETTINGS, task=Attending(), resume=True, watch=True)
    later = [one for one in read_attention_log(whole.path).readings if one.step > 6]
    assert read_attention_log(tmp_path).readings == later


def test_alarms_are_told_written_and_raised_once_whatever_ends_the_run(tmp_path, capfd):
    settings = dataclasses.replace(SETTINGS, learning_rate=9.0, clip=None)
    sharp = run(tmp_path / "whole", settings, task=Attending(), watch=True)
    alarms = read_attention_log(sharp.path).alarms
    said = capfd.readouterr().err
    assert alarms
    assert alarms[0].sentence in said
    assert json.loads(sharp.alarms.read_text().splitlines()[0])["sentence"] == alarms[0].sentence
    with pytest.raises(StoppedError):
        run(tmp_path / "parts", settings, task=Attending(), source=Ending(11), watch=True)
    resumed = run(tmp_path / "parts", settings, task=Attending(), resume=True, watch=True)
    assert resumed.alarms.read_bytes() == sharp.alarms.read_bytes()


@systems.fork
@pytest.mark.slow
def test_runs_killed_amid_a_row_of_a_head_end_alike(tmp_path):
    script = Path(__file__).with_name("tiny_training_watched_killed.py")
    out = forked.Process(script, tmp_path).ended()
    assert out.returncode == 0, out.stderr
    assert out.stdout.strip() == "4"


def test_a_log_can_be_read_while_its_last_line_is_written(tmp_path):
    folder = RunFolder(tmp_path)
    readings = [
        HeadReading(10, "a.b", 1, 2.5, 0.625, -torch.inf),
        HeadReading(20, "a.b", 1, 2.0, 0.5, 7.0),
    ]
    alarm = Alarm(20, "a.b", 1, "maximum_logit", 131.5, 100.0)
    folder.attention.write_text(text_of(readings) + "30,a.b,1,2")
    folder.alarms.write_text(line_of(alarm) + '{"step": 30')
    log = read_attention_log(tmp_path)
    assert (log.readings, log.alarms) == (readings, [alarm])
    folder.alarms.unlink()
    assert read_attention_log(tmp_path).alarms == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "attention.csv",
            "step,head\n1,2\n",
            "the columns of .* must be step, layer, .* got step, hea",
        ),
        (
            "attention.csv",
            text_of([]) + "1,a,0,2.0,x,3\n",
            "attention.csv is broken in line 2. Fix",
        ),
        (
            "attention.csv",
            text_of([]) + '1,"a\n' + 9999 * "2,a,0,2.0,0.5,3.0\n",
            r"attention.csv is broken in line 2\. Fix it, or move it away to continue.$",
        ),
        (
            "attention.csv",
            text_of([]) + "1,a,0\n",
            r"attention.csv is broken in line 2\. Fix it, o",
        ),
        ("alarms.jsonl", '{"step": 1}\n', "alarms.jsonl is broken in line 1. Fix it, or move it"),
        ("alarms.jsonl", "none\n", "alarms.jsonl is broken in line 1"),
        ("alarms.jsonl", "[" * 10**5 + "\n", "alarms.jsonl is broken in line 1"),
    ],
)
def test_a_log_that_is_none_is_named(tmp_path, name, text, message):
    (tmp_path / "attention.csv").write_text(text_of([]))
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        read_attention_log(tmp_path)


def test_a_run_that_was_not_watched_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no attention.csv, as training was not watche"):
        read_attention_log(tmp_path)
