"""What a step does: the gradient of the whole batch, clipped, at its learning rate.

What is said of a run while it goes on.
"""

import dataclasses
import io
import json

import numpy as np
import pytest
import torch
from lightning.pytorch.loggers.logger import DummyLogger
from rich.console import Console
from tiny_training import SETTINGS, Sequences, Tiny, rows, run
from torch import nn

import glasshead as gh
from glasshead.tasks.training import TrainingSettings, logs, loop, optimizers
from glasshead.tasks.training.logs import Progress
from glasshead.tasks.training.optimizers import hidden_matrices, optimizer_of
from glasshead.tasks.training.settings import learning_rate
from glasshead.tasks.training.task import HeldOutLoader, TrainingLoader


def weights(task):
    return torch.cat([tensor.flatten() for tensor in task.model.state_dict().values()])


def by_hand(task, source, settings):
    """The same training, in a loop that anybody would write."""
    optimizer, step, epoch = optimizer_of(task.model, settings), 0, 0
    while True:
        for batch in source.batches(epoch):
            if step == settings.steps:
                return
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(settings, step)
            optimizer.zero_grad()
            (task.loss(source.collate(batch)) / source.count(batch)).backward()
            torch.nn.utils.clip_grad_norm_(task.model.parameters(), settings.clip)
            optimizer.step()
            step += 1
        epoch += 1


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_the_steps_are_those_of_a_plain_loop(tmp_path, optimizer):
    settings = dataclasses.replace(SETTINGS, clip=0.2, optimizer=optimizer, learning_rate=0.05)
    plain, task = Tiny(dropout=0), Tiny(dropout=0)
    by_hand(plain, Sequences(), settings)
    run(tmp_path, settings, task=task)
    torch.testing.assert_close(weights(task), weights(plain), rtol=0, atol=1e-6)
    assert (weights(task) - weights(Tiny())).abs().max() > 0.01


@pytest.mark.parametrize("accumulate", [2, 7])
def test_a_batch_in_parts_has_the_same_gradient(tmp_path, accumulate):
    settings = dataclasses.replace(SETTINGS, optimizer="sgd", learning_rate=0.1)
    whole, parts = Tiny(dropout=0), Tiny(dropout=0)
    run(tmp_path / "whole", settings, task=whole)
    run(tmp_path / "parts", dataclasses.replace(settings, accumulate=accumulate), task=parts)
    torch.testing.assert_close(weights(parts), weights(whole), rtol=0, atol=1e-6)


def test_parts_of_all_processes_are_the_global_batch():
    source, taken = Sequences(), []
    for rank in range(3):
        parts = iter(TrainingLoader(source, rank=rank, ranks=3, accumulate=2))
        for _ in range(2):
            part = next(parts)
            if part.share:
                assert part.share == 1 / source.count(source.batches(0)[0])
                taken += part.tensors["tokens"][:, 0].tolist()
    assert len(taken) == 5
    assert sorted(taken) == sorted(source.collate(source.batches(0)[0])["tokens"][:, 0].tolist())


def test_a_loader_goes_on_where_its_state_says():
    loader = TrainingLoader(Sequences())
    parts = iter(loader)
    for _ in range(7):
        next(parts)
    # Twenty-three sequences are five batches.
    assert loader.state_dict() == {"epoch": 1, "position": 2}
    other = TrainingLoader(Sequences())
    other.load_state_dict(loader.state_dict())
    assert torch.equal(next(iter(other)).tensors["tokens"], next(parts).tensors["tokens"])


def test_held_out_batches_are_dealt_out_once():
    source = Sequences(examples=11)
    seen = sum(
        int((part.tensors["targets"] >= 0).sum() * part.share)
        for rank in range(2)
        for part in HeldOutLoader(source, rank=rank, ranks=2)
    )
    assert seen == source.count(range(11))


def test_the_learning_rate_rises_and_falls():
    settings = TrainingSettings(steps=10, learning_rate=0.8, minimum_learning_rate=0.2, warmup=4)
    rates = [learning_rate(settings, step) for step in range(10)]
    assert rates[:5] == [0.2, 0.4, 0.6000000000000001, 0.8, 0.8]
    assert rates[7] == pytest.approx(0.5)
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert learning_rate(settings, 10) == pytest.approx(0.2)


def test_only_matrices_decay():
    optimizer = optimizer_of(Tiny().model, SETTINGS)
    decays = {
        group["weight_decay"]: {p.ndim for p in group["params"]} for group in optimizer.param_groups
    }
    assert decays == {0.1: {2}, 0.0: {1}}


