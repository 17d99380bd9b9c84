"""Training: one loop over steps, on Lightning Fabric.

Fabric places the model on devices and processes, and casts to the precision; what a step does, and
when it is evaluated, logged and saved, stands in `_loop`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from torch import Tensor, nn

from glasshead.explanation.translations import Say
from glasshead.message import Message
from glasshead.tasks.run_folder import RunFolder, leads
from glasshead.tasks.training import checkpoints, logs
from glasshead.tasks.training.checkpoints import Checkpoints
from glasshead.tasks.training.logs import AttentionWriter, Progress
from glasshead.tasks.training.optimizers import clip_gradient, optimizer_of
from glasshead.tasks.training.processes import (
    Diverged,
    Hardware,
    Interruption,
    any_of,
    check_hardware,
    check_numbers,
    launch,
    raised_by_first_rank,
    summed,
)
from glasshead.tasks.training.settings import Interrupted, TrainingSettings, learning_rate
from glasshead.tasks.training.task import (
    Best,
    EpochPart,
    ExampleSource,
    Task,
    TrainingLoader,
    check_batches,
    evaluate,
)

if TYPE_CHECKING:
    from lightning.fabric import Fabric


def train(
    task: Task,
    source: ExampleSource,
    held_out: ExampleSource,
    settings: TrainingSettings,
    folder: RunFolder,
    *,
    hardware: Hardware | None = None,
    resume: bool = False,
    watch: bool = False,
    lang: str = "en",
) -> dict[str, Any]:
    """Train a task's model by steps, with checkpoints to resume from.

    The gradient of a step is that of Σ loss / Σ targets over its global batch, independently of the
    number of devices and of gradient accumulation. The folder, created by `RunFolder.create`, gets
    the best model by the task's monitor, a checkpoint, the metrics and the learning curve. On a CPU
    with the same number of threads, a run that was killed and resumed ends with bitwise the same
    weights as an uninterrupted one. In distributed training each process calls this; rank 0
    writes, and where all have to end the others exit silently by SystemExit.

    Args:
        task: The model and its loss. The model ends with the weights of the last step.
        source: Training examples.
        held_out: Validation examples.
        settings: Training settings.
        folder: The run folder.
        hardware: Devices and precision; one device by default.
        resume: Resume from the last checkpoint. Steps, patience, the intervals of validating,
            saving and logging, and the hardware may differ from before.
        watch: Write entropy and maximum score of each head every 4 `log_every` steps, and alarms,
            for `read_attention_log`. This does not change the weights, and a run may be resumed
            with it or without.
        lang: Language of the printed lines.

    Returns: the content of metrics.json: `steps`; `monitor`; `best` and `last`, each the step and
    the metrics of a validation.

    Errors: a ValueError if there are no examples, the hardware is not available, the folder's
    run is another or has finished, or a loss, a gradient or weights are not finite; an OSError
    if the folder already has a run, another process trains in it, or it cannot be written to;
    `Interrupted` after Ctrl-C or SIGTERM, once saved; KeyboardInterrupt at a second one.
    """
    check_batches(source, "what is to be trained on")
    check_batches(held_out, "what is held out")
    hardware = hardware or Hardware()
    check_hardware(hardware, settings.optimizer, resume=resume)
    run = _Run(task, source, held_out, settings, folder, hardware, watch, lang)
    with folder.locked(resume=resume):
        if not resume:
            folder.check_untrained()
        identity = checkpoints.identity(settings, source, held_out)
        checkpoint = None
        # A run that was killed before its first checkpoint starts again.
        if resume and folder.checkpoint.exists():
            checkpoint = checkpoints.read_last(folder)
            checkpoints.check_resumable(checkpoint, identity, task.model, folder)
            checkpoints.check_unfinished(checkpoint, settings, folder)
            task.model.load_state_dict(checkpoint["model"])
        failure = folder.read_failure()
        if failure and checkpoint is None:
            raise ValueError(_cannot_resume(failure, run))
        if resume and leads():
            _print_resuming(checkpoint, run, failure)
            folder.failure.unlink(missing_ok=True)
        with Interruption(run.say) as interruption:
            loggers = logs.loggers(folder)
            try:
                return launch(hardware, loggers, _loop, run, identity, checkpoint, interruption)
            except Diverged as error:
                folder.write_json(folder.failure, {"step": error.step, "error": str(error)})
                raise
            finally:
                task.model.cpu()


@dataclass(frozen=True)
class _Run:
    """The arguments of `train`."""

    task: Task
    source: ExampleSource
    held_out: ExampleSource
    settings: TrainingSettings
    folder: RunFolder
    hardware: Hardware
    watch: bool
    lang: str

    @property
    def say(self) -> Say:
        """The language of the printed lines."""
        return Say(self.lang)


class _Objective(nn.Module):
    """A task as one module whose forward pass is its loss, as DDP and FSDP synchronize that."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.model, self._task = task.model, task

    def forward(self, batch: dict[str, Tensor], *, validate: bool = False) -> Any:
        return self._task.validate(batch) if validate else self._task.loss(batch)


