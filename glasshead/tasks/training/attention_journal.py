"""The heads of a training written down as they are seen, without a row that is doubled or lost."""

from lightning.pytorch import LightningModule, Trainer
from rich.console import Console
from torch import nn

from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.attention_log import line_of, read_attention_log, text_of
from glasshead.tasks.training.module import TaskModule
from glasshead.tasks.training.settings import TrainingSettings
from glasshead.tasks.training.together import by_the_first
from glasshead.watching.alarms import AlarmRule, Reading
from glasshead.watching.alarms.with_lightning import WatchedSteps

# A watched step of a small model takes up to three times as long: of fewer steps that would be too
# much.
_ROWS = 4


class AttentionJournal(WatchedSteps):
    """Writes attention.csv and alarms.jsonl with every fourth row of log.csv, and tells of alarms.

    A run that goes on drops the readings of steps that are to be made again. Alarms follow from
    readings, and so does what the rule remembers: those that are kept are fed to it again.
    """

    def __init__(self, folder: RunFolder, settings: TrainingSettings, console: Console) -> None:
        super().__init__(_ROWS * settings.log_every)
        self._folder, self._console = folder, console
        self._rule = AlarmRule()

    def watched(self, pl_module: LightningModule) -> nn.Module:
        return TaskModule.of(pl_module).model

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del pl_module
        by_the_first(trainer, lambda: self._begin(trainer.global_step))

    def read(self, trainer: Trainer, readings: list[Reading]) -> None:
        by_the_first(trainer, lambda: self._write(readings))

    def _begin(self, step: int) -> None:
        folder = self._folder
        there = read_attention_log(folder.path).readings if folder.attention.exists() else []
        kept = [reading for reading in there if reading.step <= step]
        folder.write_text(folder.attention, text_of(kept))
        folder.write_text(folder.alarms, "".join(map(line_of, self._rule.feed(kept))))

    def _write(self, readings: list[Reading]) -> None:
        folder, alarms = self._folder, self._rule.feed(readings)
        folder.append(folder.attention, text_of(readings, head=False))
        if alarms:
            folder.append(folder.alarms, "".join(map(line_of, alarms)))
            more = f" And {len(alarms) - 1} more." if len(alarms) > 1 else ""
            line = f"{alarms[0].sentence}{more}"
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)
