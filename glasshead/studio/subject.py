"""Subject of a studio: a run, a model or weights, the text to begin with, and a reading of one."""

import hashlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from jaxtyping import Float, Int
from torch import Tensor

import glasshead as gh
from glasshead.drawing import printable
from glasshead.files import read_regular
from glasshead.message import Message, _
from glasshead.models.pretrained import is_llama2c, llama2c_file
from glasshead.studio.background_jobs import Cache, NotThere, Refusal, Work
from glasshead.tasks.data.reviews import held_out as held_out_reviews
from glasshead.tasks.data.sentences import HELD_OUT
from glasshead.tasks.data.stories import held_out as held_out_stories
from glasshead.tasks.run_folder import RunFolder, is_of_huggingface, reads_pictures
from glasshead.tasks.story_model import FOLDER as STORY_MODEL
from glasshead.watching.layer_record import Call

if TYPE_CHECKING:
    from glasshead.tasks.readers.pictures import PictureReader
    from glasshead.tasks.readers.reader import Reader
    from glasshead.tasks.translate import TextTranslator

Origin = Literal["given", "held_out", "own", "unreadable"]

_STORY = (
    "Once upon a time there was a little girl named Lily. She loved to play outside in the park. "
    "One day she saw a big red ball. She wanted to play with it, but it was too high."
)
# What comes next was said before, where the story model finds it.
_STORY_SO_FAR = "One rainy day Emma took her blue bell to the kitchen. But soon the"
_REVIEW = "The film was not bad at all. I would watch it again, and so would my sister."
# Characters of a text to begin with, of which no view has too many.
_LONGEST_SAMPLE = 400
# Held-out texts among which one with a word is looked for.
_LOOKED_AT = 100


@dataclass(frozen=True)
class Sample:
    """The text that a view begins with.

    Attributes:
        text: The text.
        origin: "given" by the user; "held_out", of the run; "own", the studio's, as a model has no
            data of its own; or "unreadable", the studio's, as the run's data cannot be read.
        why: Why the data cannot be read.
    """

    text: str
    origin: Origin
    why: str = ""


def sample_of(folder: Path, kind: str) -> Sample:
    """Choose the text to begin with.

    Args:
        folder: The folder of a run, or a model.
        kind: The task of the run, or "model".

    >>> sample_of(Path("models/gpt2"), "model").text[:16]
    'Once upon a time'
    """
    if folder == STORY_MODEL:
        return Sample(_STORY_SO_FAR, "given")
    if kind == "model":
        return Sample(_STORY, "own")
    try:
        return Sample(_held_out(folder, kind), "held_out")
    except (OSError, ValueError) as error:
        own = {"translate": HELD_OUT.german, "classify": _REVIEW}.get(kind, _STORY)
        return Sample(own, "unreadable", str(error))


def _held_out(folder: Path, task: str) -> str:
    """Return the beginning of a text that a run has held out.

    Errors: an OSError or ValueError if its files cannot be read, or are not those any more that
    it was trained on.
    """
    job = _job(task)
    data = job.settings.from_run(RunFolder(folder)).data
    if not data.files:
        return _generated(task)
    corpus = job.read(data)
    if corpus.found["sha256"] != data.sha256:
        raise ValueError(
            f"{', '.join(data.files)} must contain the texts that the run was trained on, but "
            "they have changed. Restore the files, or choose another text."
        )
    texts = [one if task == "write" else one[0] for one in islice(corpus.held_out, _LOOKED_AT)]
    is_cut = task == "write" and not data.held_out_files and len(corpus.training) == 1
    return beginning([_from_a_line(text) for text in texts] if is_cut else texts)


def _job(task: str) -> Any:
    if task == "classify":
        from glasshead.tasks.classify import CLASSIFY

        return CLASSIFY
    if task == "translate":
        from glasshead.tasks.translate import TRANSLATE

        return TRANSLATE
    from glasshead.tasks.write import WRITE

    return WRITE


def _generated(task: str) -> str:
    """Return a generated text that no run is trained on."""
    if task == "translate":
        return HELD_OUT.german
    return held_out_reviews(1)[0].text if task == "classify" else held_out_stories(1)[0]


def _from_a_line(text: str) -> str:
    """Drop what remains of a line, or of a word, where a text was cut in two."""
    found = re.search(r"\n\s*", text[:_LONGEST_SAMPLE]) or re.search(r"\s+", text[:_LONGEST_SAMPLE])
    return text if found is None else text[found.end() :]