def _loop(
    fabric: "Fabric",
    run: _Run,
    identity: dict[str, Any],
    checkpoint: dict[str, Any] | None,
    interruption: Interruption,
) -> dict[str, Any]:
    """Train from scratch or from a checkpoint, and return the metrics."""
    task, settings, folder = run.task, run.settings, run.folder
    optimizer = optimizer_of(task.model, settings)
    model, optimizer = fabric.setup(_Objective(task), optimizer)
    model.train()
    batches = _batches(fabric, run)
    parts = iter(batches)
    best, log = Best(fabric, folder, task, settings), logs.MetricsLog(fabric, folder)
    saved = Checkpoints(
        fabric, folder, identity, model, optimizer, batches=batches, best=best, log=log
    )
    first = saved.restore(checkpoint)
    log.begin(first)
    console = Console(stderr=True)
    _print_jump(console, first, optimizer.param_groups[0]["lr"], settings, run.say)
    heads = AttentionWriter(
        task.model if run.watch else None, fabric, folder, settings, console, first, run.say
    )
    with (
        log.ended_by_divergence(),
        Progress(
            console if fabric.is_global_zero else None, first, settings.steps, run.say
        ) as progress,
    ):
        for step in range(first + 1, settings.steps + 1):
            rate = learning_rate(settings, step - 1)
            loss = _accumulated(fabric, run, model, parts, partial(heads.watching, step))
            norm = clip_gradient(fabric, model, optimizer, settings.clip)
            check_numbers(fabric, step, rate, {"loss": loss, "gradient": norm})
            _descend(optimizer, rate)

            log.record(loss, rate)
            heads.write()
            progress.step(step, loss)
            stop = step == settings.steps
            if settings.validates_at(step):
                progress.validating(step)
                metrics = evaluate(fabric, model, task, run.held_out)
                best.update(step, rate, metrics, saved.weights)
                stop |= best.out_of_patience
                log.add(step, metrics, last=stop)
                progress.validated(step, metrics, best=best.improved)
            elif step % settings.log_every == 0:
                log.add(step)

            interrupted = any_of(fabric, interruption.asked) and not stop
            if settings.saves_at(step) or interrupted:
                saved.save(step, rate)
            if interrupted:
                raise raised_by_first_rank(fabric, _interrupted(step, run))
            if stop:
                break
    return best.figures


def _batches(fabric: "Fabric", run: _Run) -> TrainingLoader:
    rank, ranks = fabric.global_rank, fabric.world_size
    return TrainingLoader(run.source, rank=rank, ranks=ranks, accumulate=run.settings.accumulate)


def _accumulated(
    fabric: "Fabric",
    run: _Run,
    model: Any,
    parts: Iterator[EpochPart],
    watching: Callable[[], AbstractContextManager[None]],
) -> float:
    """Add up the gradients of a step's parts, and return its loss over all processes."""
    count = run.settings.accumulate
    # Until they are synchronized, FSDP would hold whole gradients.
    delayed = 0 if run.hardware.strategy == "fsdp" else count
    loss = torch.zeros((), device=fabric.device)
    for number, part in enumerate(islice(parts, count), start=1):
        with fabric.no_backward_sync(model, enabled=number < delayed):
            with watching():
                own = model(fabric.to_device(part.tensors)) * part.share
            # DDP averages the gradients of the ranks, and this is a sum over them.
            fabric.backward(own * fabric.world_size)
        loss = loss + own.detach()
    return summed(fabric, loss).item()


def _descend(optimizer: Any, rate: float) -> None:
    """Change the weights by their gradients, which are then cleared."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    optimizer.zero_grad()


def _print_resuming(
    checkpoint: dict[str, Any] | None, run: _Run, failure: Mapping[str, Any]
) -> None:
    step = 0 if checkpoint is None else checkpoint["step"]
    say, places = run.say, {"run": run.folder.path, "step": step, "steps": run.settings.steps}
    line = say("Resuming {run} at step {step} of {steps}.", **places)
    if not step:
        line = say(
            "Resuming {run} at step {step} of {steps}, as it has no checkpoint yet.", **places
        )
    if failure:
        failed = say(
            "It failed at step {step}, and may fail there again. {remedy}.",
            step=failure["step"],
            remedy=say.translated(_lower(run)),
        )
        line = say.after_each_other(line, failed)
    Console(stderr=True).print(
        line,
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


# The ratio of learning rates beyond which resuming says so.
_JUMP = 1.1


def _print_jump(
    console: Console, step: int, before: float, settings: TrainingSettings, say: Say
) -> None:
    after = learning_rate(settings, step)
    # Without another schedule only the warmup rises.
    if leads() and step > settings.warmup and after > _JUMP * before and settings.cosine is None:
        console.print(
            say(
                "The learning rate jumps from {before:.2g} to {after:.2g}, on the cosine of "
                "{steps} steps, and this is not the run of {steps} steps. Keep the rate with "
                "--set cosine={step}, or restart the cosine with --set cosine={step} "
                "after=restart.",
                before=before,
                after=after,
                steps=settings.steps,
                step=step,
            ),
            highlight=False,
            markup=False,
            soft_wrap=True,
        )


def _cannot_resume(failure: Mapping[str, Any], run: _Run) -> str:
    return (
        f"the run in {run.folder.path} failed at step {failure['step']} and has no checkpoint, so "
        f"it would fail again. {_lower(run)}."
    )


def _lower(run: _Run) -> Message:
    rate, warmup = run.settings.learning_rate / 10, 2 * run.settings.warmup
    longer = f" warmup={warmup}" if 0 < warmup < run.settings.steps else ""
    return Message(
        "Train again in another folder, as in {options}",
        options=f"--set learning_rate={rate:g}{longer}",
    )


def _interrupted(step: int, run: _Run) -> Interrupted:
    return Interrupted(
        Message(
            "Training was interrupted after step {step} of {steps}, and is saved in {run}. To "
            "resume it, run the same command with --resume.",
            step=step,
            steps=run.settings.steps,
            run=run.folder.path,
        )
    )
