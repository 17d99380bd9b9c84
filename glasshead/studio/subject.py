"""Subject: the run, model or weights that a studio shows, opened when they are first needed."""

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from glasshead.drawing import printable
from glasshead.studio.work import NotThere
from glasshead.tasks.run_folder import RunFolder, is_of_huggingface

if TYPE_CHECKING:
    from glasshead import Weights
    from glasshead.tasks.readers.base import Reader
    from glasshead.tasks.translate import TextTranslator

Kind = Literal["classify", "translate", "write", "model", "weights"]
_TASKS: tuple[Kind, ...] = ("classify", "translate", "write")
# What a model is made of; the journal of a training is written all the time, and is none of it.
_HELD = ("config.json", "tokenizer.json", "tokenizer_config.json")
_WEIGHTS = (".safetensors", ".bin")
_T = TypeVar("_T")


class StudioSubject:
    """What a folder holds; nothing, where there is none.

    It is asked anew each time, so that a folder that vanishes is told of, and one that is back is
    read again.

    Args:
        folder: Of a run, or of a model of Hugging Face or llama2.c; or a file that `Weights.save`
            has written.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._open: dict[str, tuple[str, object]] = {}

    @property
    def name(self) -> str | None:
        """The folder, as the page shows it."""
        return None if self.folder is None else printable(str(self.folder))

    @property
    def is_file(self) -> bool:
        """Whether it is named as a file of weights, there or not."""
        folder = self.folder
        return folder is not None and folder.suffix == ".safetensors" and not folder.is_dir()

    @property
    def kind(self) -> Kind | None:
        """What it is; None where there is no folder.

        Errors: an OSError or ValueError in one sentence where the folder is none of them.
        """
        if self.folder is None:
            return None
        if self.is_file:
            if not self.folder.is_file():
                raise NotThere(f"{self.name} is not there: check its name.")
            return "weights"
        if not self.folder.is_dir():
            raise NotThere(
                f"{self.name} is no folder: name one of a run, or of a model of Hugging Face."
            )
        if is_of_huggingface(self.folder) or _is_of_llama2c(self.folder):
            return "model"
        task = RunFolder(self.folder).read_config().get("task")
        if task not in _TASKS:
            raise NotThere(
                f"{self.name} is to hold a run of {', '.join(_TASKS)}, and holds one of "
                f"{printable(str(task))}: name another."
            )
        return task

    @property
    def version(self) -> str:
        """Another one as soon as the config, the tokenizer or the weights were written anew.

        Errors: as of `kind`.
        """
        told = hashlib.sha256()
        for file in self._held():
            state = file.stat()
            told.update(f"{file.name} {state.st_mtime_ns} {state.st_size}\n".encode())
        return told.hexdigest()[:16]

    def reader(self) -> "Reader":
        """The model, as what reads tokens.

        Errors: an OSError or ValueError in one sentence where it cannot be loaded.
        """
        from glasshead.tasks.readers.open_reader import open_any_reader

        return self._opened("reader", open_any_reader)

    def translator(self) -> "TextTranslator":
        """The translator.

        Errors: an OSError or ValueError in one sentence where it cannot be loaded.
        """
        if self.kind != "translate":
            raise NotThere("there is no translator here: start the studio with a run of one.")
        from glasshead.tasks.translate import TextTranslator

        return self._opened("translator", TextTranslator.load)

    def weights(self) -> "Weights":
        """The stored weights.

        Errors: an OSError or ValueError in one sentence where they cannot be loaded.
        """
        from glasshead import Weights

        return self._opened("weights", Weights.load)

    def _opened(self, what: str, load: Callable[[Path], _T]) -> _T:
        """What was loaded, loaded again where its folder was written to since."""
        with self._lock:
            if self.folder is None:
                raise NotThere("there is no model here: start the studio with the folder of one.")
            if (self.kind == "weights") != (what == "weights"):
                raise NotThere(f"{self.name} holds no such thing: start the studio with another.")
            version, known = self.version, self._open.get(what)
            if known is None or known[0] != version:
                known = self._open[what] = (version, load(self.folder))
            return known[1]  # type: ignore[return-value] - what load gives

    def _held(self) -> list[Path]:
        """The files that it is made of."""
        kind = self.kind
        if self.folder is None or kind is None:
            return []
        if kind == "weights":
            return [self.folder]
        names = (file.name for file in self.folder.iterdir())
        return sorted(
            self.folder / name for name in names if name in _HELD or name.endswith(_WEIGHTS)
        )


def _is_of_llama2c(folder: Path) -> bool:
    if (folder / "config.json").exists():
        return False
    from glasshead.tasks.write.writer import llama2c_file

    return llama2c_file(folder) is not None