@pytest.mark.parametrize("own", [False, True])
def test_muon_moves_the_hidden_matrices_and_adamw_the_rest(tmp_path, monkeypatch, own):
    if own:
        # As in PyTorch 2.8.
        monkeypatch.delattr(torch.optim, "Muon", raising=False)
    settings = dataclasses.replace(SETTINGS, clip=None, optimizer="muon")
    plain, task = Tiny(dropout=0), Tiny(dropout=0)
    hidden, optimizer = plain.model[1][0].weight, optimizer_of(plain.model, settings)
    muon = {id(p) for group in optimizer.param_groups[:1] for p in group["params"]}
    assert muon == {id(hidden)}
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 5
    start = hidden.detach().clone()
    source = Sequences()
    (plain.loss(source.collate(range(5))) / 5).backward()
    optimizer.step()
    # The step is nearly orthogonal, and as long as one of AdamW: 0.2 times the learning rate.
    step = (start * (1 - 0.01 * 0.1) - hidden.detach()) / (0.01 * 0.2 * 13**0.5)
    assert torch.linalg.svdvals(step).clamp(0.6, 1.3).equal(torch.linalg.svdvals(step))
    run(tmp_path, settings, task=task)
    assert (weights(task) - weights(Tiny())).abs().max() > 0.01


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this version of PyTorch has no Muon")
@pytest.mark.parametrize("shape", [(5, 13), (13, 5), (7, 7)])
def test_our_muon_goes_the_way_of_pytorchs(shape):
    theirs, ours = (
        nn.Parameter(torch.linspace(-1, 1, 7 * 13)[: shape[0] * shape[1]].view(shape)) for _ in "ab"
    )
    options = {"lr": 0.03, "weight_decay": 0.1}
    muons = (
        torch.optim.Muon([theirs], **options, adjust_lr_fn="match_rms_adamw"),
        optimizers.Muon([ours], **options),
    )
    generator = torch.Generator().manual_seed(5)
    for step in range(6):
        gradient = torch.randn(shape, generator=generator)
        theirs.grad, ours.grad = gradient.clone(), gradient.clone()
        for muon in muons:
            muon.step()
        if step == 2:
            # Either goes on with what the other has saved.
            saved = [muon.state_dict() for muon in muons]
            for muon, state in zip(muons, reversed(saved), strict=True):
                muon.load_state_dict(state)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)
    assert (ours - torch.linspace(-1, 1, 7 * 13)[: ours.numel()].view(shape)).abs().max() > 0.05


def test_muon_takes_a_hidden_matrix(tmp_path):
    task = Tiny()
    task.model = nn.Sequential(nn.Embedding(11, 7), nn.Linear(7, 11))
    with pytest.raises(ValueError, match=r"muon needs a model with hidden matrices\. Use adamw"):
        run(tmp_path, dataclasses.replace(SETTINGS, optimizer="muon"), task=task)


def test_the_log_has_the_mean_loss_and_the_rate_of_its_steps(tmp_path):
    settings = dataclasses.replace(SETTINGS, log_every=1, validate_every=13)
    single = rows(run(tmp_path / "single", settings))
    double = rows(run(tmp_path / "double", dataclasses.replace(settings, log_every=2)))
    assert [row["step"] for row in double] == ["2", "4", "6", "8", "10", "12", "13"]
    first, second = (float(row["loss"]) for row in single[2:4])
    assert float(double[1]["loss"]) == pytest.approx((first + second) / 2, rel=1e-6)
    for step, row in enumerate(single):
        assert float(row["learning_rate"]) == pytest.approx(learning_rate(settings, step))


