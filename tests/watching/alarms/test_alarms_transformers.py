"""The callback of transformers: the same weights, the alarms, and a model left as it was."""

import pytest
import torch

import glasshead as gh
from glasshead.watching.alarms import AlarmRule

pytest.importorskip("transformers")

from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import CallbackHandler

from glasshead.watching.alarms.with_transformers import TransformersAlarms
from glasshead.watching.interception.session import THREADS
from watched_models import TRANSFORMERS
from watching.alarms.event_files import scalars

STEPS = 7


def model_of(**options):
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=29,
        hidden_size=24,
        intermediate_size=13,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        attention_dropout=0.2,
        **options,
    )
    return LlamaForCausalLM(config).train()


def trained(callback=None, *, steps=STEPS, parts=1, fails_at=None):
    """Train in the order in which the Trainer calls; it needs accelerate, which is not needed."""
    model = model_of()
    torch.manual_seed(11)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    state, control = TrainerState(is_world_process_zero=True), TrainerControl()

    def call(event):
        if callback is not None:
            getattr(callback, event)(None, state, control, model=model)

    for step in range(steps):
        call("on_step_begin")
        for part in range(parts):
            tokens = torch.arange(part + step, part + step + 10).view(2, 5) % 29
            if (step, part) == fails_at:
                tokens = tokens + 29
            model(input_ids=tokens, labels=tokens).loss.backward()
        call("on_pre_optimizer_step")
        optimizer.step()
        optimizer.zero_grad()
        state.global_step += 1
        call("on_step_end")
    call("on_train_end")
    return model


@pytest.mark.parametrize("parts", [1, 3])
def test_the_weights_and_the_random_numbers_are_the_same(parts):
    alone = trained(parts=parts)
    random = torch.get_rng_state()
    readings = []
    callback = TransformersAlarms(every=3, on_readings=readings.append)
    watched = trained(callback, parts=parts)
    assert torch.equal(torch.get_rng_state(), random)
    for name, tensor in alone.state_dict().items():
        assert torch.equal(watched.state_dict()[name], tensor), name
    assert [some[0].step for some in readings] == [1, 3, 6]
    layers = [f"model.layers.{layer}.self_attn" for layer in range(2)]
    expected = [(layer, head) for layer in layers for head in range(6)]
    assert all([(one.layer, one.head) for one in some] == expected for some in readings)
    assert "forward" not in vars(watched)
    assert not THREADS.session.watchers
    assert callback.alarms == []


def test_an_alarm_warns_or_calls():
    rule = {"score": 1e-5, "growth": 1.0, "patience": 1}
    loud = TransformersAlarms(AlarmRule(**rule), every=1)
    with pytest.warns(UserWarning, match="the maximum score of head") as told:
        trained(loud)
    assert [str(one.message) for one in told] == [alarm.sentence for alarm in loud.alarms]
    called = []
    quiet = TransformersAlarms(AlarmRule(**rule), every=1, on_alarm=called.append)
    trained(quiet)
    assert called == quiet.alarms == loud.alarms
    assert called


def test_a_step_that_fails_leaves_no_watch_open():
    with pytest.raises(IndexError):
        trained(TransformersAlarms(every=2), fails_at=(1, 0))
    assert not THREADS.session.watchers


def test_a_forward_of_the_model_s_own_is_put_back():
    model = model_of()
    own = model.forward
    model.forward = own
    callback = TransformersAlarms(every=1)
    state = TrainerState(is_world_process_zero=True)
    callback.on_step_begin(None, state, TrainerControl(), model=model)
    assert model.forward is not own
    model(input_ids=torch.arange(5)[None])
    assert model.forward is own
    callback.on_step_begin(None, state, TrainerControl(), model=model)
    callback.on_train_end(None, state, TrainerControl(), model=model)
    assert model.forward is own


