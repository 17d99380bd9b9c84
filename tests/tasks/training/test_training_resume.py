"""Going on with a run: what may change, what may not, and what an interruption leaves.

A run that is killed at any moment goes on, and ends as one that was not.
"""

import dataclasses
import json
import math
import os
import random
import shutil
import signal
from pathlib import Path

import pytest
import torch
from tiny_training import SETTINGS, Sequences, Tiny, everything, rows, run
from torch import nn

import forked
import systems
from glasshead.attention import io as files
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training import Interrupted, checkpoints
from glasshead.tasks.training.settings import learning_rate

# A source collates three batches for its fingerprint, before the first step.
BEFORE = 3
# The parts of a checkpoint.
PARTS = ("step", "model", "optimizer", "random", "identity", "batches", "best", "log")


# The run of these tests, interrupted after step 7, as Lightning's Trainer once saved it.
OF_TRAINER = Path(__file__).parents[2] / "data" / "run_of_trainer"


class Interrupting(Sequences):
    """Asks for the end while a step is computed, as Ctrl-C does."""

    def __init__(self, *steps, number=signal.SIGINT):
        super().__init__()
        self.steps, self.number, self.collated = steps, number, -BEFORE

    def collate(self, indices):
        self.collated += 1
        for _ in range(self.steps.count(self.collated)):
            os.kill(os.getpid(), self.number)
        return super().collate(indices)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return everything(run(tmp_path_factory.mktemp("whole")))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", [4, 5])
@systems.signals
def test_an_interrupted_run_goes_on_as_if_it_was_not(tmp_path, whole, step, number, capfd):
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match=f"after step {step} of 13, and is saved in .* --resume"):
        run(tmp_path, source=Interrupting(step, number=number))
    assert signal.getsignal(number) is before
    assert (
        "Ending after this step, and saving. Press Ctrl-C again to end at once."
        in capfd.readouterr().err
    )
    torch.manual_seed(1234)
    random.seed(5)
    assert everything(run(tmp_path, resume=True)) == whole
    assert f"Resuming {tmp_path} at step {step} of 13.\n" in capfd.readouterr().err


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_anew(tmp_path, whole, capfd):
    run(tmp_path).checkpoint.unlink()
    assert everything(run(tmp_path, resume=True)) == whole
    told = f"Resuming {tmp_path} at step 0 of 13, as it has no checkpoint yet.\n"
    assert told in capfd.readouterr().err


def test_a_run_that_the_trainer_of_lightning_saved_goes_on(tmp_path, tmp_path_factory):
    shutil.copytree(OF_TRAINER, tmp_path, dirs_exist_ok=True)
    resumed, whole = run(tmp_path, resume=True), run(tmp_path_factory.mktemp("alike"))
    for name in ("weights", "checkpoint"):
        _, own = files.read(getattr(resumed, name), name)
        _, other = files.read(getattr(whole, name), name)
        # It was saved by another machine, which may round otherwise.
        torch.testing.assert_close(own, other, rtol=0, atol=1e-5)
    assert [row["step"] for row in rows(resumed)] == [row["step"] for row in rows(whole)]
    shutil.copytree(OF_TRAINER, tmp_path / "other")
    with pytest.raises(ValueError, match="learning_rate must be 0.01, got 0.5"):
        run(tmp_path / "other", dataclasses.replace(SETTINGS, learning_rate=0.5), resume=True)


@systems.signals
def test_a_second_interruption_ends_at_once(tmp_path, whole):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, source=Interrupting(8, 8))
    assert signal.getsignal(signal.SIGINT) is before
    assert [row["step"] for row in rows(RunFolder(tmp_path))] == ["2", "4", "5", "6"]
    assert everything(run(tmp_path, resume=True)) == whole


@systems.signals
def test_an_interruption_in_the_last_step_lets_the_run_finish(tmp_path, whole):
    assert everything(run(tmp_path, source=Interrupting(13))) == whole


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
def test_each_optimizer_goes_on(tmp_path, optimizer):
    settings = dataclasses.replace(SETTINGS, optimizer=optimizer)
    expected = everything(run(tmp_path / "whole", settings))
    with pytest.raises(Interrupted):
        run(tmp_path / "parts", settings, source=Interrupting(7))
    assert everything(run(tmp_path / "parts", settings, resume=True)) == expected


