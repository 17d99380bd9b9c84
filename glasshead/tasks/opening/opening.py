"""Opening: whichever reader a folder holds."""

from pathlib import Path

import torch

from glasshead.tasks.opening.reader import Reader
from glasshead.tasks.run_folder import is_of_huggingface

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
