"""A task as Lightning drives it."""

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.optim import Optimizer

from glasshead.tasks.training.loader import HeldOutLoader, Part, Source, Task, TrainingLoader
from glasshead.tasks.training.optimizers import matrices_of, optimizer_of
from glasshead.tasks.training.settings import TrainingSettings


class TaskModule(LightningModule):
    """The task's model, its loss over global batches, and the figures of the last validation.

    The gradient of a step is that of Σ loss over the global batch / its number of targets. As
    Lightning divides by the parts, and DDP by the processes, each part's loss is multiplied by
    both.

    Attributes:
        loss_of_step: This process's addend to the mean loss of the global batch.
        metrics: The figures of the last validation.
    """

    def __init__(
        self, task: Task, source: Source, held_out: Source, settings: TrainingSettings
    ) -> None:
        super().__init__()
        self.model = task.model
        self.loss_of_step = torch.zeros(())
        self.metrics: dict[str, float] = {}
        self._task, self._settings = task, settings
        # Noted now, as FSDP makes one axis of all.
        self._matrices = matrices_of(task.model)
        self._source, self._held_out = source, held_out
        self._sums: dict[str, Tensor] = {}

    @staticmethod
    def of(module: LightningModule) -> "TaskModule":
        """The module that a callback is given."""
        if not isinstance(module, TaskModule):
            raise TypeError(f"a TaskModule is trained here, and got {type(module).__name__}.")
        return module

    def configure_optimizers(self) -> Optimizer:
        return optimizer_of(self.model, self._settings, self._matrices)

    def train_dataloader(self) -> TrainingLoader:
        trainer, accumulate = self.trainer, self._settings.accumulate
        return TrainingLoader(
            self._source,
            rank=trainer.global_rank,
            ranks=trainer.world_size,
            accumulate=accumulate,
        )

    def val_dataloader(self) -> HeldOutLoader:
        return HeldOutLoader(
            self._held_out, rank=self.trainer.global_rank, ranks=self.trainer.world_size
        )

    def training_step(self, part: Part, batch_idx: int) -> Tensor:
        accumulate = self._settings.accumulate
        loss = self._task.loss(part.tensors) * part.share
        own = loss.detach()
        self.loss_of_step = own if batch_idx % accumulate == 0 else self.loss_of_step + own
        return loss * (accumulate * self.trainer.world_size)

    def on_validation_epoch_start(self) -> None:
        self._sums = {}

    def validation_step(self, part: Part, batch_idx: int) -> None:
        del batch_idx
        for name, value in self._task.validate(part.tensors).items():
            # Sums over many batches: float32 would lose the last digits.
            own = value.detach().cpu().double() * part.share
            self._sums[name] = self._sums[name] + own if name in self._sums else own

    def on_validation_epoch_end(self) -> None:
        names = sorted(self._sums)
        sums = torch.stack([self._sums[name] for name in names])
        if self.trainer.world_size > 1:
            sums = self.trainer.strategy.reduce(sums.to(self.device), reduce_op="sum")
        self.metrics = self._task.metrics(dict(zip(names, sums.tolist(), strict=True)))
