"""Told: all that a run folder tells of its training, read anew where a file has changed."""

import hashlib
import threading
import time
from pathlib import Path
from typing import Any

from glasshead.drawing.printable import printable
from glasshead.studio.refusals import NotThere
from glasshead.studio.views.training.curves import charts_of, table_of
from glasshead.studio.views.training.heads import alarms_of, heads_of, last_alarms
from glasshead.studio.views.training.kept import Kept, mark_of
from glasshead.studio.views.training.notes import notes_of
from glasshead.studio.views.training.pace import best_of, pace_of, phase_of
from glasshead.studio.views.training.rows import NO_ROWS, read_rows
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.attention_log import AttentionLog, read_attention_log


class TrainingLog:
    r"""What the files of a run folder tell, for whoever asks again and again.

    A file is read where it has changed since; where none has, nothing is read and little is said.

    Args:
        folder: Of the run; it may be written to all the while, vanish, and come back.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "config.json").write_text('{"training": {"steps": 40}}')
    >>> _ = (folder / "log.csv").write_text("step,loss\n10,2.5\n20,1.5\n")
    >>> log = TrainingLog(folder)
    >>> told = log.told()
    >>> told["pace"]["step"], told["pace"]["steps"], told["charts"]["loss"][0]["values"]
    (20, 40, [2.5, 1.5])
    >>> log.told(version=told["version"])["changed"]
    False
    """

    def __init__(self, folder: Path) -> None:
        run = self._run = RunFolder(folder)
        self._lock = threading.Lock()
        self._config = Kept(run.config, run.read_config, {})
        self._metrics = Kept(run.metrics, run.read_metrics, {})
        self._rows = Kept(run.log, lambda: read_rows(run.log), NO_ROWS)
        self._heads = Kept(run.attention, lambda: heads_of(self._attention().readings), None)
        self._alarms = Kept(run.alarms, lambda: alarms_of(self._attention().alarms), None)
        self._kept = (self._config, self._metrics, self._rows, self._heads, self._alarms)
        self._paced: tuple[str, dict[str, Any]] | None = None

    def told(self, version: str | None = None, smoothing: float = 0.0) -> dict[str, Any]:
        """All of it, as plain data; where it is as in `version`, how long ago that was, alone.

        Args:
            version: What was told before, as the answer named it.
            smoothing: β of the smoothed loss; 0: none.

        Errors: `NotThere` where there is no run, at the moment.
        """
        with self._lock:
            self._check_there()
            for one in self._kept:
                one.refresh()
            state = repr([one.mark for one in self._kept])
            now = hashlib.sha256(f"{state} {smoothing}".encode()).hexdigest()[:16]
            pace = self._pace(state)
            age = self._age()
            told = {
                "changed": now != version,
                "version": now,
                "age": round(age, 1),
                "phase": phase_of(pace, age),
            }
            return told if now == version else told | self._all(pace, smoothing)

    def _all(self, pace: dict[str, Any], smoothing: float) -> dict[str, Any]:
        rows = self._rows.value
        alarms = last_alarms(self._alarms.value, self._heads.value)
        return {
            "pace": pace,
            "best": best_of(self._metrics.value),
            "charts": charts_of(rows, smoothing),
            "table": table_of(rows),
            "heads": self._heads.value,
            "alarms": alarms,
            "notes": notes_of(rows, self._heads.value, alarms, len(self._alarms.value or [])),
            "problems": list(dict.fromkeys(one.problem for one in self._kept if one.problem)),
        }

    def _attention(self) -> AttentionLog:
        return read_attention_log(self._run.path)

    def _pace(self, state: str) -> dict[str, Any]:
        if self._paced is None or self._paced[0] != state:
            told = pace_of(self._rows.value, self._config.value, self._metrics.value)
            self._paced = (state, told)
        return self._paced[1]

    def _age(self) -> float:
        """Seconds since a file was written to."""
        run = self._run
        files = (run.config, run.metrics, run.log, run.attention, run.alarms, run.checkpoint)
        marks = [mark for mark in map(mark_of, files) if mark is not None]
        return max(0.0, time.time() - max((mark[0] for mark in marks), default=0) / 1e9)

    def _check_there(self) -> None:
        run = self._run
        if not run.path.is_dir():
            raise NotThere(f"there is no folder {printable(str(run.path))} at the moment.")
        if not run.config.exists():
            raise NotThere(
                f"there is no run in {printable(str(run.path))} at the moment: it has no "
                f"{run.config.name}."
            )
