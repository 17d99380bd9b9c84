"""What goes wrong is told in a sentence, and what was good is kept."""

import dataclasses
import shutil
import sys

import pytest
import torch
from tiny_training import SETTINGS, Sequences, Tiny, everything, rows, run

from glasshead.attention import io as files
from glasshead.studio.views.training import TrainingLog
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training import Hardware, TrainingSettings


class Spoilt(Tiny):
    """Becomes not finite at a step, in its loss, its gradient, its weights or when validated."""

    def __init__(self, what, step):
        super().__init__()
        self.what, self.step, self.steps = what, step, 0

    def loss(self, batch):
        loss = super().loss(batch)
        if not self.model.training:
            return loss
        self.steps += 1
        if self.steps != self.step:
            return loss
        if self.what == "weights":
            self.model[2].bias.data[3] = float("nan")
        return loss * float("inf") if self.what == "loss" else loss

    def validate(self, batch):
        sums = super().validate(batch)
        if self.what == "validation" and self.steps >= self.step:
            sums["loss"] = sums["loss"] * float("nan")
        return sums


class Infinite(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * float("nan")


class SpoiltGradient(Spoilt):
    def loss(self, batch):
        loss = super().loss(batch)
        return Infinite.apply(loss) if self.steps == self.step and loss.requires_grad else loss


@pytest.mark.parametrize(
    ("task", "step"),
    [
        (Spoilt("loss", 8), 8),
        (SpoiltGradient("gradient", 8), 8),
        (Spoilt("validation", 8), 10),
    ],
)
def test_what_is_not_finite_ends_training_and_the_good_is_kept(tmp_path, task, step):
    message = (
        rf"step {step}, with learning rate 0.0.*, has a {task.what}.* NaN .*\. Train again with"
    )
    with pytest.raises(ValueError, match=message):
        run(tmp_path, task=task)
    folder = RunFolder(tmp_path)
    assert folder.read_metrics()["best"]["step"] == 5
    assert all(x.isfinite().all() for x in files.read(folder.weights, "weights")[1].values())
    assert all(x.isfinite().all() for x in task.model.state_dict().values())
    whole = everything(run(tmp_path / "whole"))
    assert everything(run(tmp_path, resume=True)) == whole


def test_a_run_that_diverged_early_keeps_its_logs_and_says_what_to_change(tmp_path):
    late = dataclasses.replace(SETTINGS, save_every=50, validate_every=50)
    with pytest.raises(ValueError, match=r"step 12, .* in another folder; the logs are kept\."):
        run(tmp_path, late, task=Spoilt("loss", 12))
    folder = RunFolder(tmp_path)
    assert not folder.checkpoint.exists()
    assert [int(row["step"]) for row in rows(folder)][-2:] == [10, 12]
    failure = folder.read_failure()
    assert (failure["step"], "has a loss that is NaN" in failure["error"]) == (12, True)
    shown = TrainingLog(tmp_path).summary()
    assert shown["problems"] == [failure["error"]]
    assert shown["charts"]["loss"][0]["values"][-1] > 0
    with pytest.raises(ValueError, match=r"failed at step 12 and has no ch.* --set learning_rate="):
        run(tmp_path, late, resume=True)
    with pytest.raises(FileExistsError, match=r"has the logs of a run that failed\. Name another"):
        run(tmp_path, late)


def test_resuming_before_a_divergence_says_where_it_was(tmp_path, capsys):
    with pytest.raises(ValueError, match="step 8"):
        run(tmp_path, task=Spoilt("loss", 8))
    run(tmp_path, resume=True)
    assert "at step 6 of 13. It failed at step 8, and may fail there" in capsys.readouterr().err
    assert RunFolder(tmp_path).read_failure() == {}


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    class Late(Tiny):
        def validate(self, batch):
            self.validated = getattr(self, "validated", 0) + 1
            sums = super().validate(batch)
            # Four batches are held out; after the second validation the weights are spoilt.
            if self.validated == 8:
                self.model[2].bias.data[3] = float("inf")
            return sums

    with pytest.raises(ValueError, match="step 10, .* has a weight that is NaN or infinite"):
        run(tmp_path, task=Late())
    folder = RunFolder(tmp_path)
    for kind, file in (("weights", folder.weights), ("checkpoint", folder.checkpoint)):
        assert all(x.double().isfinite().all() for x in files.read(file, kind)[1].values())


def test_a_step_beyond_all_numbers_is_not_saved(tmp_path):
    # 3e38 is as large as a number is.
    settings = TrainingSettings(
        steps=5, learning_rate=3e38, weight_decay=100, clip=None, optimizer="sgd", save_every=1
    )
    with pytest.raises(
        ValueError, match=r"step 1, with learning rate 3e\+38, has a weight that is"
    ):
        run(tmp_path, settings)
    assert not RunFolder(tmp_path).checkpoint.exists()


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_full_disk_is_told_and_the_last_checkpoint_is_kept(tmp_path, monkeypatch, number):
    resource = pytest.importorskip("resource", reason="Windows limits no files")
    whole = everything(run(tmp_path / "whole"))
    written, save_file = [], files.save_file

    def full(*arguments, **named):
        written.append(arguments)
        if len(written) != number:
            return save_file(*arguments, **named)
        older = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, older[1]))
        try:
            return save_file(*arguments, **named)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, older)

    monkeypatch.setattr(files, "save_file", full)
    with pytest.raises(OSError, match=r"cannot be written .*(Make room there|Name another place)"):
        run(tmp_path / "full")
    assert everything(run(tmp_path / "full", resume=True)) == whole
    assert not list((tmp_path / "full").rglob("*.tmp"))


