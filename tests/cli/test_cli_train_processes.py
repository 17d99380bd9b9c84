"""`glasshead train write` as a process: killed, interrupted, and in two."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from written import SMALL

LONG = ("stories=101", "dropout=0.1", "steps=300", "warmup=0", "validate_every=110", "save_every=7")


def sets(*assignments):
    return [part for each in assignments for part in ("--set", each)]


def begin(folder, *more):
    return ["train", "write", "--run", str(folder), "--preset", "nano", *sets(*SMALL), *more]


def process(*arguments):
    """The command as a process, on as many threads as the tests themselves."""
    return subprocess.Popen(
        [sys.executable, "-m", "glasshead", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def when_logged(running, folder, rows):
    """Wait until the log of a run has so many rows."""
    log = folder / "log.csv"
    while running.poll() is None:
        if log.exists() and log.read_text().count("\n") > rows:
            return
        time.sleep(0.002)
    raise AssertionError(running.communicate())


def assert_same(folder, whole):
    for name in ("model.safetensors", "checkpoints/last.safetensors"):
        own, other = load_file(folder / name), load_file(whole / name)
        assert own.keys() == other.keys()
        assert [key for key in own if not torch.equal(own[key], other[key])] == []
    assert (folder / "metrics.json").read_text() == (whole / "metrics.json").read_text()
    steps = [line.split(",")[0] for line in (folder / "log.csv").read_text().splitlines()]
    assert steps == [line.split(",")[0] for line in (whole / "log.csv").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody stopped."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    _, told = (done := process(*begin(folder, *sets(*LONG)))).communicate()
    assert done.returncode == 0, told
    return folder


@pytest.mark.parametrize("rows", [3, 17])
def test_killed_it_goes_on_by_the_same_command_to_the_same_weights(command, tmp_path, whole, rows):
    folder = tmp_path / "run"
    running = process(*begin(folder, *sets(*LONG)))
    when_logged(running, folder, rows)
    running.kill()
    running.communicate()
    assert running.returncode == -signal.SIGKILL
    assert command(*begin(folder, *sets(*LONG)), "--resume").code == 0
    assert_same(folder, whole)


def test_interrupted_it_says_how_to_go_on(command, tmp_path, whole):
    folder = tmp_path / "run"
    running = process(*begin(folder, *sets(*LONG)))
    when_logged(running, folder, 5)
    running.send_signal(signal.SIGINT)
    _, told = running.communicate()
    assert running.returncode == 130
    assert "Traceback" not in told
    assert "go on by the same command with --resume" in told.splitlines()[-1]
    assert command("train", "write", "--run", folder, "--resume").code == 0
    assert_same(folder, whole)


def test_two_processes_reach_the_weights_of_one(command, tmp_path):
    few = sets("stories=101", "dropout=0.0", "steps=5", "warmup=0", "optimizer=sgd")
    assert command(*begin(tmp_path / "one", *few)).code == 0
    two = process(
        *begin(tmp_path / "two", *few),
        "--devices",
        "2",
        "--strategy",
        "ddp",
        "--accelerator",
        "cpu",
    )
    said, told = two.communicate()
    assert two.returncode == 0, told
    assert said.count("perplexity") == 1
    one, both = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for name, tensor in one.items():
        torch.testing.assert_close(both[name], tensor, rtol=0, atol=1e-6)


def test_a_run_is_trained_by_one_process_at_a_time(command, tmp_path):
    folder = tmp_path / "run"
    running = process(*begin(folder, *sets(*LONG)))
    when_logged(running, folder, 3)
    for more in ((), ("--resume",)):
        second = command(*begin(folder, *sets(*LONG)), *more)
        assert second.code == 2
        assert "another process is training in" in second.err
    running.kill()
    running.communicate()
    assert command(*begin(folder, *sets(*LONG, "steps=130")), "--resume").code == 0
    steps = [int(line.split(",")[0]) for line in (folder / "log.csv").read_text().splitlines()[1:]]
    assert steps == sorted(set(steps))