def beginning(texts: Iterable[str], longest: int = _LONGEST_SAMPLE) -> str:
    """Return the first text with a word, cut after a sentence or a word where it is long.

    Errors: a ValueError if none has a word.

    >>> beginning([" ", "The sun. The moon and the stars."], longest=14)
    'The sun.'
    >>> beginning(["The sun and the moon."], longest=14)
    'The sun and'
    """
    text = next((text.strip() for text in texts if text.strip()), None)
    if text is None:
        raise ValueError("the held-out texts of the run have no word. Choose a text.")
    if len(text) <= longest:
        return text
    for end in (r"(?<=[.!?])\s|(?<=[。！？])", r"\s"):
        ends = [found.start() for found in re.finditer(end, text[: longest + 1])]
        cut = max((at for at in ends if at <= longest), default=0)
        if cut >= longest // 2:
            return text[:cut].rstrip()
    return text[:longest]


Kind = Literal["classify", "translate", "write", "model", "vision", "weights"]
_TASKS: tuple[Kind, ...] = ("classify", "translate", "write")
# What a folder or a file of each kind holds, for sentences.
_HELD: dict[Kind, str] = {
    "classify": _("a classifier"),
    "translate": _("a translation model"),
    "write": _("a language model"),
    "model": _("a model without its training"),
    "vision": _("a vision model"),
    "weights": _("stored weights alone"),
}
# Why a view cannot be had here.
_NO_TRANSLATOR = _(
    "an alignment needs a translation model, got {here}. Start the studio with the folder of one."
)
_NO_MODEL = _(
    "a text needs a model that reads it, got {here}. Start the studio with the folder of one."
)
_NO_WEIGHTS = _(
    "a map without a text needs stored weights, got {here}. Start the studio with a file of them."
)
_NO_VISION = _(
    "a picture needs a vision model, got {here}. Start the studio with the folder of one."
)
_NO_RUN = _("a learning curve needs a run, got {here}. Start the studio with the folder of one.")
_MODEL_FILES = ("config.json", "preprocessor_config.json")
_WEIGHTS = (".safetensors", ".bin")
# The name, the time of the last change in nanoseconds, and the bytes of each file of a model.
_State = tuple[tuple[str, int, int], ...]
_T = TypeVar("_T")