def test_a_log_that_cannot_be_read_is_told(tmp_path):
    folder = RunFolder(tmp_path)
    folder.create()
    folder.write_config({})
    folder.log.mkdir()
    with pytest.raises(OSError, match=r"log.csv cannot be read \(Is a directory\)\. Move it away"):
        run(tmp_path, resume=True)


def test_a_folder_that_is_taken_away_is_told(tmp_path):
    class Removing(Tiny):
        def metrics(self, sums):
            shutil.rmtree(tmp_path)
            return super().metrics(sums)

    with pytest.raises(OSError, match="model.safetensors cannot be written|there is no folder"):
        run(tmp_path, task=Removing())


def test_nothing_to_train_on_is_told(tmp_path):
    with pytest.raises(
        ValueError, match="what is to be trained on must have examples, and batches that are"
    ):
        run(tmp_path, source=Sequences(examples=0))


def test_hardware_that_is_not_there_is_told(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ValueError, match="accelerator cuda is not available here. Use auto, or c"):
        run(tmp_path, hardware=Hardware(accelerator="cuda"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"devices": 0}, "devices must be a whole number of at least 1, got 0"),
        ({"nodes": True}, "nodes must be a whole number of at least 1, got True"),
        ({"strategy": "dp"}, "strategy must be one of auto, ddp, fsdp, got 'dp'"),
        ({"precision": "16"}, "precision must be one of auto, 32-true, bf16-mixed, got '16'"),
    ],
)
def test_wrong_hardware_is_named(wrong, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Hardware(**wrong)


def test_mixed_precision_trains(tmp_path):
    folder = run(tmp_path, hardware=Hardware(precision="bf16-mixed", accelerator="cpu"))
    mixed = folder.read_metrics()["best"]["loss"]
    single = run(tmp_path / "single").read_metrics()["best"]["loss"]
    assert mixed != single
    assert mixed == pytest.approx(single, abs=0.05)


def test_training_goes_on_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    folder = run(tmp_path)
    assert not folder.curve.exists()
    assert folder.read_metrics()["steps"] == 13


def test_the_curve_is_a_picture(tmp_path):
    assert run(tmp_path).curve.read_bytes().startswith(b"\x89PNG")


def test_lightning_says_nothing(tmp_path, capfd):
    run(tmp_path, dataclasses.replace(SETTINGS, steps=5, warmup=1))
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("step 5 of 5: validation loss 2.")
