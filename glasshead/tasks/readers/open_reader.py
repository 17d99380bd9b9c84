"""Opening a reader from a folder: a trained run or a Hugging Face model."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glasshead.layers import MultiHeadAttention
from glasshead.models import LanguageModel
from glasshead.tasks.classify import TextClassifier
from glasshead.tasks.data.files import shown
from glasshead.tasks.readers.reader import Reader, reader_of
from glasshead.tasks.run_folder import RunFolder, is_of_huggingface
from glasshead.tasks.tokenizers import Tokenizer
from glasshead.tasks.train_classifier import shortened
from glasshead.tasks.translate import TextTranslator
from glasshead.tasks.write import Writer


def reader_of_classifier(folder: Path, device: torch.device) -> Reader:
    """Load the classifier of a run; it truncates long texts as in training.

    Errors: as of `TextClassifier.load`.
    """
    classifier = TextClassifier.load(folder)
    tokenizer, data = classifier.tokenizer, classifier.settings.data
    model = classifier.model.to(device)

    def read(tokens: Int[Tensor, "texts length"]) -> Float[Tensor, "texts answers"]:
        return model(tokens, torch.full((len(tokens),), tokens.shape[1], device=tokens.device))

    context = min(model.config.context_length, data.first + data.last)
    return replace(
        reader_of(shown(folder), tokenizer, model, read, context),
        field=data.text,
        shorten=lambda tokens: shortened(list(tokens), data),
        predicts="labels",
        labels=tuple(data.answers),
    )


def reader_of_run(folder: Path, device: torch.device) -> Reader:
    """Load the language model of a run.

    Errors: as of `Writer.load`.
    """
    writer = Writer.load(folder)
    field = None if writer.settings is None else writer.settings.data.field
    model = writer.model.to(device)
    reader = reader_of(shown(folder), writer.tokenizer, model, model, None)
    return replace(_of_language_model(reader, model), field=field)


def _of_language_model(reader: Reader, model: LanguageModel) -> Reader:
    """Have a reader run its language model without the head, within the model's context."""
    attentions = (x for x in model.modules() if isinstance(x, MultiHeadAttention))
    return replace(
        reader,
        read=model.hidden,
        context=model.config.context_length,
        mask=next(attentions).attention.mask,
        predicts="tokens",
    )


def reader_of_translator(folder: Path, device: torch.device) -> Reader:
    """Load the encoder of a run's translator.

    Errors: as of `TextTranslator.load`.
    """
    translator = TextTranslator.load(folder)
    tokenizer, model = translator.tokenizer, translator.model.to(device)

    def read(tokens: Int[Tensor, "texts length"]) -> Float[Tensor, "texts length d_model"]:
        lengths = torch.full((len(tokens),), tokens.shape[1], device=tokens.device)
        return model.encode(tokens, lengths)

    return reader_of(shown(folder), tokenizer, model, read, model.config.context_length)


_CPU = torch.device("cpu")


def open_reader(folder: Path, device: torch.device = _CPU) -> Reader:
    """Load the language model of a run, or a Hugging Face model, from a folder.

    Errors: as of `reader_of_run` and `reader_of_huggingface`.
    """
    if is_of_huggingface(folder):
        from glasshead.tasks.readers.huggingface import reader_of_huggingface

        return reader_of_huggingface(folder, device)

    return reader_of_run(folder, device)


def open_any_reader(folder: Path, device: torch.device = _CPU) -> Reader:
    """Load the model in a folder, of any task: of a translator, its encoder.

    Errors: as of `open_reader`, `reader_of_classifier` and `reader_of_translator`.
    """
    is_run = (folder / "config.json").exists() and not is_of_huggingface(folder)
    task = RunFolder(folder).read_config().get("task") if is_run else None
    if task == "classify":
        return reader_of_classifier(folder, device)
    if task == "translate":
        return reader_of_translator(folder, device)
    return open_reader(folder, device)


def reader_of_model(
    model: nn.Module | str | os.PathLike[str], tokenizer: Any, device: torch.device
) -> Reader:
    """Create the reader of a model and its tokenizer, or of a folder that holds both.

    Args:
        model: A model, which stays on its device, or a folder.
        tokenizer: One of transformers, or of this library; None for a folder, which has its own.
        device: For the model of a folder.

    Errors: a TypeError or ValueError if they do not go together; those of `open_reader`.
    """
    if not isinstance(model, nn.Module):
        if not isinstance(model, str | os.PathLike):
            raise TypeError(
                "model must be a torch.nn.Module, or the folder of one, got "
                f"{type(model).__name__}."
            )
        if tokenizer is not None:
            raise ValueError(
                f"the folder {shown(Path(model))} has a tokenizer of its own. Omit tokenizer."
            )
        return open_reader(Path(model), device)
    name = type(model).__name__
    if isinstance(tokenizer, Tokenizer):
        reader = reader_of(name, tokenizer, model, model, None, "model")
    elif callable(tokenizer) and hasattr(tokenizer, "all_special_ids"):
        from glasshead.tasks.readers.huggingface import reader_of_transformers

        reader = reader_of_transformers(name, model, tokenizer, "the tokenizer")
    else:
        raise TypeError(
            "tokenizer must be a tokenizer of transformers or of glasshead, got "
            f"{type(tokenizer).__name__}. Pass the one that {name} was trained with."
        )
    return _of_language_model(reader, model) if isinstance(model, LanguageModel) else reader
