"""Run folders: the files of a training run, for using the model and for resuming training."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # there is none on Windows
    fcntl = None

from glasshead.extras import require
from glasshead.files import check_regular, read_object, whole_file
from glasshead.message import Message

VALIDATION = "validation_"
"""Prefix of the names of validation metrics in log.csv."""

# Files that precede `config.json`, whose presence makes a folder a run.
_BEFORE = {"README.md", "tokenizer.json"}
# Advice of errors where a file of a run is malformed, and where the folder may be no run.
_AGAIN, _OTHER = "train again", "name another folder"
_LOCK = ".lock"
# Environment variables with the rank of a process; rank 0 has 0, or none is set.
_RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")
# File descriptors of the locks that this process holds, by folder.
_HELD: dict[Path, int] = {}


class RunFolder:
    """The files of a training run, each written atomically.

    Args:
        path: The folder, which need not exist.

    In distributed training only rank 0 writes.

    >>> run = RunFolder("runs/first")
    >>> run.config.name, run.weights.name, run.checkpoint.name
    ('config.json', 'model.safetensors', 'last.safetensors')
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        # Paths that did not exist before `create`, the deepest first.
        self._made: list[Path] = []

    @property
    def config(self) -> Path:
        """The settings and the model's config; its presence makes the folder a run."""
        return self.path / "config.json"

    @property
    def weights(self) -> Path:
        """The weights of the best model so far."""
        return self.path / "model.safetensors"

    @property
    def tokenizer(self) -> Path:
        """The tokenizer."""
        return self.path / "tokenizer.json"

    @property
    def metrics(self) -> Path:
        """The metrics of the best model and of the last validation."""
        return self.path / "metrics.json"

    @property
    def readme(self) -> Path:
        """The README with the command that started the run."""
        return self.path / "README.md"

    @property
    def log(self) -> Path:
        """The learning curve as CSV."""
        return self.path / "log.csv"

    @property
    def curve(self) -> Path:
        """The learning curve as PNG."""
        return self.path / "curve.png"

    @property
    def attention(self) -> Path:
        """Statistics of the heads during training as CSV, where the run was watched."""
        return self.path / "attention.csv"

    @property
    def alarms(self) -> Path:
        """The alarms raised, one JSON object per line."""
        return self.path / "alarms.jsonl"

    @property
    def failure(self) -> Path:
        """Why training diverged, where it did."""
        return self.path / "failure.json"

    @property
    def checkpoint(self) -> Path:
        """The checkpoint for resuming."""
        return self.path / "checkpoints" / "last.safetensors"

    @property
    def previous_checkpoint(self) -> Path:
        """The checkpoint before it, for a damaged one."""
        return self.checkpoint.with_name("previous.safetensors")

    def keep_checkpoint(self) -> None:
        """Keep the checkpoint as the previous one, before it is replaced.

        Errors: an OSError if that cannot be written.
        """
        if not self.checkpoint.exists():
            return
        with whole_file(self.previous_checkpoint) as temporary:
            temporary.unlink()
            try:
                temporary.hardlink_to(self.checkpoint)
            except OSError:
                # The file system has no hard links.
                shutil.copyfile(self.checkpoint, temporary)

    @contextmanager
    def locked(self, *, resume: bool = False) -> Iterator[None]:
        """Lock the folder against training by other processes while the block runs.

        The lock is advisory (`flock`) and released by the operating system however the process
        ends. In distributed training rank 0 holds it. Reading the run is not blocked. On file
        systems without locks, none is taken.

        Args:
            resume: Whether the folder has to exist; else it is created, and removed again if it
                stays empty.

        Errors: a BlockingIOError if another process trains in the folder.
        """
        place = Path(os.path.realpath(self.path))
        made = [path for path in (place, *place.parents) if not path.exists()]
        if fcntl is None or not leads() or place in _HELD or (resume and made):
            yield
            return
        with suppress(OSError):  # reported by `create`
            place.mkdir(parents=True, exist_ok=True)
        descriptor = _lock(self.path, place / _LOCK)
        if descriptor is None:
            yield
            return
        _HELD[place] = descriptor
        try:
            yield
        finally:
            # A process forked meanwhile, as data loaders are, has none to release.
            if _HELD.pop(place, None) is not None:
                with suppress(OSError):
                    (place / _LOCK).unlink(missing_ok=True)
                os.close(descriptor)
                for path in (self.checkpoint.parent, *made) if made else ():
                    # A folder that is not empty stays.
                    with suppress(OSError):
                        path.rmdir()

    def create(self, *, resume: bool = False) -> None:
        """Create the folder of a new run, or check that there is a run to resume.

        Errors: an OSError if the path is a file, has a run already, or has none to resume.
        """
        if not leads():
            return
        if self.path.exists() and not self.path.is_dir():
            raise NotADirectoryError(
                f"a run must be a folder, got the file {self.path}. Name another."
            )
        if resume:
            self._check_resumable()
        elif self.config.exists():
            raise self._taken()
        else:
            self.check_untrained()
        logs = (self.log, self.attention, self.alarms)
        files = () if resume else (self.config, self.tokenizer, self.readme, *logs)
        folders = (self.checkpoint.parent, *self.checkpoint.parent.parents)
        self._made = [path for path in (*files, *folders) if not path.exists()]
        try:
            self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise type(error)(
                f"{self.path} cannot be created ({error.strerror}). Name another folder."
            ) from error
        self._sweep()

    @contextmanager
    def refusable(self) -> Iterator[None]:
        """Remove what `create` and the block have made if the block raises.

        Once training has begun, everything stays, to be resumed, or to see why training diverged;
        but where another ValueError ends it before the first checkpoint, it would end so again.
        """
        try:
            yield
        except BaseException as error:
            begun = self.log.exists() and not isinstance(error, ValueError)
            begun |= self.failure.exists()
            if not (begun or self.checkpoint.exists() or self.weights.exists()):
                for path in self._made:
                    # A folder with other files stays.
                    with suppress(OSError):
                        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
            raise

    def check_untrained(self) -> None:
        """Check that training has not begun.

        Errors: a FileExistsError if there is a checkpoint or a log.
        """
        if leads() and (self.checkpoint.exists() or self.log.exists()):
            raise self._taken()

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write config.json, the last file before training."""
        self.write_json(self.config, config)

    def read_config(self) -> dict[str, Any]:
        """Read config.json.

        Errors: an OSError if there is no folder or no run; a ValueError for malformed JSON.
        """
        self._check_folder()
        if not self.config.exists():
            raise FileNotFoundError(
                Message(
                    "{path} has no run: there is no {file} in it. Check its name.",
                    path=self.path,
                    file=self.config.name,
                )
            )
        return read_object(self.config, _AGAIN)

    def read_metrics(self) -> dict[str, Any]:
        """Read metrics.json, as returned by `train`.

        Errors: as of `read_config`, and a FileNotFoundError before the first validation.
        """
        self.read_config()
        self._check_validated(self.metrics)
        return read_object(self.metrics, _AGAIN)

    def read_failure(self) -> dict[str, Any]:
        """Read why training diverged: its `step` and the `error`; {} if it did not.

        Errors: a ValueError for malformed JSON.
        """
        if not self.failure.exists():
            return {}
        found = {"step": 0, "error": ""} | read_object(self.failure, _AGAIN)
        return {"step": found["step"], "error": str(found["error"])}

    def check_weights(self) -> Path:
        """Return the path of the best model's weights.

        Errors: as of `read_metrics`.
        """
        self.read_config()
        self._check_validated(self.weights)
        return self.weights

    def write_readme(self, title: str, command: str, lang: str = "en") -> None:
        """Write a README that lists the files and the command that started the run.

        Args:
            title: Its title, translated where there is a translation.
            command: The command.
            lang: Its language.

        Errors: as of `write_text`, and a ValueError if there is no such language.
        """
        from glasshead.explanation.translations import Say

        say = Say(lang)
        files = {
            "`config.json`": say("model configuration"),
            "`model.safetensors`": say("weights of the best validation"),
            "`tokenizer.json`": say("tokenizer"),
            "`metrics.json`": say("metrics of the best and the last validation"),
            "`log.csv`, `curve.png`": say("learning curve"),
            "`attention.csv`, `alarms.jsonl`": say(
                "statistics of the heads, if `--watch` was given"
            ),
            "`checkpoints/last.safetensors`": say(
                "needed to resume training, not to use the model"
            ),
        }
        rows = "".join(f"| {file} | {what} |\n" for file, what in files.items())
        made_by = say("Made by")
        resumed = say("and, if it was interrupted, the same command with `--resume`.")
        file, has = say("file"), say("content")
        text = f"# {say.translated(title)}\n\n{made_by}\n\n    {command}\n\n{resumed}\n\n"
        self.write_text(self.readme, f"{text}| {file} | {has} |\n|---|---|\n{rows}")

    def write_json(self, file: Path, value: Mapping[str, Any]) -> None:
        """Write JSON, replacing an older file atomically."""
        self.write_text(file, json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def write_text(self, file: Path, text: str) -> None:
        """Write a text, replacing an older file atomically.

        Errors: an OSError if it cannot be written; nothing is left behind.
        """
        self.write_bytes(file, text.encode())

    def write_bytes(self, file: Path, content: bytes) -> None:
        """Write bytes, replacing an older file atomically."""
        if not leads():
            return
        with _write_errors(file), whole_file(file) as temporary:
            temporary.write_bytes(content)

    def append(self, file: Path, text: str) -> None:
        """Append to a file; a killed process may leave the last line incomplete.

        Errors: an OSError if it cannot be written.
        """
        if leads():
            with _write_errors(file):
                # Opening a pipe would block.
                if file.exists():
                    check_regular(file)
                with file.open("a", encoding="utf-8", newline="") as opened:
                    opened.write(text)

    def _taken(self) -> FileExistsError:
        if self.failure.exists():
            return FileExistsError(
                Message(
                    "{path} has the logs of a run that failed. Name another folder.",
                    path=self.path,
                )
            )
        return FileExistsError(
            Message(
                "{path} already has a run. Resume it with --resume, or name another folder.",
                path=self.path,
            )
        )

    def _check_folder(self) -> None:
        if not self.path.exists():
            raise FileNotFoundError(
                Message("there is no folder {path}. Check its name.", path=self.path)
            )
        if not self.path.is_dir():
            raise NotADirectoryError(
                Message(
                    "a run must be a folder, got the file {path}. Name the folder of the run.",
                    path=self.path,
                )
            )

    def _check_resumable(self) -> None:
        self._check_folder()
        there = {file.name for file in self.path.iterdir() if not file.name.startswith(".")}
        # A run killed before its config was written has nothing to resume, and starts again.
        if not self.config.exists() and there - _BEFORE - {"checkpoints"}:
            raise FileNotFoundError(
                Message(
                    "{path} has no run to resume: there is no {file} in it. Check its name.",
                    path=self.path,
                    file=self.config.name,
                )
            )

    def _check_validated(self, file: Path) -> None:
        if not file.exists():
            if self.failure.exists():
                raise FileNotFoundError(
                    Message(
                        "the run in {path} has no {file}, as training failed before it validated. "
                        "Train again in another folder.",
                        path=self.path,
                        file=file.name,
                    )
                )
            raise FileNotFoundError(
                Message(
                    "the run in {path} has no {file}, as training has not validated yet. Continue "
                    "with --resume.",
                    path=self.path,
                    file=file.name,
                )
            )

    def _sweep(self) -> None:
        """Remove temporary files of a killed process."""
        for folder in (self.path, self.checkpoint.parent):
            for temporary in folder.glob(".*.tmp"):
                temporary.unlink(missing_ok=True)


def is_of_huggingface(folder: Path) -> bool:
    """Return whether a folder holds a model saved by transformers, and no run.

    Errors: as of `read_object` for its config.json.
    """
    config = folder / "config.json"
    return config.is_file() and bool(
        {"model_type", "architectures"} & set(read_object(config, _OTHER))
    )


def reads_pictures(folder: Path) -> bool:
    """Return whether a folder holds a vision model of Hugging Face, which reads no text.

    Errors: as of `read_object` for its config.json.
    """
    file = folder / "config.json"
    if not file.is_file() or any(folder.glob("*token*")) or any(folder.glob("*vocab*")):
        return False
    config = read_object(file, "a file of transformers")
    return "patch_size" in config and bool({"model_type", "architectures"} & set(config))


def require_for_model(folder: Path, what: str, *libraries: str) -> None:
    """Check that the libraries which open the model in a folder are installed.

    Args:
        folder: Of a run, or of a model of Hugging Face or llama2.c.
        what: What opens it.
        libraries: What is needed besides.

    Errors: a MissingLibraryError that names them; as of `is_of_huggingface`.
    """
    require(what, "transformers" if is_of_huggingface(folder) else "tokenizers", *libraries)


@contextmanager
def _write_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise type(error)(
            f"{file} cannot be written ({error.strerror}). Make room there, or name another place."
        ) from error


def leads() -> bool:
    """Return whether this process has rank 0, the one that writes and prints."""
    if "RANK" in os.environ:
        return os.environ["RANK"] == "0"
    return all(os.environ.get(name, "0") == "0" for name in _RANKS)


def _lock(folder: Path, file: Path) -> int | None:
    """Acquire a folder's lock and return its file descriptor, or None where locks do not work."""
    if fcntl is None:
        return None
    while True:
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError:  # reported by `create`
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder may have removed the file since it was opened.
            if os.path.samestat(os.fstat(descriptor), file.stat()):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise BlockingIOError(
                Message(
                    "another process is training in {folder}. Wait until it has ended and use "
                    "--resume, or name another folder.",
                    folder=folder,
                )
            ) from None
        except FileNotFoundError:
            pass
        except OSError:
            os.close(descriptor)
            return None
        os.close(descriptor)


def _forget_locks() -> None:
    """Close the inherited lock descriptors in a forked process; the parent keeps the locks."""
    for descriptor in _HELD.values():
        with suppress(OSError):
            os.close(descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)
