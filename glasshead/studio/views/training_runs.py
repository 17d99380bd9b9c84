"""The runs of the view `training`: the one that is served, and others drawn over it."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from glasshead.drawing.printable import printable
from glasshead.message import _
from glasshead.studio.background_jobs import Refusal, Work
from glasshead.studio.panel import Panel
from glasshead.studio.parameters import TextName
from glasshead.studio.studio import Studio
from glasshead.studio.views import heads
from glasshead.studio.views.training import Span, TrainingLog
from glasshead.studio.views.training_findings import differing
from glasshead.tasks.run_folder import RunFolder

if TYPE_CHECKING:
    from glasshead.studio.routes import Routes


WORDS = {
    "training.over": _("Other runs ({count})"),
}


MOST_OVER = 5
"""Runs that are drawn over another; more are not told apart by their colors."""

SEPARATOR = "/"
"""Stands between the names of runs, and in none of them."""

# Folders of runs that are offered, and folders that are looked at for one.
_OFFERED, _LOOKED_AT = 64, 1024
_LETTERS = 80


class TrainingRuns:
    r"""The run of a studio, and others: those given with it, and those that lie beside it.

    Args:
        folder: The folder of the run that is served.
        given: Folders of other runs, which are offered first and drawn from the beginning; one
            without a curve is passed over.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("slow", "fast"):
    ...     (folder / name).mkdir()
    ...     _ = (folder / name / "config.json").write_text('{"training": {"steps": 40}}')
    ...     _ = (folder / name / "log.csv").write_text("step,loss\n10,2.5\n")
    >>> runs = TrainingRuns(folder / "fast")
    >>> told = runs.summary(chosen=["slow"])
    >>> told["runs"], told["others"]["slow"]["charts"]["loss"][0]["values"]
    (['slow'], [2.5])
    """

    def __init__(self, folder: Path, given: Sequence[Path] = ()) -> None:
        self._folder, self._given = folder, tuple(filter(_is_run, given))
        self._log = TrainingLog(folder)
        self._lock = threading.Lock()
        self._logs: dict[Path, TrainingLog] = {}

    @property
    def name(self) -> str:
        """Name of the run that is served."""
        return _name(self._folder)

    def summary(
        self,
        version: str | None = None,
        smoothing: float = 0.0,
        span: Span | None = None,
        chosen: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Return the data of `TrainingLog.summary`, with the curves of the runs chosen.

        Args:
            version: The `version` of an earlier answer.
            smoothing: β of the smoothed loss; 0 for none.
            span: The part of the curves to return; None: all.
            chosen: Names of other runs; None: those that were given.

        Errors: `NotThere` if there is no run at the moment; a `Refusal` for too many runs. A
        name that is not offered is left out, as a run may be taken away.
        """
        offered = self.offered()
        given = {folder.resolve() for folder in self._given}
        names = list(dict.fromkeys(chosen or ()))
        if chosen is None:
            names = [name for name, folder in offered.items() if folder.resolve() in given]
        if chosen is not None and len(names) > MOST_OVER:
            raise Refusal(
                "at most {most} other runs can be drawn over one, got {count}. Omit some.",
                most=MOST_OVER,
                count=len(names),
            )
        others = {
            name: self._log_of(offered[name]) for name in names[:MOST_OVER] if name in offered
        }
        told = self._log.summary(version, smoothing, span, others)
        if told.get("others"):
            configs = {name: others[name].config for name in told["others"]}
            told["settings"] = differing({self.name: self._log.config} | configs)
        return told | {"runs": [*offered], "run": self.name}

    def offered(self) -> dict[str, Path]:
        """Return the folders of the other runs by name: those given, and those lying beside."""
        own = self._folder.resolve()
        found: dict[Path, Path] = {}
        for folder in (*self._given, *_siblings(own)):
            found.setdefault(folder.resolve(), folder)
        found.pop(own, None)
        named: dict[str, Path] = {}
        for folder in found.values():
            name, number = _name(folder), 1
            while name in named or name == self.name:
                number += 1
                name = f"{_name(folder)} ({number})"
            named[name] = folder
            if len(named) == _OFFERED:
                break
        return named

    def _log_of(self, folder: Path) -> TrainingLog:
        with self._lock:
            return self._logs.setdefault(folder, TrainingLog(folder))


def _name(folder: Path) -> str:
    return printable(folder.resolve().name.replace(SEPARATOR, "·"))[:_LETTERS]


def _siblings(own: Path) -> Iterator[Path]:
    """Generate the runs in the folder of a run, in the order of their names."""
    try:
        entries = sorted(own.parent.iterdir())[:_LOOKED_AT]
    except OSError:
        return
    yield from filter(_is_run, entries)


def _is_run(folder: Path) -> bool:
    run = RunFolder(folder)
    try:
        return run.config.is_file() and run.log.is_file()
    except OSError:
        return False


# Characters of a list of names, and of the name of a layer.
_LONGEST, _LONGEST_LAYER = 2**10, 200
_Step = Annotated[int | None, {"ge": 0, "le": 10**15}]


def runs_of(studio: Studio) -> TrainingRuns:
    """Return the runs of a studio; without a folder, `check_run` refuses what is asked of them."""
    return TrainingRuns(studio.subject.folder or Path(), studio.other_folders)


def _add_routes(routes: "Routes") -> None:
    studio, runs = routes.studio, runs_of(routes.studio)

    @routes.at_once()
    def training(
        version: Annotated[str | None, {"max_length": 64}] = None,
        smoothing: Annotated[float, {"ge": 0, "le": 0.999}] = 0.0,
        first: _Step = None,
        last: _Step = None,
        over: Annotated[str | None, {"max_length": _LONGEST}] = None,
    ) -> dict[str, Any]:
        """Return the progress of a training run: its curves, its heads and the alarms.

        `over` names other runs, with "/" between them, whose curves are returned too; if not given,
        those that the studio was started with. `first` and `last` are the steps of the part of the
        curves that is returned. Where nothing has changed since `version`, `changed` is false and
        the data is left out. 400 if there are too many runs.
        """
        studio.subject.check_run()
        span = None if first is None or last is None else (first, last)
        chosen = None if over is None else [name for name in over.split(SEPARATOR) if name]
        return runs.summary(version, smoothing, span, chosen)

    @routes.json("/head")
    def place_of_a_layer(
        work: Work, text: TextName, layer: Annotated[str, {"max_length": _LONGEST_LAYER}]
    ) -> dict[str, int] | None:
        """Return the place of a layer in the view of heads, by the name that it has in the log.

        Null if the view has no such layer, as of a decoder.
        """
        layers = heads.summary(heads.reading_of(studio, text, work), work)["layers"]
        return {"layer": layers.index(layer)} if layer in layers else None


PANEL = Panel(words=WORDS, routes=_add_routes)
