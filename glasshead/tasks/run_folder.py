"""Run folder: all that is needed to use a trained model again, or to go on training it."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # there is none on Windows
    fcntl = None

from glasshead.files import check_regular, read_object, whole_file

# What stands in a folder before it is a run: `config.json` is written last.
_BEFORE = {"README.md", "tokenizer.json"}
# What to do where a file of a run is broken, and where nobody knows yet what a folder holds.
_ANEW, _OTHER = "train anew", "name another folder"
_LOCK = ".lock"
# What numbers the processes of one training; the first has 0, or nothing.
_RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")
# The locks that this process holds: the descriptor of each, by the folder that it is of.
_HELD: dict[Path, int] = {}


class RunFolder:
    """The files of a training run, each written whole or not at all.

    Args:
        path: The folder, which need not be there.

    Of several processes that train together only the first writes.

    >>> run = RunFolder("runs/first")
    >>> run.config.name, run.weights.name, run.checkpoint.name
    ('config.json', 'model.safetensors', 'last.safetensors')
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        # Folders and files that were missing before `create`, the deepest first.
        self._made: list[Path] = []

    @property
    def config(self) -> Path:
        """What the model is; with it the folder is a run."""
        return self.path / "config.json"

    @property
    def weights(self) -> Path:
        """The best model so far."""
        return self.path / "model.safetensors"

    @property
    def tokenizer(self) -> Path:
        """What makes tokens of a text."""
        return self.path / "tokenizer.json"

    @property
    def metrics(self) -> Path:
        """The figures of the best model and of the last validation."""
        return self.path / "metrics.json"

    @property
    def readme(self) -> Path:
        """What made the run."""
        return self.path / "README.md"

    @property
    def log(self) -> Path:
        """The learning curve as a table."""
        return self.path / "log.csv"

    @property
    def curve(self) -> Path:
        """The learning curve as a picture."""
        return self.path / "curve.png"

    @property
    def attention(self) -> Path:
        """What the heads did in training, as a table; of a run that was watched."""
        return self.path / "attention.csv"

    @property
    def alarms(self) -> Path:
        """The alarms that they raised, a JSON object a line."""
        return self.path / "alarms.jsonl"

    @property
    def checkpoint(self) -> Path:
        """All that resuming needs."""
        return self.path / "checkpoints" / "last.safetensors"

    @contextmanager
    def locked(self, *, resume: bool = False) -> Iterator[None]:
        """Keep other processes from training in the folder until the block ends.

        The operating system holds the lock for this process, and drops it however the process
        ends. Of several processes that train together the first one holds it. Whoever only reads
        the run is not kept from it. Where the file system knows no locks, there is none.

        Args:
            resume: Whether the folder has to be there; else it is made, and taken away again if
                nothing came into it.

        Errors: a BlockingIOError where another process trains in the folder.
        """
        place = Path(os.path.realpath(self.path))
        made = [path for path in (place, *place.parents) if not path.exists()]
        if fcntl is None or not leads() or place in _HELD or (resume and made):
            yield
            return
        with suppress(OSError):  # `create` tells what is wrong with it
            place.mkdir(parents=True, exist_ok=True)
        descriptor = _lock(self.path, place / _LOCK)
        if descriptor is None:
            yield
            return
        _HELD[place] = descriptor
        try:
            yield
        finally:
            # A process that was forked meanwhile, as those that load data are, has none to drop.
            if _HELD.pop(place, None) is not None:
                with suppress(OSError):
                    (place / _LOCK).unlink(missing_ok=True)
                os.close(descriptor)
                for path in (self.checkpoint.parent, *made) if made else ():
                    # What has come into a folder stays, and the folder with it.
                    with suppress(OSError):
                        path.rmdir()

    def create(self, *, resume: bool = False) -> None:
        """Make the folder for a new run, or see that there is one to resume.

        Errors: an OSError where it is a file, has a run already, or has none to resume.
        """
        if not leads():
            return
        if self.path.exists() and not self.path.is_dir():
            raise NotADirectoryError(
                f"a run takes a folder, and {self.path} is a file: name another."
            )
        if resume:
            self._check_resumable()
        elif self.config.exists():
            raise self._taken()
        else:
            self.check_untrained()
        files = () if resume else (self.config, self.tokenizer, self.readme)
        folders = (self.checkpoint.parent, *self.checkpoint.parent.parents)
        self._made = [path for path in (*files, *folders) if not path.exists()]
        try:
            self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise type(error)(
                f"{self.path} cannot be made ({error.strerror}): name another folder."
            ) from error
        self._sweep()

    @contextmanager
    def refusable(self) -> Iterator[None]:
        """Take away what `create` and the block have made where the block raises.

        Once training has begun, all is left as it is, to be resumed.
        """
        try:
            yield
        except BaseException:
            if not (self.checkpoint.exists() or self.log.exists()):
                for path in self._made:
                    # What somebody else has put there meanwhile stays, and the folder with it.
                    with suppress(OSError):
                        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
            raise

    def check_untrained(self) -> None:
        """Raise a FileExistsError where training has begun already."""
        if leads() and (self.checkpoint.exists() or self.log.exists()):
            raise self._taken()

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write what the model is, as the last of what stands there before training."""
        self.write_json(self.config, config)

    def read_config(self) -> dict[str, Any]:
        """What the model is.

        Errors: an OSError where the folder is none, or has no run; a ValueError for broken JSON.
        """
        self._check_folder()
        if not self.config.exists():
            raise FileNotFoundError(
                f"{self.path} has no run: there is no {self.config.name} in it; check its name."
            )
        return read_object(self.config, _ANEW)

    def read_metrics(self) -> dict[str, Any]:
        """The figures, as `train` gives them.

        Errors: as of `read_config`, and a FileNotFoundError before the first validation.
        """
        self.read_config()
        self._check_validated(self.metrics)
        return read_object(self.metrics, _ANEW)

    def check_weights(self) -> Path:
        """Where the best model is.

        Errors: as of `read_metrics`.
        """
        self.read_config()
        self._check_validated(self.weights)
        return self.weights

    def write_readme(self, title: str, command: str) -> None:
        """Write what the folder has, and the command that made it."""
        self.write_text(
            self.readme,
            f"# {title}\n\nMade by\n\n    {command}\n\n"
            "and, where that was interrupted, the same command with `--resume`.\n\n"
            "| file | what it has |\n|---|---|\n"
            "| `config.json` | what the model is |\n"
            "| `model.safetensors` | the weights of the best validation |\n"
            "| `tokenizer.json` | what makes tokens of a text |\n"
            "| `metrics.json` | the figures of the best validation and of the last |\n"
            "| `log.csv`, `curve.png` | the learning curve |\n"
            "| `attention.csv`, `alarms.jsonl` | what the heads did, where `--watch` was given |\n"
            "| `checkpoints/last.safetensors` | what resuming needs; to use the model, nothing |\n",
        )

    def write_json(self, file: Path, value: Mapping[str, Any]) -> None:
        """Write JSON; an older file stays as it was until the new one is whole."""
        self.write_text(file, json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def write_text(self, file: Path, text: str) -> None:
        """Write a text; an older file stays as it was until the new one is whole.

        Errors: an OSError where it cannot be written; nothing is left behind.
        """
        self.write_bytes(file, text.encode())

    def write_bytes(self, file: Path, content: bytes) -> None:
        """The same, of bytes."""
        if not leads():
            return
        with _told(file), whole_file(file) as beside:
            beside.write_bytes(content)

    def append(self, file: Path, text: str) -> None:
        """Add to the end of a file, which may be cut off there by whatever kills the process.

        Errors: an OSError where it cannot be written.
        """
        if leads():
            with _told(file):
                # To open a pipe is to wait for whoever reads it.
                if file.exists():
                    check_regular(file)
                with file.open("a", encoding="utf-8", newline="") as opened:
                    opened.write(text)

    def _taken(self) -> FileExistsError:
        return FileExistsError(
            f"{self.path} already has a run: go on with it by --resume, or name another folder."
        )

    def _check_folder(self) -> None:
        if not self.path.exists():
            raise FileNotFoundError(f"there is no folder {self.path}: check its name.")
        if not self.path.is_dir():
            raise NotADirectoryError(
                f"a run is a folder, and {self.path} is a file: name the folder of the run."
            )

    def _check_resumable(self) -> None:
        self._check_folder()
        there = {file.name for file in self.path.iterdir() if not file.name.startswith(".")}
        # Whatever was killed before its config was written has lost nothing by beginning anew.
        if not self.config.exists() and there - _BEFORE - {"checkpoints"}:
            raise FileNotFoundError(
                f"{self.path} has no run to resume: there is no {self.config.name} in it; "
                f"check its name."
            )

    def _check_validated(self, file: Path) -> None:
        if not file.exists():
            raise FileNotFoundError(
                f"the run in {self.path} has no {file.name}, as training has not validated yet: "
                f"go on with --resume."
            )

    def _sweep(self) -> None:
        """Remove what a killed process was writing."""
        for folder in (self.path, self.checkpoint.parent):
            for beside in folder.glob(".*.tmp"):
                beside.unlink(missing_ok=True)


def is_of_huggingface(folder: Path) -> bool:
    """Whether a folder tells of a model that transformers has made, and of no run.

    Errors: as of `read_object`, of its config.json.
    """
    config = folder / "config.json"
    return config.is_file() and bool(
        {"model_type", "architectures"} & set(read_object(config, _OTHER))
    )


@contextmanager
def _told(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise type(error)(
            f"{file} cannot be written ({error.strerror}): make room there, or name another place."
        ) from error


def leads() -> bool:
    """Whether this process is the first of those that train together, which writes and speaks."""
    if "RANK" in os.environ:
        return os.environ["RANK"] == "0"
    return all(os.environ.get(name, "0") == "0" for name in _RANKS)


def _lock(folder: Path, file: Path) -> int | None:
    """The descriptor that holds the lock of a folder; None where there cannot be one."""
    assert fcntl is not None  # noqa: S101 - for the type checker
    while True:
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError:  # `create` tells what cannot be written
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it may have taken the file away since it was opened.
            if os.path.samestat(os.fstat(descriptor), file.stat()):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise BlockingIOError(
                f"another process is training in {folder}: wait until it has ended, and go on by "
                "--resume, or name another folder."
            ) from None
        except FileNotFoundError:
            pass
        except OSError:
            os.close(descriptor)
            return None
        os.close(descriptor)


def _forget_locks() -> None:
    """Close the locks of the process that this one was forked from, which alone holds them."""
    for descriptor in _HELD.values():
        with suppress(OSError):
            os.close(descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)
