"""Opening: whichever reader a folder holds."""

from pathlib import Path

import torch

from glasshead.tasks.opening.reader import Reader
from glasshead.tasks.run_folder import RunFolder, is_of_huggingface

_CPU = torch.device("cpu")


def open_reader(folder: Path, device: torch.device = _CPU) -> Reader:
    """The model in a folder, that of a run of `train write` or one of Hugging Face.

    Errors: as of `reader_of_run` and `reader_of_huggingface`.
    """
    if is_of_huggingface(folder):
        from glasshead.tasks.opening.of_huggingface import reader_of_huggingface

        return reader_of_huggingface(folder, device)
    from glasshead.tasks.opening.of_run import reader_of_run

    return reader_of_run(folder, device)


def open_any_reader(folder: Path, device: torch.device = _CPU) -> Reader:
    """The model in a folder, whatever it was trained for: of a translator, its encoder.

    Errors: as of `open_reader`, `reader_of_classifier` and `reader_of_translator`.
    """
    is_run = (folder / "config.json").exists() and not is_of_huggingface(folder)
    task = RunFolder(folder).read_config().get("task") if is_run else None
    if task == "classify":
        from glasshead.tasks.opening.of_classifier import reader_of_classifier

        return reader_of_classifier(folder, device)
    if task == "translate":
        from glasshead.tasks.opening.of_translator import reader_of_translator

        return reader_of_translator(folder, device)
    return open_reader(folder, device)