class StudioSubject:
    """A run, a model or a file of weights on disk, or nothing.

    The folder is listed on each access, so that one that vanishes is reported, and one that
    changed is read again.

    Args:
        folder: A run folder, a Hugging Face or llama2.c model folder, llama2.c's file of a model
            (.bin) in it, or a file written by `Weights.save`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._open: dict[str, tuple[str, object]] = {}
        self._kind: tuple[_State, Kind | None] | None = None

    @property
    def name(self) -> str | None:
        """The path as printable text."""
        return None if self.folder is None else printable(str(self.folder))

    @property
    def label(self) -> str | None:
        """The last part of the path, as printable text."""
        return None if self.folder is None else printable(self.folder.resolve().name or "/")

    @property
    def is_file(self) -> bool:
        """Whether the path names a file of stored weights, existing or not."""
        folder = self.folder
        return folder is not None and folder.suffix == ".safetensors" and not folder.is_dir()

    @property
    def kind(self) -> Kind | None:
        """The kind of subject: a task, "model" or "weights"; None if there is no folder.

        Errors: an OSError or ValueError in one sentence if the folder holds none of these.
        """
        state = self._state()
        if self._kind is None or self._kind[0] != state:
            self._kind = state, self._read_kind()
        return self._kind[1]

    def _read_kind(self) -> Kind | None:
        if self.folder is None:
            return None
        if self.is_file:
            if not self.folder.is_file():
                raise NotThere("{name} does not exist. Check the name.", name=self.name)
            return "weights"
        if self.folder.suffix == ".bin" and self.folder.is_file():
            if is_llama2c(self.folder):
                return "model"
            raise NotThere(
                "{name} must be a model of llama2.c, in its first format. Name another file, or "
                "the folder of a run or a model.",
                name=self.name,
            )
        if not self.folder.is_dir():
            raise NotThere(
                "{name} is not a folder. Name one of a run, or of a Hugging Face or llama2.c "
                "model.",
                name=self.name,
            )
        if reads_pictures(self.folder):
            return "vision"
        if is_of_huggingface(self.folder) or llama2c_file(self.folder) is not None:
            return "model"
        task = RunFolder(self.folder).read_config().get("task")
        if task not in _TASKS:
            raise NotThere(
                "{name} must have a run of {tasks}, got one of {task}. Name another.",
                name=self.name,
                tasks=", ".join(_TASKS),
                task=printable(str(task)),
            )
        return task

    @property
    def version(self) -> str:
        """A hash that changes when the config, the tokenizer or the weights are rewritten.

        Errors: as of `kind`.
        """
        state = self._state() if self.kind is not None else ()
        return hashlib.sha256(repr(state).encode()).hexdigest()[:16]

    def reader(self) -> "Reader":
        """Load the model for reading texts.

        Errors: an OSError or ValueError in one sentence if it cannot be loaded.
        """
        from glasshead.tasks.readers.open_reader import open_any_reader

        return self._opened("reader", open_any_reader)

    def translator(self) -> "TextTranslator":
        """Load the translator.

        Errors: an OSError or ValueError in one sentence if it cannot be loaded.
        """
        if (kind := self.kind) != "translate":
            raise self._without(_NO_TRANSLATOR, kind)
        from glasshead.tasks.translate import TextTranslator

        return self._opened("translator", TextTranslator.load)

    def pictures(self) -> "PictureReader":
        """Load the vision model.

        Errors: an OSError or ValueError in one sentence if it cannot be loaded.
        """
        if (kind := self.kind) != "vision":
            raise self._without(_NO_VISION, kind)
        from glasshead.tasks.readers.pictures import reader_of_pictures

        return self._opened("pictures", reader_of_pictures)

    def sample(self) -> Sample:
        """Return the text that a view of the model begins with.

        Errors: as of `kind`, and a `NotThere` if there is no model.
        """
        return self._opened("sample", lambda folder: sample_of(folder, str(self.kind)))

    def weights(self) -> gh.Weights:
        """Load the stored weights.

        Errors: an OSError or ValueError in one sentence if they cannot be loaded.
        """
        return self._opened("weights", gh.Weights.load)

    def _opened(self, what: str, load: Callable[[Path], _T]) -> _T:
        """Return the loaded object, reloading it where the files have changed since."""
        with self._lock:
            kind = self.kind
            own = {"weights": "weights", "vision": "pictures"}.get(str(kind))
            if self.folder is None or (own is not None and what != own):
                raise self._without(_NO_MODEL, kind)
            if kind != "weights" and what == "weights":
                raise self._without(_NO_WEIGHTS, kind)
            version, loaded = self.version, self._open.get(what)
            if loaded is None or loaded[0] != version:
                loaded = self._open[what] = (version, load(self.folder))
            return loaded[1]  # type: ignore[return-value] - the type that `load` returns

    def check_run(self) -> None:
        """Check that there is no model alone, or weights, in place of a training run.

        Errors: a `NotThere` if there is.
        """
        try:
            kind = self.kind
        except (OSError, ValueError):  # the log of the run says what is missing
            return
        if kind not in _TASKS:
            raise self._without(_NO_RUN, kind)

    def _without(self, sentence: str, kind: Kind | None) -> NotThere:
        here = Message("no model")
        if kind is not None:
            here = Message("{held} in {name}", name=self.name, held=Message(_HELD[kind]))
        return NotThere(sentence, here=here)

    def _state(self) -> _State:
        """Return the name, time and size of each file from which the kind and version follow."""
        if self.folder is None:
            return ()
        try:
            if self.is_file:
                return (_dated(self.folder.name, self.folder.stat()),)
            # The tokenizer of llama2.c lies next to the file of the model.
            place = self.folder if self.folder.is_dir() else self.folder.parent
            with os.scandir(place) as entries:
                files = [each for each in entries if _is_of_model(each.name) and each.is_file()]
                return tuple(sorted(_dated(each.name, each.stat()) for each in files))
        except OSError:  # `_read_kind` states what is missing
            return ()


def _is_of_model(name: str) -> bool:
    """Return whether a file, by its name, belongs to a model; logs of a training do not."""
    return name in _MODEL_FILES or name.endswith(_WEIGHTS) or "token" in name or "vocab" in name


def _dated(name: str, state: os.stat_result) -> tuple[str, int, int]:
    return name, state.st_mtime_ns, state.st_size


# Characters of a token that are shown, and bytes of the largest file that is read.
_LONGEST = 64
_LARGEST = 2**23


def stored_tokens(weights: Path, keys: int) -> tuple[tuple[str, ...], str | None]:
    """Read the tokens in `weights.tokens.json` beside `weights.safetensors`, one per key.

    Args:
        weights: The file of weights.
        keys: Number of keys of the weights.

    Returns:
        The tokens, long ones truncated, and an error message, None if there is no such file.
    """
    file = weights.with_suffix(".tokens.json")
    try:
        state = file.stat()
    except OSError:
        return (), None
    return _tokens(file, keys, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=2)
def _tokens(file: Path, keys: int, size: int, _modified: int) -> tuple[tuple[str, ...], str | None]:
    try:
        found = json.loads(read_regular(file).decode()) if size <= _LARGEST else None
    except (ValueError, RecursionError):
        held = "broken JSON"
    except OSError as error:
        held = error.strerror
    else:
        if not isinstance(found, list) or not all(isinstance(token, str) for token in found):
            held = "something else" if size <= _LARGEST else f"{size:,} bytes"
        elif len(found) != keys:
            held = f"{len(found):,}"
        else:
            return tuple(token[:_LONGEST] for token in found), None
    return (), (
        f"{printable(file.name)} must be a JSON list of {keys:,} strings, one per key, got "
        f"{held}. Fix or remove it; until then, numbers stand for the tokens."
    )


@dataclass(frozen=True, eq=False)
class ModelPass:
    """One forward pass over a text, with the attention of each layer.

    Attributes:
        tokens: The token ids that were read.
        words: Their text.
        of: Tokens of the whole text; more than were read where it was truncated.
        seen: Layers by name, in execution order, with one call each; `weights` and the
            requested statistics are `[1, heads, …]`.
        size: Bytes of memory.
    """

    tokens: Int[Tensor, " length"]
    words: tuple[str, ...]
    of: int
    seen: gh.Seen
    size: int
    _derived: Cache[Any] = field(default_factory=lambda: Cache(sys.maxsize), repr=False)

    def once(self, name: str, make: Callable[[], _T], work: Work | None = None) -> _T:
        """Return a derived result, computed on first use; small, as `size` excludes it.

        Args:
            name: Its name.
            make: Computes it, for all requests that ask for it at the same time.
            work: Receives the progress of another request that computes it.
        """
        return self._derived.get(name, make, work and work.follow, work)

    @property
    def length(self) -> int:
        """Number of tokens that were read."""
        return len(self.words)

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers."""
        return tuple(self.seen)

    @cached_property
    def heads(self) -> tuple[int, ...]:
        """Number of heads of each layer."""
        return tuple(self.call(layer).shape[-2] for layer in range(len(self.layers)))

    def call(self, layer: int) -> Call:
        """Return the captured call of a layer, counted from 0.

        Errors: a `Refusal` if there is no such layer.
        """
        check_place("layer", layer, len(self.layers))
        return self.seen[self.layers[layer]][0]

    def weights(self, layer: int) -> gh.Weights:
        """Return the lazy weights of all heads of a layer, `[1, heads, length, length]`.

        Errors: a `Refusal` if there is no such layer.
        """
        return self.call(layer).weights  # type: ignore[return-value] - they are always kept

    def head(self, layer: int, head: int) -> gh.Weights:
        """Return the lazy weights of one head, `[length, length]`.

        Errors: a `Refusal` if there is no such layer or head.
        """
        return self.weights(layer).head(*self._index(layer, head))

    def statistic(self, layer: int, head: int, name: str) -> Float[Tensor, "..."]:
        """Return a requested statistic of one head, such as "entropy".

        Errors: a `Refusal` if there is no such layer or head.
        """
        return self.call(layer)[name][self._index(layer, head)]

    def _index(self, layer: int, head: int) -> tuple[int, ...]:
        *texts, heads = self.call(layer).shape[:-1]
        check_place("head", head, heads)
        return (*(0 for _ in texts), head)


def check_place(what: str, number: int, count: int) -> None:
    """Check a layer or head index, counted from 0, against the number of them.

    Errors: a `Refusal` if it is out of range.
    """
    if not 0 <= number < count:
        raise Refusal(
            "{what} must be from 0 to {most}, got {number}.",
            what=Message(what),
            most=count - 1,
            number=number,
        )
