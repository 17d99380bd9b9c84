"""Training run: a language model trained into a run folder."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from glasshead.models import LanguageModel, LanguageModelConfig
from glasshead.tasks.run_folder import RunFolder, leads
from glasshead.tasks.tokenizing import Tokenizer
from glasshead.tasks.training import Hardware, train
from glasshead.tasks.write.corpus import Corpus, make_tokenizer, read_corpus, tokenized
from glasshead.tasks.write.next_token import NextToken
from glasshead.tasks.write.settings import WriteSettings
from glasshead.tasks.write.windows import HeldOutWindows, TrainingWindows


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """What a run begins with.

    Attributes:
        settings: What decides which model it ends with.
        config: What the model is built from.
        task: The model, as yet untrained.
        source: The pieces that it is trained on.
        held_out: Those that it is not.
    """

    settings: WriteSettings
    config: LanguageModelConfig
    task: NextToken
    source: TrainingWindows
    held_out: HeldOutWindows


def begin(settings: WriteSettings, folder: RunFolder, command: str) -> Prepared:
    """A new run: texts are read, the tokenizer is made, and the folder says what it will have.

    Errors: an OSError or ValueError where the folder has a run, a file cannot be read, or there is
    less text than the model's context.
    """
    folder.create()
    corpus = read_corpus(settings.data)
    tokenizer = make_tokenizer(settings.data, corpus)
    found = {"sha256": corpus.sha256, "texts": len(corpus.training)}
    data = dataclasses.replace(settings.data, **found)
    settings = dataclasses.replace(settings, data=data)
    prepared = _prepared(settings, corpus, tokenizer)
    if leads():
        tokenizer.save(folder.tokenizer)
    folder.write_readme("A language model", command)
    folder.write_config(settings.to_json(prepared.config))
    return prepared


def go_on(
    folder: RunFolder,
    preset: str | None = None,
    assignments: Iterable[str] = (),
    files: Iterable[str] = (),
) -> Prepared:
    """A run that is there: its settings are those of its folder, and its texts have to be the same.

    Args:
        folder: Where it is.
        preset, assignments, files: As the run began, if they are named again; but how long to train
            and how often to validate, save and log may be other than before.

    Errors: an OSError or ValueError where there is no run, a file cannot be read, the texts are
    others, or something else was asked for than the run began with.
    """
    folder.create(resume=True)
    if not folder.config.exists():
        raise FileNotFoundError(
            f"{folder.path} has no run to resume: there is no {folder.config.name} in it; check "
            "its name, or begin one without --resume."
        )
    began = WriteSettings.from_run(folder)
    files = tuple(files) or began.data.files
    if preset is not None:
        settings = WriteSettings.from_preset(preset, assignments, files)
    else:
        data = dataclasses.replace(
            began.data, files=tuple(str(Path(file).absolute()) for file in files)
        )
        settings = dataclasses.replace(began, data=data).changed(assignments)
    began.check_same(settings, folder)
    settings = dataclasses.replace(began, training=settings.training)
    corpus = read_corpus(settings.data)
    if corpus.sha256 != settings.data.sha256:
        raise ValueError(
            f"the texts are not those that the run in {folder.path} began with: put them back, or "
            "begin a new run."
        )
    prepared = _prepared(settings, corpus, Tokenizer.load(folder.tokenizer))
    if settings != began:
        folder.write_config(settings.to_json(prepared.config))
    return prepared


def train_to_the_end(
    prepared: Prepared, folder: RunFolder, hardware: Hardware, *, resume: bool = False
) -> dict[str, Any]:
    """Train to the end; the figures of the best and of the last validation.

    Errors: as of `train`.
    """
    return train(
        prepared.task,
        prepared.source,
        prepared.held_out,
        prepared.settings.training,
        folder,
        hardware=hardware,
        resume=resume,
    )


def _prepared(settings: WriteSettings, corpus: Corpus, tokenizer: Tokenizer) -> Prepared:
    config = settings.model_config(tokenizer.vocab_size)
    length, seed = config.context_length, settings.training.seed
    training, held_out = (tokenized(tokenizer, x) for x in (corpus.training, corpus.held_out))
    for name, part, least in (("training", training, length + 1), ("held-out", held_out, 2)):
        if len(part.ids) < least:
            raise ValueError(
                f"the {name} part of the text takes at least {least} tokens, and has "
                f"{len(part.ids)}: give more text, or a smaller --set context_length."
            )
    torch.manual_seed(seed)
    return Prepared(
        settings=settings,
        config=config,
        task=NextToken(LanguageModel(config), held_out.characters),
        source=TrainingWindows(training.ids, length, settings.data.batch_size, seed),
        held_out=HeldOutWindows(held_out.ids, length),
    )
