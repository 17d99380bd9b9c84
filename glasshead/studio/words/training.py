"""The words of the view `training`."""

from glasshead.studio.words.marking import _

WORDS = {
    "training.title": _("Training"),
    "training.none": _(
        "There is no training here: start the studio with the folder of a run, which "
        "`glasshead train` makes."
    ),
    "training.away": _(
        "The run folder is not there at the moment. This page goes on by itself when it is back."
    ),
    "training.phase.waiting": _("Waiting for the first row"),
    "training.phase.going": _("In progress"),
    "training.phase.quiet": _("Silent"),
    "training.phase.finished": _("Finished"),
    "training.phase.patience": _("Finished early"),
    "training.said.waiting": _("Nothing has been logged yet; the files were made {age} ago."),
    "training.said.going": _("Last written {age} ago."),
    "training.said.quiet": _(
        "Nothing has been written for {age}. Perhaps training was interrupted: the command that "
        "began it resumes it with --resume."
    ),
    "training.said.finished": _("Last written {age} ago."),
    "training.said.patience": _(
        "Stopped because validation no longer improved (patience: {patience}). Last written "
        "{age} ago."
    ),
    "training.progress": _("Step {step} of {steps}"),
    "training.progress.open": _("Step {step}"),
    "training.figure.step": _("step"),
    "training.figure.left": _("time left"),
    "training.figure.seconds": _("time taken"),
    "training.figure.speed": _("steps per second"),
    "training.figure.loss": _("training loss"),
    "training.figure.best": _("best {name}, step {step}"),
    "training.figure.learning_rate": _("learning rate"),
    "training.smoothing": _("Smoothing"),
    "training.smoothing.none": _("none"),
    "training.loss": _("Loss"),
    "training.curve.loss": _("training"),
    "training.curve.smoothed": _("training, smoothed"),
    "training.curve.validation": _("validation"),
    "training.metric": _("Validation: {name}"),
    "training.learning_rate": _("Learning rate"),
    "training.best": _("best validation"),
    "training.alarm": _("alarm"),
    "training.step": _("step"),
    "training.at_step": _("{label} (step {step})"),
    "training.thinned": _(
        "The picture shows the smallest and the largest number of each few rows; all {count} rows "
        "are in log.csv."
    ),
    "training.thinned.heads": _(
        "Neighbouring steps are drawn together, with their smallest and their largest number; all "
        "{count} readings of each head are in attention.csv."
    ),
    "training.heads.left_out": _("{shown} of {count} heads are shown."),
    "training.heads": _("Heads"),
    "training.unwatched": _(
        "This run was not watched: `glasshead train --watch` records what the heads do while "
        "they learn."
    ),
    "training.measure.normalized_entropy": _("Entropy, as a share of its maximum"),
    "training.measure.max_score": _("Maximum score"),
    "training.reading.normalized_entropy": _("entropy"),
    "training.reading.max_score": _("maximum score"),
    "training.head": _("head {head}"),
    "training.the_model": _("the model"),
    "training.alarms": _("Alarms"),
    "training.alarms.none": _("No head has raised an alarm."),
    "training.alarms.some": _("The last {shown} of {count} alarms."),
    "training.sentence": _("What it says"),
    "training.said.entropy_collapse": _(
        "step {step}: the entropy of head {head} in {layer} is {value} of what it can be, below "
        "{threshold}: lower the learning rate, warm up for longer, or normalise queries and keys."
    ),
    "training.said.maximum_logit": _(
        "step {step}: the maximum score of head {head} in {layer} is {value}, above {threshold}: "
        "lower the learning rate, warm up for longer, or normalise queries and keys."
    ),
    "training.rows": _("The last rows and validations of log.csv"),
}