def test_the_best_so_far_is_remembered(tmp_path):
    scores = iter([1.0, 5.0, 3.0, 4.0, 4.0])

    class Scored(Tiny):
        monitor, higher_is_better = "score", True

        def metrics(self, sums):
            return {"loss": sums["loss"] / sums["targets"], "score": next(scores)}

    settings = dataclasses.replace(SETTINGS, validate_every=2, patience=3)
    with pytest.raises(Interrupted):
        run(tmp_path, settings, task=Scored(), source=Interrupting(7))
    best = RunFolder(tmp_path).weights.read_bytes()
    figures = run(tmp_path, settings, task=Scored(), resume=True).read_metrics()
    assert figures["best"]["step"] == 4
    assert figures["steps"] == 10
    assert RunFolder(tmp_path).weights.read_bytes() == best


def test_a_run_in_parts_goes_on_too(tmp_path):
    settings = dataclasses.replace(SETTINGS, accumulate=2)
    expected = everything(run(tmp_path / "whole", settings))
    with pytest.raises(Interrupted):
        run(tmp_path / "parts", settings, source=Interrupting(2 * 7 - 1))
    assert everything(run(tmp_path / "parts", settings, resume=True)) == expected


def test_more_steps_go_on_from_the_last_checkpoint(tmp_path):
    longer = dataclasses.replace(SETTINGS, steps=17)
    run(tmp_path)
    folder = run(tmp_path, longer, resume=True)
    steps = [int(row["step"]) for row in rows(folder)]
    assert steps == [2, 4, 5, 6, 8, 10, 12, 13, 14, 15, 16, 17]
    assert folder.read_metrics()["last"]["step"] == 17


def test_a_finished_run_says_so(tmp_path):
    run(tmp_path)
    with pytest.raises(
        ValueError, match=r"steps must be above 13, .*, got 13\. To continue, ask for mo"
    ):
        run(tmp_path, resume=True)


def test_a_run_that_is_there_is_not_trained_over(tmp_path):
    run(tmp_path)
    with pytest.raises(FileExistsError, match=r"already has a run\. Resume it with --resume"):
        run(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.02}, "learning_rate must be 0.01, got 0.02"),
        ({"seed": 8}, "seed must be 7, got 8, to resume"),
        ({"betas": (0.9, 0.99)}, r"betas must be \(0.9, 0.95\), got \(0.9, 0.99\)"),
        ({"accumulate": 2}, "accumulate must be 1, got 2"),
    ],
)
def test_other_settings_are_another_run(tmp_path, change, message):
    with pytest.raises(Interrupted):
        run(tmp_path, source=Interrupting(4))
    with pytest.raises(ValueError, match=message):
        run(tmp_path, dataclasses.replace(SETTINGS, **change), resume=True)


def test_other_examples_and_another_model_are_another_run(tmp_path):
    with pytest.raises(Interrupted):
        run(tmp_path, source=Interrupting(4))
    with pytest.raises(ValueError, match=r"was trained on other examples\. Use those, or"):
        run(tmp_path, source=Sequences(seed=9), resume=True)
    task = Tiny()
    task.model[2] = nn.Linear(13, 12)
    with pytest.raises(ValueError, match="is of another model, with tensors of other names or sh"):
        run(tmp_path, task=task, resume=True)


def test_a_checkpoint_that_is_none_is_named(tmp_path):
    folder = run(tmp_path)
    folder.checkpoint.write_bytes(folder.checkpoint.read_bytes()[:700])
    with pytest.raises(ValueError, match=r"last.safetensors is not a safetensors file"):
        run(tmp_path, resume=True)


@pytest.mark.parametrize(
    "change",
    [
        *(lambda saved, part=part: saved.pop(part) for part in PARTS),
        lambda saved: saved.update(step="3"),
        lambda saved: saved.update(step=-3),
        lambda saved: saved["batches"].update(position=-1),
        lambda saved: saved["best"].update(worse=None),
        lambda saved: saved["best"].pop("last"),
        lambda saved: saved["log"].pop("sum"),
        lambda saved: saved["identity"].pop("examples"),
        lambda saved: saved["identity"].update(settings=[]),
        lambda saved: saved["random"].update(torch=saved["random"]["torch"][:5]),
        lambda saved: saved["random"].pop("python"),
        lambda saved: saved["optimizer"].update(param_groups=[]),
        lambda saved: saved["model"].update({"0.weight": 1}),
        lambda saved: saved["optimizer"]["state"][0].update(exp_avg=torch.zeros(1)),
    ],
)
def test_a_checkpoint_with_damaged_parts_is_named_and_kept(tmp_path, change):
    with pytest.raises(Interrupted):
        run(tmp_path, source=Interrupting(4))
    file = RunFolder(tmp_path).checkpoint
    saved = checkpoints.read(file)
    change(saved)
    tree, tensors = checkpoints.pack(saved)
    files.write(file, "checkpoint", {"tree": tree}, tensors)
    before = file.read_bytes()
    with pytest.raises(ValueError, match=r"last.safetensors has a description of checkpoint that"):
        run(tmp_path, resume=True)
    assert file.read_bytes() == before


