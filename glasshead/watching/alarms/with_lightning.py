"""Alarms in a training on Lightning."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn

from glasshead.watching.alarms.probe import AlarmDispatcher, Every, Probe
from glasshead.watching.alarms.rule import Alarm, AlarmRule, HeadReading


class WatchedSteps(Callback, ABC):
    """Reads every head in step 1 and in each `every`-th step, of the first batch of the step.

    Of several processes that train together the first one watches its own share. Whoever derives
    from it says in `read` what is to be done with the readings.

    Args:
        every: In how many steps one is watched.
        layers: As of `gh.watch`.
    """

    def __init__(self, every: int = 10, layers: str | Sequence[str] | None = None) -> None:
        self._every, self._layers = Every(every), layers
        self._step: int | None = None
        self._probe: Probe | None = None
        self._readings: list[HeadReading] = []

    def watched(self, pl_module: LightningModule) -> nn.Module:
        """The model whose attentions are watched, by the names that they have in it."""
        return pl_module

    @abstractmethod
    def read(self, trainer: Trainer, readings: list[HeadReading]) -> None:
        """Take the readings of a step; every process does, and all but the first have none."""

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
    """A Lightning callback that tells when attention is about to let a training diverge.

    `Trainer(callbacks=[LightningAlarms()])`. The weights that training ends with are the same, bit
    for bit, as without it. What it remembers is part of Lightning's checkpoints.

    Args:
        rule: Which readings are alarms; None: `AlarmRule()`.
        every: In how many steps one is watched.
        layers: As of `gh.watch`.
        on_alarm: What is called with each alarm, say to end the training; None: `warnings.warn`.
        on_readings: What is called with the readings of each watched step.

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
        self._telling = AlarmDispatcher(
            AlarmRule() if rule is None else rule, on_alarm, on_readings
        )

    @property
    def alarms(self) -> list[Alarm]:
        """Those so far, of a resumed training those since then."""
        return self._telling.alarms

    def read(self, trainer: Trainer, readings: list[HeadReading]) -> None:
        if trainer.is_global_zero:
            self._telling.take(readings)

    def state_dict(self) -> dict[str, Any]:
        return self._telling.rule.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._telling.rule.load_state_dict(state_dict)
