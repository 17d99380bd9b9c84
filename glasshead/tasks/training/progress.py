"""Progress of training: a bar in a terminal, and occasional lines elsewhere."""

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

# Seconds between updates; drawing the bar takes some milliseconds.
_BAR_SECONDS, _LINE_SECONDS = 0.5, 30.0


class Progress:
    """Prints step, loss, speed, time left and validations, while its block runs.

    Args:
        console: Where to; None: nowhere.
        first: The step to go on from.
        steps: The number of steps.
    """

    def __init__(self, console: Console | None, first: int, steps: int) -> None:
        self._console, self._first, self._steps = console, first, steps
        self._done = first
        self._bar: Bar | None = None
        self._since, self._next = 0.0, 0.0

    def __enter__(self) -> Self:
        self._since = time.monotonic()
        self._next = self._since + _LINE_SECONDS
        if self._console is None:
            self._next = float("inf")
        elif self._console.is_terminal:
            self._bar = _bar(self._console)
            self._bar.add_task("", total=self._steps, completed=self._first, said="")
            self._bar.start()
            self._next = self._since
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done, said="")
            self._bar.stop()

    def step(self, step: int, loss: float) -> None:
        """Show a step, unless one was shown just now."""
        self._done = step
        if time.monotonic() >= self._next:
            self._show(step, f"loss {loss:.4g}, {self._pace(step)}")

    def validating(self, step: int) -> None:
        """Show that a validation has begun."""
        if self._bar is not None:
            self._show(step, "validating")

    def validated(self, step: int, metrics: dict[str, float], *, best: bool) -> None:
        """Print the metrics of a validation."""
        values = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        so_far = ", the best so far" if best else ""
        self._print(step, f"validation {values}{so_far}; {self._pace(step)}")

    def _show(self, step: int, said: str) -> None:
        if self._bar is None:
            self._print(step, said)
        else:
            self._bar.update(self._bar.task_ids[0], completed=step, said=said, refresh=True)
            self._next = time.monotonic() + _BAR_SECONDS

    def _print(self, step: int, said: str) -> None:
        if self._console is not None:
            line = f"step {step} of {self._steps}: {said}"
            self._console.print(line, highlight=False, soft_wrap=True)
            self._next = time.monotonic() + (_LINE_SECONDS if self._bar is None else _BAR_SECONDS)

    def _pace(self, step: int) -> str:
        done, seconds = step - self._first, time.monotonic() - self._since
        left = (self._steps - step) * seconds / max(1, done)
        return f"{done / max(seconds, 1e-9):.3g} steps/s, {duration(left)} left"


def duration(seconds: float) -> str:
    """Format seconds for reading.

    >>> duration(7.4), duration(83), duration(7260)
    ('7 s', '1 min 23 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _bar(console: Console) -> Bar:
    columns = (
        TextColumn("step"),
        MofNCompleteColumn(),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[said]}"),
    )
    # A drawing thread would slow down the steps.
    return Bar(*columns, console=console, auto_refresh=False)
