"""Alarms for training with Lightning."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn

from glasshead.watching.alarms.probe import AlarmDispatcher, Every, Probe
from glasshead.watching.alarms.rule import Alarm, AlarmRule, HeadReading


class WatchedSteps(Callback, ABC):
    """A callback that reads every head in step 1 and every `every`-th step, in its first batch.

    In distributed training rank 0 watches its own share. Subclasses implement `read`, which
    receives the readings.

    Args:
        every: Interval of watched steps.
        layers: See `gh.watch`.
    """

    def __init__(self, every: int = 10, layers: str | Sequence[str] | None = None) -> None:
        self._every, self._layers = Every(every), layers
        self._step: int | None = None
        self._probe: Probe | None = None
        self._readings: list[HeadReading] = []

    def watched(self, pl_module: LightningModule) -> nn.Module:
        """Return the model to watch."""
        return pl_module

    @abstractmethod
    def read(self, trainer: Trainer, readings: list[HeadReading]) -> None:
        """Process the readings of a step; called on every rank, with readings on rank 0 only."""

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        del batch, batch_idx
        step = trainer.global_step + 1
        if not self._every.due(step):
            return
        self._step = step
        if trainer.is_global_zero:
            self._probe = Probe(self.watched(pl_module), self._layers)
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
        if self._step is not None:
            readings, self._readings, self._step = self._readings, [], None
            self.read(trainer, readings)

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


class LightningAlarms(WatchedSteps):
    """A Lightning callback that warns when attention is about to diverge.

    `Trainer(callbacks=[LightningAlarms()])`. The trained weights are the same, bit for bit, as
    without it. Its state is part of Lightning's checkpoints.

    Args:
        rule: The alarm rule; None: `AlarmRule()`.
        every: Interval of watched steps.
        layers: See `gh.watch`.
        on_alarm: Callback for each alarm, for example to stop training; None: `warnings.warn`.
        on_readings: Callback for the readings of each watched step.

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
    ) -> None:
        super().__init__(every, layers)
        self._dispatcher = AlarmDispatcher(
            AlarmRule() if rule is None else rule, on_alarm, on_readings
        )

    @property
    def alarms(self) -> list[Alarm]:
        """The alarms so far; after resuming, those since then."""
        return self._dispatcher.alarms

    def read(self, trainer: Trainer, readings: list[HeadReading]) -> None:
        if trainer.is_global_zero:
            self._dispatcher.take(readings)

    def state_dict(self) -> dict[str, Any]:
        return self._dispatcher.rule.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._dispatcher.rule.load_state_dict(state_dict)
