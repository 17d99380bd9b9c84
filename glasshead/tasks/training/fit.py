"""Train a task by steps on Lightning's Trainer."""

import dataclasses
import importlib.util
import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from torch.optim import Optimizer

from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.best import Best, Interruption, not_finite
from glasshead.tasks.training.checkpoints import RandomState, SafeCheckpoints, Saving
from glasshead.tasks.training.hardware import (
    Hardware,
    leave_at_exit,
    told_by_the_first,
)
from glasshead.tasks.training.identity import check_resumable, check_unfinished, identity
from glasshead.tasks.training.loader import ExampleSource, Task
from glasshead.tasks.training.logs import AttentionJournal, Curve, Journal
from glasshead.tasks.training.module import TaskModule
from glasshead.tasks.training.progress import Progress
from glasshead.tasks.training.settings import TrainingSettings, learning_rate

_LOGGERS = ("lightning.pytorch", "lightning.fabric")


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Lightning's hints and warnings while the block runs."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\.")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class GradientCallback(Callback):
    """Callback that checks loss and gradient, clips the gradient and sets the learning rate."""

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
        value = loss.item()
        if not (math.isfinite(value) and math.isfinite(norm)):
            what = "gradient" if math.isfinite(value) else "loss"
            raise told_by_the_first(trainer, not_finite(what, trainer.global_step + 1, rate))
        for group in optimizer.param_groups:
            group["lr"] = rate
        self._journal.record(value, rate)

    def _clip(self, trainer: Trainer, optimizer: Optimizer) -> float:
        """Clip the gradient and return its norm before clipping."""
        clip = math.inf if self._settings.clip is None else self._settings.clip
        # With sharded parameters (FSDP) no rank has the whole gradient.
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


@dataclasses.dataclass(frozen=True)
class Run:
    """The arguments of `train`."""

    task: Task
    source: ExampleSource
    held_out: ExampleSource
    settings: TrainingSettings
    folder: RunFolder
    hardware: Hardware
    watch: bool = False


def fit(run: Run, *, resume: bool) -> dict[str, Any]:
    """Train from scratch or from the last checkpoint, and return the metrics."""
    checkpoints, interruption = SafeCheckpoints(), Interruption()
    own = identity(run.settings, run.source, run.held_out)
    # A run that was killed before its first checkpoint starts anew.
    there = run.folder.checkpoint if resume and run.folder.checkpoint.exists() else None
    if there is not None:
        checkpoint = checkpoints.read(there)
        check_resumable(checkpoint, own, run.task, run.folder)
        check_unfinished(checkpoint, run.settings, run.folder)
    journal = Journal(run.folder, run.settings)
    best = Best(run.folder, run.settings, run.task, journal)
    console = Console(stderr=True)
    watched = [AttentionJournal(run.folder, run.settings, console)] if run.watch else []
    callbacks = [
        RandomState(run.settings.seed),
        GradientCallback(run.settings, journal),
        best,
        journal,
        *watched,
        Curve(run.folder, journal),
        Progress(run.settings, journal, best, console),
        Saving(run.folder, run.settings, checkpoints, interruption, own),
    ]
    leave_at_exit()
    run.task.model.train()
    module = TaskModule(run.task, run.source, run.held_out, run.settings)
    with quiet(), interruption.listening():
        trainer = _trainer(run, checkpoints, callbacks)
        try:
            trainer.fit(module, ckpt_path=there)
        except SystemExit:
            # Lightning's reaction to a second Ctrl-C.
            if interruption.ended:
                raise KeyboardInterrupt from None
            raise
    return best.figures


def _trainer(run: Run, checkpoints: SafeCheckpoints, callbacks: list[Callback]) -> Trainer:
    settings, hardware = run.settings, run.hardware
    try:
        return Trainer(
            accelerator=hardware.accelerator,
            devices=hardware.devices,
            num_nodes=hardware.nodes,
            strategy=hardware.strategy,
            precision=_precision(hardware),
            plugins=[checkpoints],
            callbacks=callbacks,
            max_steps=settings.steps,
            max_epochs=-1,
            accumulate_grad_batches=settings.accumulate,
            val_check_interval=settings.validate_every * settings.accumulate,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            logger=_logger(run.folder),
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=run.folder.path,
        )
    except (MisconfigurationException, RuntimeError, ValueError) as error:
        raise ValueError(
            f"{hardware} is not to be had here ({error}): ask for what the machine has."
        ) from error


def _precision(hardware: Hardware) -> Any:
    if hardware.precision != "auto":
        return hardware.precision
    cuda = hardware.accelerator in {"auto", "gpu", "cuda"} and torch.cuda.is_available()
    return "bf16-mixed" if cuda and torch.cuda.is_bf16_supported() else "32-true"


def _logger(folder: RunFolder) -> Any:
    if importlib.util.find_spec("tensorboard") is None:
        return False
    from lightning.pytorch.loggers import TensorBoardLogger

    return TensorBoardLogger(folder.path, name="tensorboard", version="")
