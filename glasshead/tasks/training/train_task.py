"""Train a task: the call that checks what it is given, and holds the folder meanwhile."""

from typing import Any

from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.hardware import Hardware, check_hardware
from glasshead.tasks.training.loader import ExampleSource, Task, check_batches
from glasshead.tasks.training.settings import TrainingSettings


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

    Returns: the content of metrics.json: `steps`; `monitor`; `best` and `last`, each the step and
    the metrics of a validation.

    Errors: a ValueError where there are no examples, the hardware is not available, the folder's
    run is another or has finished, or a loss, a gradient or weights are not finite; an OSError
    where the folder already has a run, another process trains in it, or it cannot be written to;
    `Interrupted` after Ctrl-C or SIGTERM, once saved; KeyboardInterrupt at a second one.
    """
    check_batches(source, "what is to be trained on")
    check_batches(held_out, "what is held out")
    hardware = hardware or Hardware()
    check_hardware(hardware, settings.optimizer, resume=resume)

    from glasshead.tasks.training.fit import Run, fit

    with folder.locked(resume=resume):
        if not resume:
            folder.check_untrained()
        return fit(Run(task, source, held_out, settings, folder, hardware, watch), resume=resume)