def overwrite(file, place):
    with file.open("r+b") as opened:
        opened.seek(place)
        found = opened.read(4)
        opened.seek(place)
        opened.write(bytes(255 - byte for byte in found))


def test_four_overwritten_bytes_are_noticed_and_the_checkpoint_before_goes_on(tmp_path, whole):
    with pytest.raises(Interrupted):
        run(tmp_path, source=Interrupting(7))
    folder = RunFolder(tmp_path)
    good = folder.checkpoint.read_bytes()
    begin = 8 + int.from_bytes(good[:8], "little")
    for place in range(begin, len(good) - 4, (len(good) - begin) // 23):
        folder.checkpoint.write_bytes(good)
        overwrite(folder.checkpoint, place)
        with pytest.raises(ValueError, match=r"last.safetensors is damaged: its checksum") as told:
            run(tmp_path, resume=True)
        assert f"{folder.previous_checkpoint} has step 6: rename it to last.safe" in str(told.value)
    folder.previous_checkpoint.replace(folder.checkpoint)
    run(tmp_path, resume=True)
    assert everything(folder) == whole


def test_a_changed_number_of_the_structure_is_noticed(tmp_path):
    with pytest.raises(Interrupted):
        run(tmp_path, source=Interrupting(4))
    file = RunFolder(tmp_path).checkpoint
    description, tensors = files.read(file, "checkpoint")
    changed = json.loads(json.dumps(description["tree"]).replace('["worse", 0]', '["worse", 1]'))
    assert changed != description["tree"]
    files.write(file, "checkpoint", {**description, "tree": changed}, tensors)
    with pytest.raises(ValueError, match=r"last.safetensors is damaged: its checksum"):
        run(tmp_path, resume=True)


def test_only_a_checkpoint_before_that_can_be_read_is_offered(tmp_path):
    with pytest.raises(Interrupted):
        run(tmp_path, source=Interrupting(7))
    folder = RunFolder(tmp_path)
    for file in (folder.checkpoint, folder.previous_checkpoint):
        file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"last.safetensors is not a safetensors file") as told:
        run(tmp_path, resume=True)
    assert "previous" not in str(told.value)


def test_a_file_system_without_links_keeps_the_checkpoint_before(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError

    monkeypatch.setattr(Path, "hardlink_to", refused)
    with pytest.raises(Interrupted):
        run(tmp_path, source=Interrupting(7))
    assert checkpoints.read(RunFolder(tmp_path).previous_checkpoint)["step"] == 6


def test_a_finished_run_says_how_many_steps_go_on(tmp_path):
    run(tmp_path)
    shorter = dataclasses.replace(SETTINGS, steps=6)
    with pytest.raises(
        ValueError, match=r"above 13, .*, got 6\. To continue, ask for more, as in .*=26"
    ):
        run(tmp_path, shorter, resume=True)


@systems.fork
@pytest.mark.slow
def test_runs_killed_at_many_moments_end_bit_identical(tmp_path):
    script = Path(__file__).with_name("tiny_training_killed.py")
    out = forked.Process(script, tmp_path).ended()
    assert out.returncode == 0, out.stderr
    assert out.stdout.strip() == "29"


@pytest.mark.parametrize(
    ("changes", "jumps", "rates"),
    [
        ({}, True, None),
        # The rate of step 13, and the cosine from the peak 0.01 to 0 over the 7 steps after it.
        ({"cosine": 13}, False, [learning_rate(SETTINGS, 12)] * 7),
        (
            {"cosine": 13, "after": "restart"},
            False,
            [0.01 * (1 + math.cos(math.pi * step / 7)) / 2 for step in range(7)],
        ),
    ],
)
def test_a_longer_run_says_that_the_rate_jumps_and_how_it_does_not(
    tmp_path, capsys, changes, jumps, rates
):
    run(tmp_path)
    more = dataclasses.replace(SETTINGS, steps=20, log_every=1, **changes)
    folder = run(tmp_path, more, resume=True)
    said = capsys.readouterr().err
    assert ("Keep the rate with --set cosine=13, or restart the cosine with" in said) is jumps
    if rates is None:
        rates = [learning_rate(more, step) for step in range(13, 20)]
    logged = [float(row["learning_rate"]) for row in rows(folder) if int(row["step"]) > 13]
    assert logged == pytest.approx(rates)
