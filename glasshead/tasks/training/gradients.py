"""What happens between a gradient and the step that it makes."""

import math

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.optim import Optimizer

from glasshead.tasks.training.journal import Journal
from glasshead.tasks.training.module import TaskModule
from glasshead.tasks.training.not_finite import not_finite
from glasshead.tasks.training.schedule import learning_rate
from glasshead.tasks.training.settings import TrainingSettings
from glasshead.tasks.training.together import told_by_the_first


class Gradients(Callback):
    """Sees that loss and gradient are finite, clips the gradient, and sets the learning rate."""

    def __init__(self, settings: TrainingSettings, journal: Journal) -> None:
        self._settings, self._journal = settings, journal

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        module = TaskModule.of(pl_module)
        rate = learning_rate(self._settings, trainer.global_step)
        loss = module.loss_of_step
        if trainer.world_size > 1:
            loss = trainer.strategy.reduce(loss.clone(), reduce_op="sum")
        norm = self._clip(trainer, optimizer)
        seen = loss.item()
        if not (math.isfinite(seen) and math.isfinite(norm)):
            what = "gradient" if math.isfinite(seen) else "loss"
            raise told_by_the_first(trainer, not_finite(what, trainer.global_step + 1, rate))
        for group in optimizer.param_groups:
            group["lr"] = rate
        self._journal.record(seen, rate)

    def _clip(self, trainer: Trainer, optimizer: Optimizer) -> float:
        """The norm of the gradient before it is clipped."""
        clip = math.inf if self._settings.clip is None else self._settings.clip
        # A process that has only a share of the gradient does not know its norm.
        sharded = getattr(trainer.strategy.model, "clip_grad_norm_", None)
        if sharded is not None:
            return sharded(clip).item()
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in parameters if p.grad is not None]
        total = torch.nn.utils.get_total_norm(gradients)
        norm = total.item()
        if clip < norm < math.inf:
            torch.nn.utils.clip_grads_with_norm_(parameters, clip, total)
        return norm