def test_other_processes_watch_nothing():
    readings = []
    callback = TransformersAlarms(every=1, on_readings=readings.append)
    model = model_of()
    state = TrainerState(is_world_process_zero=False)
    callback.on_step_begin(None, state, TrainerControl(), model=model)
    model(input_ids=torch.arange(5)[None])
    assert readings == []
    assert isinstance(callback.alarms, list)
    assert gh.AlarmRule is AlarmRule


LAYERS = [f"model.layers.{layer}.self_attn" for layer in range(2)]


def test_a_log_is_given_the_curves_of_each_layer():
    logged, readings = [], []
    rule = AlarmRule(score=1e-5, growth=1.0, patience=1)
    callback = TransformersAlarms(
        rule, every=3, on_alarm=lambda alarm: None, on_readings=readings.append, log=logged.append
    )
    trained(callback)
    assert len(logged) == len(readings) == 3
    for some, given in zip(readings, logged, strict=True):
        expected = {}
        for layer in LAYERS:
            heads = [one for one in some if one.layer == layer]
            told = [a for a in callback.alarms if a.layer == layer and a.step <= some[0].step]
            expected |= {
                f"attention_entropy/{layer}": min(one.normalized_entropy for one in heads),
                f"attention_max_score/{layer}": max(one.max_score for one in heads),
                f"attention_alarms/{layer}": len(told),
            }
        assert given == expected
    assert callback.alarms


@pytest.mark.parametrize("due", [True, False])
def test_a_loss_that_is_due_is_logged_all_the_same(due):
    control, state = TrainerControl(), TrainerState(is_world_process_zero=True)
    handler, given = CallbackHandler([], None, None, None, None), []

    def log(values):
        given.append(values)
        handler.on_log(None, state, control, values)

    callback, model = TransformersAlarms(every=1, log=log), model_of()
    callback.on_step_begin(None, state, control, model=model)
    model(input_ids=torch.arange(5)[None])
    control.should_log = due
    callback.on_step_end(None, state, control, model=model)
    callback.on_step_end(None, state, control, model=model)
    assert len(given) == 1
    assert control.should_log is due


def test_a_log_that_is_none():
    with pytest.raises(TypeError, match="log must be a function such as trainer.log, got True"):
        TransformersAlarms(log=True)


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, number):
        tokens = torch.arange(number, number + 7) % 29
        return {"input_ids": tokens, "labels": tokens}


@pytest.mark.parametrize("parts", [1, 2])
def test_the_curves_are_in_the_event_files_of_tensorboard(tmp_path, monkeypatch, parts):
    pytest.importorskip("accelerate")
    pytest.importorskip("tensorboardX")
    folder = str(tmp_path / "logs")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", folder)
    readings = []
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=STEPS,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=parts,
        logging_steps=1,
        # Transformers 4 takes the folder as an argument.
        **({"logging_dir": folder} if TRANSFORMERS.major < 5 else {}),
        report_to="tensorboard",
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(model_of(), arguments, train_dataset=Texts())
    trainer.add_callback(TransformersAlarms(every=3, on_readings=readings.append, log=trainer.log))
    trainer.train()
    curves = scalars(tmp_path / "logs")
    assert [some[0].step for some in readings] == [1, 3, 6]
    for layer in LAYERS:
        expected = {
            some[0].step: max(one.max_score for one in some if one.layer == layer)
            for some in readings
        }
        assert curves[f"train/attention_max_score/{layer}"] == pytest.approx(expected)
        assert set(curves[f"train/attention_entropy/{layer}"]) == {1, 3, 6}
        assert curves[f"train/attention_alarms/{layer}"] == {1: 0.0, 3: 0.0, 6: 0.0}
    assert set(curves["train/loss"]) == set(range(1, STEPS + 1))
    # The history of the trainer has them, too.
    history = [one for one in trainer.state.log_history if f"attention_alarms/{LAYERS[0]}" in one]
    assert [one["step"] for one in history] == [1, 3, 6]
