"""Jobs: how a task's training begins, resumes, and is used again."""

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import nn

from glasshead.models.config import TransformerConfig
from glasshead.models.saving import check_fits, read_weights
from glasshead.tasks.run_folder import RunFolder, leads
from glasshead.tasks.run_settings import RunSettings, absolute
from glasshead.tasks.tokenizers.tokenizer import Tokenizer
from glasshead.tasks.tokenizers.train_tokenizer import train_bpe, train_wordpiece, words
from glasshead.tasks.training import Hardware, train
from glasshead.tasks.training.loader import ExampleSource, Task

_MAKE: dict[str, Callable[..., Tokenizer]] = {
    "bpe": train_bpe,
    "wordpiece": train_wordpiece,
    "words": words,
}


def made_tokenizer(
    kind: str, texts: Iterable[str], vocabulary: int, *, lowercase: bool = False
) -> Tokenizer:
    """A tokenizer that knows these texts.

    Args:
        kind: "bpe", "wordpiece" or "words".
        texts: What it learns from.
        vocabulary: How many tokens it has at most.
        lowercase: Whether texts are put into small letters.

    Errors: a ValueError where there is no text, or the vocabulary is too small.

    >>> made_tokenizer("words", ["The sun and the sea"], 7).vocab_size
    7
    """
    try:
        return _MAKE[kind](texts, vocabulary, lowercase=lowercase)
    except ValueError as error:
        # By the name that it has among the settings.
        raise ValueError(str(error).replace("vocab_size", "vocabulary")) from error


S = TypeVar("S", bound=RunSettings)


class TaskExamples(Protocol):
    """Examples as they were read."""

    @property
    def found(self) -> dict[str, Any]:
        """What they tell of the run's data, `sha256` with it."""
        ...


@dataclass(frozen=True, eq=False)
class Prepared(Generic[S]):
    """What a run begins with.

    Attributes:
        settings: What decides which model it ends with.
        config: What the model is built from.
        task: The model, as yet untrained.
        source: The examples that it is trained on.
        held_out: Those that it is not.
        about: How many examples there are, in words.
    """

    settings: S
    config: TransformerConfig
    task: Task
    source: ExampleSource
    held_out: ExampleSource
    about: str


@dataclass(frozen=True, eq=False)
class Job(Generic[S]):
    """What a task makes of its settings, in the order in which it is made.

    Attributes:
        title: What is trained, as a run folder says it.
        settings: The kind of its settings.
        read: Reads the examples of a run's data.
        make_tokenizer: Makes the tokenizer of a run that begins.
        prepare: Makes the model and the batches.
        model: The kind of its model.
    """

    title: str
    settings: type[S]
    read: Callable[[Any], Any]
    make_tokenizer: Callable[[Any, Any], Tokenizer]
    prepare: Callable[[S, Any, Tokenizer], Prepared[S]]
    model: Callable[[Any], nn.Module]

    def begin(self, settings: S, folder: RunFolder, command: str) -> Prepared[S]:
        """A new run: examples are read, the tokenizer is made, the folder says what it will have.

        Errors: an OSError or ValueError where the folder has a run, a file cannot be read, or there
        is too little to train on, or too little memory. Then no new folder is left behind.
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
            folder.write_readme(self.title, command)
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
        """A run that is there: its settings are those of its folder, its examples the same.

        Args:
            folder: Where it is.
            preset, assignments, files, held_out_files: As the run began, if they are named again;
                but how long to train and how often to validate, save and log may be other than
                before.

        Errors: an OSError or ValueError where there is no run, a file cannot be read, the examples
        are others, or something else was asked for than the run began with.
        """
        with folder.refusable():
            folder.create(resume=True)
            if not folder.config.exists():
                raise FileNotFoundError(
                    f"{folder.path} has no run to resume: there is no {folder.config.name} in it; "
                    "check its name, or begin one without --resume."
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
        settings = dataclasses.replace(began, training=settings.training)
        examples: TaskExamples = self.read(settings.data)
        if examples.found["sha256"] != settings.data.sha256:
            raise ValueError(
                f"the texts are not those that the run in {folder.path} began with: put them back, "
                "or begin a new run."
            )
        prepared = self._prepared(settings, examples, Tokenizer.load(folder.tokenizer))
        if settings != began:
            folder.write_config(settings.to_json(prepared.config))
        return prepared

    def held_out(self, data: Any, remedy: str = "name a FILE") -> Any:
        """What a run held out; `remedy` is what errors advise to evaluate on instead.

        Errors: an OSError or ValueError where a file cannot be read, or the examples are others.
        """
        examples = self.read(data)
        if examples.found["sha256"] != data.sha256:
            raise ValueError(
                f"the texts are not those that the run was trained on: {remedy} to evaluate on."
            )
        return examples.held_out

    def load(self, path: str | Path) -> tuple[Any, Tokenizer, S]:
        """The best model of a run folder, its tokenizer and its settings.

        Errors: an OSError where the folder is none, or not whole; a ValueError where it is another
        task's, or its parts do not fit each other.
        """
        run = RunFolder(path)
        settings = self.settings.from_run(run)
        config = self.settings.config_kind.from_json(settings.model)
        weights = run.check_weights()
        tokenizer = Tokenizer.load(run.tokenizer)
        if tokenizer.vocab_size != config.vocab_size:
            raise ValueError(
                f"{run.tokenizer} has {tokenizer.vocab_size} tokens, and the model in {run.config} "
                f"{config.vocab_size}: take the tokenizer that it was trained with."
            )
        check_fits(self.model, config, weights, run.config)
        model = self.model(config)
        read_weights(model, weights)
        return model.eval(), tokenizer, settings

    def _prepared(self, settings: S, examples: Any, tokenizer: Tokenizer) -> Prepared[S]:
        settings.check_memory(vocab_size=tokenizer.vocab_size)
        # The weights that training begins with.
        torch.manual_seed(settings.training.seed)
        return self.prepare(settings, examples, tokenizer)


def train_to_the_end(
    prepared: Prepared[Any],
    folder: RunFolder,
    hardware: Hardware,
    *,
    resume: bool = False,
    watch: bool = False,
) -> dict[str, Any]:
    """Train to the end; the figures of the best and of the last validation.

    Errors: as of `train`; where it raises before the first step, a new folder is taken away again.
    """
    with folder.refusable():
        return train(
            prepared.task,
            prepared.source,
            prepared.held_out,
            prepared.settings.training,
            folder,
            hardware=hardware,
            resume=resume,
            watch=watch,
        )