def test_early_stopping_ends_after_validations_that_are_no_better(tmp_path):
    class Worse(Tiny):
        monitor, higher_is_better = "score", True
        scores = iter([1.0, 3.0, 2.0, 3.0, 9.0])

        def metrics(self, sums):
            return {"loss": sums["loss"] / sums["targets"], "score": next(self.scores)}

    settings = dataclasses.replace(SETTINGS, validate_every=2, patience=2)
    folder = run(tmp_path, settings, task=Worse())
    figures = folder.read_metrics()
    assert figures["steps"] == 8
    assert (figures["best"]["step"], figures["best"]["score"]) == (4, 3.0)
    assert figures["last"]["score"] == 3.0
    assert rows(folder)[-1]["validation_score"] == "3"
    with pytest.raises(ValueError, match="has finished after 8 steps, as 2 validations were no be"):
        run(tmp_path, settings, task=Worse(), resume=True)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"accumulate": 1.5}, "accumulate must be a whole number of at least 1, got 1.5"),
        ({"patience": 0}, "patience must be a whole number of at least 1"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a number from 0, got nan"),
        ({"clip": 0}, "clip must be a norm above 0, or None to clip nothing, got 0"),
        ({"betas": (0.9, 1)}, r"betas must be two numbers from 0 and below 1, .* got \(0.9, 1\)"),
        ({"optimizer": "adam"}, "optimizer must be one of .*, got 'adam'"),
        ({"minimum_learning_rate": 2}, "minimum_learning_rate must be at most learning_rate"),
        ({"clip": float("inf")}, "clip must be a norm above 0, or None .*, got inf"),
        ({"betas": (True, 0.9)}, r"betas must be two numbers .* got \(True, 0.9\)"),
        ({"learning_rate": "0.1"}, "learning_rate must be a number from 0, got '0.1'"),
        ({"optimiser": "sgd"}, "TrainingSettings has no 'optimiser'. Did you mean 'optimizer'"),
        ({"warmup": 1000}, "warmup must be fewer steps than there are, 1000, got 1000"),
    ],
)
def test_wrong_settings_are_named(wrong, message):
    with pytest.raises((ValueError, TypeError), match=message):
        TrainingSettings(**wrong)


def test_whole_numbers_of_numpy_are_stored_as_json():
    settings = TrainingSettings(steps=np.int64(31), seed=np.uint8(7), patience=None)
    assert json.loads(json.dumps(dataclasses.asdict(settings)))["steps"] == 31


@pytest.mark.parametrize("tied", [True, False])
def test_of_a_language_model_the_matrices_of_its_blocks_are_hidden(tied):
    # As many tokens, positions and hidden numbers as each other, which is not to mislead.
    model = gh.LanguageModel(
        gh.LanguageModelConfig(
            vocab_size=24, context_length=24, d_model=6, num_heads=2, num_layers=2, tied=tied
        )
    )
    blocks = {id(p) for p in model.blocks.parameters() if p.ndim == 2}
    assert {id(p) for p in hidden_matrices(model)} == blocks


@pytest.fixture
def said(monkeypatch):
    """What a terminal, or else a file, is told when the clock goes fast."""

    def watched(tmp_path, terminal):
        out = io.StringIO()
        console = Console(file=out, force_terminal=terminal, width=120, color_system=None)
        monkeypatch.setattr(loop, "Console", lambda stderr: console if stderr else None)
        run(tmp_path, SETTINGS)
        return out.getvalue()

    return watched


def test_a_file_gets_a_line_for_each_validation(tmp_path, said):
    lines = said(tmp_path, terminal=False).splitlines()
    assert [line.split(":")[0] for line in lines] == [f"step {n} of 13" for n in (5, 10, 13)]
    assert "validation loss 2." in lines[0]
    assert ", the best so far; " in lines[0]
    assert lines[0].endswith(" left")


def test_a_file_gets_more_lines_where_steps_are_slow(tmp_path, said, monkeypatch):
    monkeypatch.setattr(logs, "_LINE_SECONDS", 0.0)
    lines = said(tmp_path, terminal=False).splitlines()
    assert [int(line.split()[1]) for line in lines if "validation" not in line] == [*range(1, 14)]
    assert lines[0].startswith("step 1 of 13: loss 2.")


def test_a_terminal_gets_a_bar(tmp_path, said, monkeypatch):
    monkeypatch.setattr(logs, "_BAR_SECONDS", 0.0)
    out = said(tmp_path, terminal=True)
    assert "step  7/13 ━" in out
    assert "validating" in out
    assert "steps/s" in out
    assert "step 10 of 13: validation loss 2." in out
    # The cursor that the bar hid is shown again.
    assert out.rindex("\x1b[?25h") > out.rindex("\x1b[?25l")


def test_a_bar_is_drawn_seldom(tmp_path, said, monkeypatch):
    shown, show = [], Progress._show

    def counted(self, step, text):
        shown.append(text)
        show(self, step, text)

    monkeypatch.setattr(Progress, "_show", counted)
    monkeypatch.setattr(logs, "_BAR_SECONDS", 1000.0)
    said(tmp_path, terminal=True)
    assert [text for text in shown if text != "validating"] == [shown[0]]


def test_loggers_of_lightning_are_told_what_the_log_has(tmp_path, monkeypatch):
    told = []

    class Listener(DummyLogger):
        def log_metrics(self, metrics, step=None):
            told.append((step, metrics))

    monkeypatch.setattr(logs, "loggers", lambda folder: [Listener()])
    logged = rows(run(tmp_path))
    assert [step for step, _ in told] == [int(row["step"]) for row in logged]
    assert [figures["loss"] for _, figures in told] == [float(row["loss"]) for row in logged]
