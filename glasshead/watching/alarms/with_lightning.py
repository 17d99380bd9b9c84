"""Alarms for training with Lightning."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from glasshead.extras import missing_for
from glasshead.watching.alarms.probe import AlarmDispatcher, Every, Probe
from glasshead.watching.alarms.rule import Alarm, AlarmRule, HeadReading

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ModuleNotFoundError as error:
    raise missing_for("LightningAlarms", error) from error


class LightningAlarms(Callback):
    """A Lightning callback that warns when attention is about to diverge.

    `Trainer(callbacks=[LightningAlarms()])`. Every head is read in step 1 and every `every`-th
    step, in its first batch; in distributed training that of rank 0. The trained weights are the
    same, bit for bit, as without it. Its state is part of Lightning's checkpoints.

    The trainer's loggers, TensorBoard or Weights & Biases, are given three curves of each layer:
    `attention_entropy/…`, the lowest normalized entropy of its heads; `attention_max_score/…`,
    their largest score; and `attention_alarms/…`, how many alarms it has raised.

    Args:
        rule: The alarm rule; None: `AlarmRule()`.
        every: Interval of watched steps.
        layers: See `gh.watch`.
        on_alarm: Callback for each alarm, for example to stop training; None: `warnings.warn`.
        on_readings: Callback for the readings of each watched step.
        log: Whether the trainer's loggers are given the curves.

    Errors: as of `gh.watch`, in the first step.

    >>> from glasshead.watching.alarms import AlarmRule
    >>> LightningAlarms(AlarmRule(score=50.0), every=20).alarms
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
        log: bool = True,
    ) -> None:
        self._every, self._layers, self._log = Every(every), layers, log
        self._dispatcher = AlarmDispatcher(
            AlarmRule() if rule is None else rule, on_alarm, on_readings
        )
        self._step: int | None = None
        self._probe: Probe | None = None
        self._readings: list[HeadReading] = []

    @property
    def alarms(self) -> list[Alarm]:
        """The alarms so far; after resuming, those since then."""
        return self._dispatcher.alarms

    def state_dict(self) -> dict[str, Any]:
        return self._dispatcher.rule.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._dispatcher.rule.load_state_dict(state_dict)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        del batch, batch_idx
        step = trainer.global_step + 1
        if trainer.is_global_zero and self._every.due(step):
            self._step, self._probe = step, Probe(pl_module, self._layers)
            self._probe.begin()

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: Tensor
    ) -> None:
        del trainer, pl_module, loss
        self._end()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        del pl_module, outputs, batch, batch_idx
        # A batch without a loss has had no backward pass.
        self._end()
        if self._step is None:
            return
        # Loggers count steps from 0.
        step, self._step = self._step - 1, None
        readings, self._readings = self._readings, []
        self._dispatcher.take(readings)
        if self._log and self._dispatcher.values:
            for logger in trainer.loggers:
                logger.log_metrics(dict(self._dispatcher.values), step=step)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        del trainer, pl_module, exception
        if self._probe is not None:
            self._probe.leave()
            self._probe = None

    def _end(self) -> None:
        if self._probe is not None and self._step is not None:
            probe, self._probe = self._probe, None
            self._readings = probe.end(self._step)
