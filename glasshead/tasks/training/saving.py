"""When checkpoints are saved, and what an interruption leaves."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.checkpoints import SafeCheckpoints
from glasshead.tasks.training.interruption import Interrupted, Interruption
from glasshead.tasks.training.settings import TrainingSettings
from glasshead.tasks.training.together import any_of, by_the_first, told_by_the_first


class Saving(Callback):
    """Saves last.safetensors, after all other callbacks, so that it has what they know.

    A step that validates is saved after its validation, which it would lack otherwise.
    """

    def __init__(
        self,
        folder: RunFolder,
        settings: TrainingSettings,
        checkpoints: SafeCheckpoints,
        interruption: Interruption,
        identity: dict[str, Any],
    ) -> None:
        self._folder, self._settings, self._checkpoints = folder, settings, checkpoints
        self._interruption, self._identity = interruption, identity

    def state_dict(self) -> dict[str, Any]:
        return self._identity

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del trainer, pl_module
        # Lightning has just taken SIGTERM.
        self._interruption.listen()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        del pl_module, outputs, batch
        step = trainer.global_step
        if (batch_idx + 1) % self._settings.accumulate or self._settings.validates_at(step):
            return
        asked = any_of(trainer, self._interruption.asked)
        if asked or step % self._settings.save_every == 0:
            self._save(trainer)
        if asked:
            raise self._interrupted(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del pl_module
        asked = any_of(trainer, self._interruption.asked)
        self._save(trainer)
        if asked and not trainer.should_stop:
            raise self._interrupted(trainer)

    def _save(self, trainer: Trainer) -> None:
        trainer.save_checkpoint(self._folder.checkpoint)
        by_the_first(trainer, self._checkpoints.check_saved)

    def _interrupted(self, trainer: Trainer) -> BaseException:
        said = (
            f"training was interrupted after step {trainer.global_step} of "
            f"{self._settings.steps}, and is saved in {self._folder.path}: go on by the same "
            f"command with --resume."
        )
        return told_by_the_first(trainer, Interrupted(said))
