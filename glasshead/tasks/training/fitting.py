"""The Trainer and its callbacks."""

import dataclasses
import importlib.util
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from rich.console import Console

from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.attention_journal import AttentionJournal
from glasshead.tasks.training.best import Best
from glasshead.tasks.training.checkpoints import SafeCheckpoints
from glasshead.tasks.training.contract import Source, Task
from glasshead.tasks.training.curve import Curve
from glasshead.tasks.training.gradients import Gradients
from glasshead.tasks.training.hardware import Hardware
from glasshead.tasks.training.identity import check_resumable, check_unfinished, identity
from glasshead.tasks.training.interruption import Interruption
from glasshead.tasks.training.journal import Journal
from glasshead.tasks.training.module import TaskModule
from glasshead.tasks.training.progress import Progress
from glasshead.tasks.training.quiet import quiet
from glasshead.tasks.training.random_state import RandomState
from glasshead.tasks.training.saving import Saving
from glasshead.tasks.training.settings import TrainingSettings
from glasshead.tasks.training.together import leave_at_exit


@dataclasses.dataclass(frozen=True)
class Run:
    """All that a run is made of."""

    task: Task
    source: Source
    held_out: Source
    settings: TrainingSettings
    folder: RunFolder
    hardware: Hardware
    watch: bool = False


def fit(run: Run, *, resume: bool) -> dict[str, Any]:
    """Train, from the beginning or from the last checkpoint, and give the figures."""
    checkpoints, interruption = SafeCheckpoints(), Interruption()
    own = identity(run.settings, run.source, run.held_out)
    # A run that was killed before its first checkpoint begins anew.
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
        Gradients(run.settings, journal),
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
            # Lightning's answer to a second Ctrl-C.
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
