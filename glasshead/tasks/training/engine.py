"""train(): a task, its examples and settings, on Lightning's Trainer."""

from typing import Any

from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.contract import Source, Task
from glasshead.tasks.training.hardware import Hardware, check_hardware
from glasshead.tasks.training.loader import check_batches
from glasshead.tasks.training.settings import TrainingSettings


def train(
    task: Task,
    source: Source,
    held_out: Source,
    settings: TrainingSettings,
    folder: RunFolder,
    *,
    hardware: Hardware | None = None,
    resume: bool = False,
    watch: bool = False,
) -> dict[str, Any]:
    """Train a task's model by steps; whatever ends it, the folder lets it go on.

    The gradient of a step is that of Σ loss / Σ targets over its global batch, on however many
    devices and in however many parts that is computed. The folder, which `RunFolder.create` has
    made, gets the best model by the task's monitor, a checkpoint, the figures and the learning
    curve. On a CPU a run that was killed, and goes on with as many threads, ends with the same
    weights, bit for bit, as one that was not. Where several processes train, each calls this; the
    first one writes, and if all have to end the others leave by SystemExit without a word.

    Args:
        task: The model and its loss. The model ends with the weights of the last step.
        source: What it is trained on.
        held_out: What it is validated with.
        settings: How.
        folder: Where to.
        hardware: On what; one device, if none is named.
        resume: Go on from the last checkpoint. Steps, patience and how often to validate, save and
            log may be other than before, and so may the hardware.
        watch: Write entropy and maximum score of each head every 4 `log_every` steps, and alarms,
            to be read by `read_attention_log`. The weights are the same with it and without, and a
            run may go on in either way.

    Returns: what metrics.json has: `steps`; `monitor`; `best` and `last`, each the step and the
    figures of a validation.

    Errors: a ValueError where there are no examples, where the hardware is not there, where the
    folder's run is another or has finished, and where a loss, a gradient or weights are not finite;
    an OSError where the folder already has a run, where another process trains in it, or where it
    cannot be written to; `Interrupted` after
    Ctrl-C or SIGTERM, saved; KeyboardInterrupt at a second one.
    """
    check_batches(source, "what is to be trained on")
    check_batches(held_out, "what is held out")
    hardware = hardware or Hardware()
    check_hardware(hardware, settings.optimizer, resume=resume)
    from glasshead.tasks.training.fitting import Run, fit

    with folder.locked(resume=resume):
        if not resume:
            folder.check_untrained()
        return fit(Run(task, source, held_out, settings, folder, hardware, watch), resume=resume)
