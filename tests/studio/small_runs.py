"""Run folders as a training writes them, made up of numbers that can be foretold."""

import csv
import io
import math
from pathlib import Path

from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.logs import line_of, text_of
from glasshead.watching.alarms import Alarm, HeadReading

COLUMNS = ["step", "loss", "learning_rate", "seconds", "validation_loss", "validation_accuracy"]
LAYERS = {"blocks.0.attention": 3, "blocks.1.attention": 5}
ALARMS = [
    Alarm(200, "blocks.1.attention", 4, "maximum_logit", 131.25, 100.0),
    Alarm(280, "blocks.0.attention", 2, "entropy_collapse", 0.0643, 0.1),
]


class SmallRun:
    """A run of `steps` steps that logs each 10th, validates each 70th and watches each 40th."""

    def __init__(self, path: Path, steps: int = 700, layers: dict[str, int] = LAYERS) -> None:
        self.folder, self.layers, self.step = RunFolder(path), layers, 0
        self.folder.create()
        self.folder.write_config({"task": "write", "training": {"steps": steps, "patience": 7}})
        self.folder.append(self.folder.log, ",".join(COLUMNS) + "\n")

    def watch(self) -> "SmallRun":
        self.folder.write_text(self.folder.attention, text_of(self.readings(1)))
        self.folder.write_text(self.folder.alarms, "")
        return self

    def go(self, rows: int) -> "SmallRun":
        """Train for some rows more."""
        for _ in range(rows):
            self.step += 10
            self.folder.append(self.folder.log, line(self.row(self.step)))
            if self.step % 70 == 0:
                self.validate()
            if self.step % 40 == 0 and self.folder.attention.exists():
                self.folder.append(
                    self.folder.attention, text_of(self.readings(self.step), head=False)
                )
                raised = (line_of(alarm) for alarm in ALARMS if alarm.step == self.step)
                self.folder.append(self.folder.alarms, "".join(raised))
        return self

    def cut(self, step: int) -> None:
        """Go on from a step, as --resume does."""
        self.step = step
        rows = "".join(line(self.row(each)) for each in range(10, step + 1, 10))
        self.folder.write_text(self.folder.log, ",".join(COLUMNS) + "\n" + rows)

    def validate(self) -> None:
        row = self.row(self.step)
        figures = {"step": self.step, "loss": float(row[4]), "accuracy": float(row[5])}
        best = figures | {"step": 140, "accuracy": 0.75} if self.step >= 140 else figures
        self.folder.write_json(
            self.folder.metrics,
            {"steps": self.step, "monitor": "accuracy", "best": best, "last": figures},
        )

    def row(self, step: int) -> list[str]:
        loss = 0.5 + 4 * math.exp(-step / 130) + 0.1 * math.sin(step)
        own = [str(step), f"{loss:.8g}", f"{1e-3 / (1 + step / 90):.8g}", f"{step / 16:.2f}"]
        if step % 70:
            return [*own, "", ""]
        accuracy = 0.75 if step == 140 else 0.7 - 1 / step
        return [*own, f"{loss + 0.11:.8g}", f"{accuracy:.8g}"]

    def readings(self, step: int) -> list[HeadReading]:
        return [
            HeadReading(
                step,
                layer,
                head,
                round(3 / (1 + step / 300) + 0.07 * head, 5),
                round(0.9 / (1 + step / 300) + 0.01 * head, 5),
                round(0.3 * (head + 1) + step / 5, 5),
            )
            for layer, heads in self.layers.items()
            for head in range(heads)
        ]


def line(row: list[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(row)
    return out.getvalue()
