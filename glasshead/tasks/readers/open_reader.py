"""Opening a reader from a folder: a trained run or a Hugging Face model."""

from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.layers import MultiHeadAttention
from glasshead.tasks.classify import TextClassifier
from glasshead.tasks.classify.train import shortened
from glasshead.tasks.readers.base import Reader, reader_of
from glasshead.tasks.run_folder import RunFolder, is_of_huggingface
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
        reader_of(folder, tokenizer, model, read, context),
        field=data.text,
        shorten=lambda tokens: shortened(list(tokens), data),
    )


def reader_of_run(folder: Path, device: torch.device) -> Reader:
    """Load the language model of a run.

    Errors: as of `Writer.load`.
    """
    writer = Writer.load(folder)
    tokenizer, model = writer.tokenizer, writer.model.to(device)
    attentions = (x for x in model.modules() if isinstance(x, MultiHeadAttention))
    return replace(
        reader_of(folder, tokenizer, model, model.hidden, model.config.context_length),
        field=None if writer.settings is None else writer.settings.data.field,
        mask=next(attentions).attention.mask,
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

    return reader_of(folder, tokenizer, model, read, model.config.context_length)


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
