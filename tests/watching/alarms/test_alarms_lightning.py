"""The Lightning callback: the same weights, the alarms, and no watch that is left open."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import glasshead as gh
from glasshead.watching.alarms import AlarmRule, HeadReading
from glasshead.watching.alarms.probe import AlarmDispatcher

pytest.importorskip("lightning")

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import Logger, TensorBoardLogger

from glasshead.watching.alarms.with_lightning import LightningAlarms
from glasshead.watching.interception.session import THREADS
from watching.alarms.event_files import scalars

STEPS = 13


class Module(LightningModule):
    """A language model with dropout everywhere, that may fail or skip a step."""

    def __init__(self, fails_at=None, skips=()):
        super().__init__()
        torch.manual_seed(5)
        config = gh.LanguageModelConfig(
            vocab_size=11, d_model=12, num_heads=3, num_layers=2, attention_dropout=0.2
        )
        self.model = gh.LanguageModel(config)
        self.fails_at, self.skips, self.losses = fails_at, skips, []

    def training_step(self, batch, batch_idx):
        logits = self.model(batch)
        if batch_idx == self.fails_at:
            raise RuntimeError("the machine is tired")
        if batch_idx in self.skips:
            return None
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch.flatten())
        self.losses.append(loss.item())
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def trained(
    *callbacks, accumulate=1, checkpoint=None, steps=STEPS, path=None, logger=False, **options
):
    module = Module(**options)
    torch.manual_seed(7)
    texts = torch.arange(STEPS * 10 * 7).view(-1, 7) % 11
    trainer = Trainer(
        accelerator="cpu",
        max_steps=steps,
        callbacks=list(callbacks),
        accumulate_grad_batches=accumulate,
        logger=logger,
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=path,
    )
    loader = DataLoader(texts, batch_size=5, num_workers=0)
    trainer.fit(module, loader, ckpt_path=checkpoint)
    return module, trainer


pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*training_step. returned .None."),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_weights_and_the_random_numbers_are_the_same(accumulate):
    alone, _ = trained(accumulate=accumulate)
    random = torch.get_rng_state()
    readings = []
    callback = LightningAlarms(every=5, on_readings=readings.append)
    watched, _ = trained(callback, accumulate=accumulate)
    assert torch.equal(torch.get_rng_state(), random)
    assert watched.losses == alone.losses
    for name, tensor in alone.state_dict().items():
        assert torch.equal(watched.state_dict()[name], tensor), name
    steps = [1, 5, 10]
    layers = [f"model.blocks.{layer}.attention" for layer in range(2)]
    expected = [(s, layer, head) for s in steps for layer in layers for head in range(3)]
    assert [(one.step, one.layer, one.head) for some in readings for one in some] == expected
    assert not THREADS.session.watchers
    assert callback.alarms == []


def test_what_it_reads_is_the_forward_pass_of_the_step():
    readings = []
    callback = LightningAlarms(every=4, layers="model.blocks.1", on_readings=readings.append)
    trained(callback, steps=1)
    fresh = Module()
    with torch.no_grad(), gh.watch(fresh, [gh.MaxScore()]) as seen:
        fresh.model.eval()(torch.arange(35).view(-1, 7) % 11)
    expected = seen["model.blocks.1.attention"].max_score.amax(0).tolist()
    # Dropout of the embeddings is at work in training alone.
    assert [one.layer for one in readings[0]] == ["model.blocks.1.attention"] * 3
    assert [one.max_score for one in readings[0]] == pytest.approx(expected, abs=0.05)


def test_an_alarm_warns_or_calls():
    rule = {"score": 1e-5, "growth": 1.0, "patience": 1}
    loud = LightningAlarms(AlarmRule(**rule), every=1)
    with pytest.warns(UserWarning, match="the maximum score of head") as told:
        trained(loud)
    said = [str(one.message) for one in told if "head" in str(one.message)]
    assert said == [alarm.sentence for alarm in loud.alarms]
    called = []
    quiet = LightningAlarms(AlarmRule(**rule), every=1, on_alarm=called.append)
    trained(quiet)
    assert called == quiet.alarms == loud.alarms
    assert called


def test_a_step_that_fails_leaves_no_watch_open():
    with pytest.raises(RuntimeError, match="the machine is tired"):
        trained(LightningAlarms(every=1), fails_at=3)
    assert not THREADS.session.watchers


def test_a_step_without_a_loss_is_read_too():
    readings = []
    trained(LightningAlarms(every=1, on_readings=readings.append), steps=3, skips=(1,))
    assert [some[0].step for some in readings] == [1, 2, 3]
    assert not THREADS.session.watchers


def test_what_it_remembers_is_in_the_checkpoint(tmp_path):
    first = LightningAlarms(every=1)
    _, trainer = trained(first, steps=2)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    second = LightningAlarms(every=1)
    trained(second, steps=3, checkpoint=tmp_path / "last.ckpt")
    state = second.state_dict()["heads"]
    assert [one["max_score"] for one in state] == [
        one["max_score"] for one in first.state_dict()["heads"]
    ]


class Notes(Logger):
    """A logger that keeps what it is given."""

    name, version = "notes", 0

    def __init__(self):
        super().__init__()
        self.given = []

    def log_hyperparams(self, params):
        pass

    def log_metrics(self, metrics, step=None):
        self.given.append((step, dict(metrics)))


LAYERS = [f"model.blocks.{layer}.attention" for layer in range(2)]


def test_every_logger_is_given_the_curves_of_each_layer():
    readings, both = [], [Notes(), Notes()]
    rule = AlarmRule(score=1e-5, growth=1.0, patience=1)
    callback = LightningAlarms(
        rule, every=5, on_alarm=lambda alarm: None, on_readings=readings.append
    )
    trained(callback, logger=both)
    assert both[0].given == both[1].given
    curves = [
        (step, given) for step, given in both[0].given if any("attention" in tag for tag in given)
    ]
    assert [step for step, _ in curves] == [0, 4, 9]
    for some, (step, given) in zip(readings, curves, strict=True):
        expected = {}
        for layer in LAYERS:
            heads = [one for one in some if one.layer == layer]
            expected |= {
                f"attention_entropy/{layer}": min(one.normalized_entropy for one in heads),
                f"attention_max_score/{layer}": max(one.max_score for one in heads),
                f"attention_alarms/{layer}": sum(
                    alarm.layer == layer and alarm.step <= step + 1 for alarm in callback.alarms
                ),
            }
        assert given == expected
    assert sum(curves[-1][1][f"attention_alarms/{layer}"] for layer in LAYERS) > 0


def test_loggers_are_left_alone_where_that_is_asked():
    notes = Notes()
    trained(LightningAlarms(every=5, log=False), logger=notes)
    assert not [tag for _, given in notes.given for tag in given if "attention" in tag]


def test_numbers_that_are_not_finite_are_no_points_of_a_curve():
    dispatcher = AlarmDispatcher(AlarmRule())
    dispatcher.take([HeadReading(1, "", 0, 0.0, 1.0, -math.inf)])
    assert dispatcher.values == {"attention_entropy/model": 1.0, "attention_alarms/model": 0.0}


def test_the_curves_are_in_the_event_files_of_tensorboard(tmp_path):
    pytest.importorskip("tensorboardX")
    readings = []
    callback = LightningAlarms(every=4, on_readings=readings.append)
    trained(callback, logger=TensorBoardLogger(tmp_path))
    curves = scalars(tmp_path)
    for layer in LAYERS:
        expected = {
            some[0].step - 1: max(one.max_score for one in some if one.layer == layer)
            for some in readings
        }
        assert curves[f"attention_max_score/{layer}"] == pytest.approx(expected)
        assert set(curves[f"attention_entropy/{layer}"]) == {0, 3, 7, 11}
        assert set(curves[f"attention_alarms/{layer}"].values()) == {0.0}
    # A step has the same number as in the curve of the loss.
    assert set(curves["loss"]) == set(range(STEPS))
