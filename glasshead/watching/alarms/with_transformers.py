"""Alarms for training with the Trainer of transformers."""

import functools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from torch import nn

from glasshead.extras import missing_for
from glasshead.watching.alarms.probe import AlarmDispatcher, Every, Probe
from glasshead.watching.alarms.rule import Alarm, AlarmRule, HeadReading

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ModuleNotFoundError as error:
    raise missing_for("TransformersAlarms", error) from error


class TransformersAlarms(TrainerCallback):
    """A callback of transformers that warns when attention is about to diverge.

    `trainer.add_callback(TransformersAlarms(log=trainer.log))`. The trained weights are the same,
    bit for bit, as without it. Resumed training starts with new first readings.

    What the trainer reports to, TensorBoard or Weights & Biases, is given three curves of each
    layer: `attention_entropy/…`, the lowest normalized entropy of its heads;
    `attention_max_score/…`, their largest score; and `attention_alarms/…`, how many alarms it has
    raised.

    Args:
        rule: The alarm rule; None: `AlarmRule()`.
        every: Interval of watched steps: step 1, and the multiples.
        layers: See `gh.watch`.
        on_alarm: Callback for each alarm, for example to stop training; None: `warnings.warn`.
        on_readings: Callback for the readings of each watched step.
        log: Function that logs numbers by their names: `trainer.log`. None: they are not logged.

    Errors: as of `gh.watch`, in the first step; a TypeError if `log` is no function.

    >>> TransformersAlarms(every=20).alarms
    []
    """

    def __init__(
        self,
        rule: AlarmRule | None = None,
        *,
        every: int = 10,
        layers: str | Sequence[str] | None = None,
        on_alarm: Callable[[Alarm], object] | None = None,
        on_readings: Callable[[list[HeadReading]], object] | None = None,
        log: Callable[[dict[str, float]], object] | None = None,
    ) -> None:
        if log is not None and not callable(log):
            raise TypeError(f"log takes a function such as trainer.log, and got {log!r}.")
        self._every, self._layers, self._log = Every(every), layers, log
        self._dispatcher = AlarmDispatcher(
            AlarmRule() if rule is None else rule, on_alarm, on_readings
        )
        # What restores the `forward` that it replaces.
        self._patched = ExitStack()

    @property
    def alarms(self) -> list[Alarm]:
        """The alarms so far."""
        return self._dispatcher.alarms

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        del args, control
        self._patched.close()
        step = state.global_step + 1
        if state.is_world_process_zero and self._every.due(step):
            self._watch_next(kwargs["model"], step)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        del args, state, kwargs
        values, self._dispatcher.values = self._dispatcher.values, {}
        if self._log is not None and values:
            # Logging takes back what another callback has asked for: to log the loss of this step.
            due = control.should_log
            self._log(values)
            control.should_log = due

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        del args, state, control, kwargs
        self._patched.close()

    def _watch_next(self, model: nn.Module, step: int) -> None:
        """Watch only the next forward pass: a step may have several, and any may fail."""
        own, forward = "forward" in vars(model), model.forward

        def restore() -> None:
            if own:
                model.forward = forward
            else:
                del model.forward

        @functools.wraps(forward)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._patched.close()
            probe = Probe(model, self._layers)
            probe.begin()
            try:
                output = forward(*args, **kwargs)
            except BaseException:
                probe.leave()
                raise
            self._dispatcher.take(probe.end(step))
            return output

        self._patched.callback(restore)
        model.forward = watched
