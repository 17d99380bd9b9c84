"""Jobs: start, resume and load the training runs of a task."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import nn

from glasshead.message import Message
from glasshead.models.config import TransformerConfig
from glasshead.models.saving import check_fits, read_weights
from glasshead.tasks.run_folder import RunFolder, leads
from glasshead.tasks.run_settings import RunSettings, absolute
from glasshead.tasks.tokenizers.tokenizer import Tokenizer
from glasshead.tasks.tokenizers.train_tokenizer import train_bpe, train_wordpiece, words
from glasshead.tasks.tokenizers.words_and_letters import without_spaces
from glasshead.tasks.training import Hardware, train
from glasshead.tasks.training.task import ExampleSource, Task

_MAKE: dict[str, Callable[..., Tokenizer]] = {
    "bpe": train_bpe,
    "wordpiece": train_wordpiece,
    "words": words,
}


def made_tokenizer(
    kind: str,
    texts: Iterable[str],
    vocabulary: int,
    *,
    lowercase: bool = False,
    composed: bool = False,
) -> Tokenizer:
    """Train a tokenizer on texts.

    Args:
        kind: "bpe", "wordpiece" or "words".
        texts: Training texts.
        vocabulary: Maximum vocabulary size.
        lowercase: Whether texts are lowercased.
        composed: As of `train_bpe`; words and their pieces are always composed.

    Errors: a ValueError if there is no text, or the vocabulary is too small.

    >>> made_tokenizer("words", ["The sun and the sea"], 7).vocab_size
    7
    """
    options = {"lowercase": lowercase}
    if kind == "bpe":
        options["composed"] = composed
    try:
        return _MAKE[kind](texts, vocabulary, **options)
    except ValueError as error:
        # Use the name of the setting.
        raise ValueError(str(error).replace("vocab_size", "vocabulary")) from error


# A word in so many that training has not seen is better read in pieces.
_UNKNOWN_SHARE = 0.05
# So are words whose stems, the first letters, have many forms: Turkish, Finnish.
_STEM, _FORMS = 5, 3
# One text of so many shows how many words of other texts are unknown, if there are at least so
# many; more than the last number of them take long, and show no more.
_ONE_IN, _LEAST, _ENOUGH = 10, 100, 2000
# A smaller vocabulary has hardly any pieces beside the bytes.
_LEAST_PIECES, _LEAST_OF_BPE = 512, 260
# With more pieces most words would be whole again, and their forms would share none.
_WORDS_OF_A_PIECE = 8
_ALL_WORDS = 2**20


@dataclass(frozen=True)
class TokenizerChoice:
    """A kind of tokenizer with its vocabulary, and why it was chosen, or "".

    Attributes:
        kind, vocabulary: As of `made_tokenizer`.
        why: The reason.
    """

    kind: str
    vocabulary: int
    why: str = ""


def chosen_tokenizer(texts: Sequence[str], vocabulary: int, *, lowercase: bool) -> TokenizerChoice:
    """Choose words, or pieces of words (BPE), by the texts.

    Args: as of `made_tokenizer`.

    >>> chosen_tokenizer(["这部电影很好看"] * 7, 1000, lowercase=True).why
    'each letter is a word, as Chinese has no spaces'
    """
    if script := without_spaces(texts):
        why = Message("each letter is a word, as {script} has no spaces", script=script)
        return TokenizerChoice("words", vocabulary, why)
    if len(texts) < _LEAST or vocabulary < _LEAST_PIECES:
        why = Message("there are few texts, or a small vocabulary")
        return TokenizerChoice("words", vocabulary, why)
    texts = texts[:: max(1, len(texts) // _ENOUGH)]
    others = [text for place, text in enumerate(texts) if place % _ONE_IN]
    # Its words are sorted by how often they occur.
    every = made_tokenizer("words", others, _ALL_WORDS, lowercase=lowercase)
    found = [token for tokens in every.encode_batch(texts[::_ONE_IN]) for token in tokens]
    unknown = sum(token == every.unknown_id or token >= vocabulary for token in found)
    share = unknown / max(1, len(found))
    long = [word for word in every.inner.get_vocab() if len(word) > _STEM]
    forms = len(long) / max(1, len({word[:_STEM] for word in long}))
    why = Message("{share:.1%} of the words of another text would be unknown", share=share)
    if forms > _FORMS:
        why = Message(
            "{forms:.0f} words have the same first {count} letters on average",
            forms=forms,
            count=_STEM,
        )
    elif share <= _UNKNOWN_SHARE:
        return TokenizerChoice("words", vocabulary, why)
    pieces = _LEAST_OF_BPE + every.vocab_size // _WORDS_OF_A_PIECE
    return TokenizerChoice("bpe", min(vocabulary, pieces), why)


S = TypeVar("S", bound=RunSettings)


class TaskExamples(Protocol):
    """Examples read from files or generated."""

    @property
    def found(self) -> dict[str, Any]:
        """Facts about the data that a run records, with `sha256`."""
        ...


@dataclass(frozen=True, eq=False)
class Prepared(Generic[S]):
    """A run that is ready to train.

    Attributes:
        settings: Settings of the run.
        config: Config of the model.
        task: The objective with the untrained model.
        source: Training examples.
        held_out: Validation examples.
        about: A sentence on the number of examples.
    """

    settings: S
    config: TransformerConfig
    task: Task
    source: ExampleSource
    held_out: ExampleSource
    about: str

    def train(
        self,
        folder: RunFolder,
        hardware: Hardware,
        *,
        resume: bool = False,
        watch: bool = False,
        lang: str = "en",
    ) -> dict[str, Any]:
        """Train to the end and return the metrics of the best and of the last validation.

        Errors: as of `train`; where it raises before the first step, or a ValueError before the
        first checkpoint, a new folder is removed again.
        """
        with folder.refusable():
            return train(
                self.task,
                self.source,
                self.held_out,
                self.settings.training,
                folder,
                hardware=hardware,
                resume=resume,
                watch=watch,
                lang=lang,
            )


@dataclass(frozen=True, eq=False)
class Job(Generic[S]):
    """The functions by which a task builds a run from its settings, in the order of their use.

    Attributes:
        title: Title of the run's README.
        settings: Class of the settings.
        read: Reads the examples.
        make_tokenizer: Trains the tokenizer of a new run.
        prepare: Builds the model and the batches.
        model: Class of the model.
    """

    title: str
    settings: type[S]
    read: Callable[[Any], Any]
    make_tokenizer: Callable[[Any, Any], Tokenizer]
    prepare: Callable[[S, Any, Tokenizer], Prepared[S]]
    model: Callable[[Any], nn.Module]

    def begin(self, settings: S, folder: RunFolder, command: str, lang: str = "en") -> Prepared[S]:
        """Start a new run: read examples, train the tokenizer, and write the folder's config.

        The README of the folder names `command`, in the language `lang`.

        Errors: an OSError or ValueError if the folder has a run, a file cannot be read, or there
        are too few examples or too little memory. Then no new folder is left behind.
        """
        settings.check_memory()
        with folder.refusable():
            folder.create()
            examples: TaskExamples = self.read(settings.data)
            tokenizer = self.make_tokenizer(settings.data, examples)
            data = dataclasses.replace(settings.data, **examples.found)
            prepared = self._prepared(dataclasses.replace(settings, data=data), examples, tokenizer)
            if leads():
                tokenizer.save(folder.tokenizer)
            folder.write_readme(self.title, command, lang)
            folder.write_config(prepared.settings.to_json(prepared.config))
            return prepared

    def go_on(
        self,
        folder: RunFolder,
        preset: str | None = None,
        assignments: Iterable[str] = (),
        files: Iterable[str] = (),
        held_out_files: Iterable[str] = (),
    ) -> Prepared[S]:
        """Resume a run with the settings of its folder and the same examples.

        Args:
            folder: The run folder.
            preset, assignments, files, held_out_files: As at the start of the run, if given again;
                only the length of training and the intervals of validating, saving and logging
                may differ, and where files with the same content are.

        Errors: an OSError or ValueError if there is no run, a file cannot be read, the examples
        have changed, or other settings differ.
        """
        with folder.refusable():
            folder.create(resume=True)
            if not folder.config.exists():
                raise FileNotFoundError(
                    f"{folder.path} has no run to resume: there is no {folder.config.name} in it. "
                    "Check its name, or begin one without --resume."
                )
        began = self.settings.from_run(folder)
        files = absolute(files) or began.data.files
        held_out_files = absolute(held_out_files) or began.data.held_out_files
        if preset is not None:
            settings = self.settings.from_preset(preset, assignments, files, held_out_files)
        else:
            data = dataclasses.replace(began.data, files=files, held_out_files=held_out_files)
            settings = dataclasses.replace(began, data=data).changed(assignments)
        began.check_same(settings, folder)
        settings.check_memory()
        moved = {"files": settings.data.files, "held_out_files": settings.data.held_out_files}
        data = dataclasses.replace(began.data, **moved)
        settings = dataclasses.replace(began, data=data, training=settings.training)
        examples: TaskExamples = self.read(settings.data)
        if examples.found["sha256"] != settings.data.sha256:
            raise ValueError(
                f"the texts must be those that the run in {folder.path} began with, got others. "
                "Put them back, or begin a new run."
            )
        prepared = self._prepared(settings, examples, Tokenizer.load(folder.tokenizer))
        if settings != began:
            folder.write_config(settings.to_json(prepared.config))
        return prepared

    def held_out(self, data: Any, remedy: str = "Name a FILE") -> Any:
        """Read the held-out examples of a run; `remedy` is the advice of error messages.

        Errors: an OSError or ValueError if a file cannot be read, or the examples have changed.
        """
        examples = self.read(data)
        if examples.found["sha256"] != data.sha256:
            raise ValueError(
                f"the texts must be those that the run was trained on, got others. {remedy} to "
                "evaluate on."
            )
        return examples.held_out

    def load(self, path: str | Path) -> tuple[Any, Tokenizer, S]:
        """Load the best model of a run folder, its tokenizer and its settings.

        Errors: an OSError if the folder is missing or incomplete; a ValueError if it is of
        another task, or its parts do not fit each other.
        """
        run = RunFolder(path)
        settings = self.settings.from_run(run)
        config = self.settings.config_kind.from_json(settings.model)
        weights = run.check_weights()
        tokenizer = Tokenizer.load(run.tokenizer)
        if tokenizer.vocab_size != config.vocab_size:
            raise ValueError(
                f"{run.tokenizer} must have the {config.vocab_size} tokens of the model in "
                f"{run.config}, got {tokenizer.vocab_size}. Use the tokenizer that it was trained "
                "with."
            )
        check_fits(self.model, config, weights, run.config)
        model = self.model(config)
        read_weights(model, weights)
        return model.eval(), tokenizer, settings

    def _prepared(self, settings: S, examples: Any, tokenizer: Tokenizer) -> Prepared[S]:
        settings.check_memory(vocab_size=tokenizer.vocab_size)
        # Seeds the initial weights.
        torch.manual_seed(settings.training.seed)
        return self.prepare(settings, examples, tokenizer)
