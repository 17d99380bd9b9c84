"""curve.png: the learning curve as a picture."""

import io
import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.journal import VALIDATION, Journal
from glasshead.tasks.training.together import by_the_first

_SECONDS = 60.0


class Curve(Callback):
    """Draws the curve at the end, and at a validation when the last drawing is a minute old."""

    def __init__(self, folder: RunFolder, journal: Journal) -> None:
        self._folder, self._journal = folder, journal
        self._drawn = time.monotonic()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del pl_module
        due = trainer.is_global_zero and time.monotonic() - self._drawn > _SECONDS
        if trainer.should_stop or due:
            self._drawn = time.monotonic()
        if trainer.should_stop:
            by_the_first(trainer, self._draw)
        elif due:
            self._draw()

    def _draw(self) -> None:
        picture = drawn(self._journal.rows)
        if picture is not None:
            self._folder.write_bytes(self._folder.curve, picture)


def drawn(rows: list[dict[str, str]]) -> bytes | None:
    """The curve of the rows of a log as PNG; None where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.add_subplot()
    for name, label in (("loss", "training"), (f"{VALIDATION}loss", "validation")):
        points = [(int(row["step"]), float(row[name])) for row in rows if row.get(name)]
        if points:
            axes.plot(*zip(*points, strict=True), label=label, marker="." if "_" in name else "")
    axes.set(xlabel="step", ylabel="loss")
    axes.legend()
    axes.grid(alpha=0.3)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=120)
    return out.getvalue()
