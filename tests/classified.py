"""A run of `classify` as training leaves it, without the training."""

import json
from pathlib import Path
from random import Random

import torch

from glasshead.models.saving import write_weights
from glasshead.tasks.classify import CLASSIFY, ClassifySettings
from glasshead.tasks.run_folder import RunFolder

SMALL = ("d_model=12", "num_heads=3", "num_layers=2", "vocabulary=300")
_WORDS = "the a film plot music was is not never so quite good bad fine dull great and but it"


def texts(count: int, seed: int = 0) -> list[str]:
    """Texts of one to eleven words, each with a number of its own."""
    random = Random(seed)
    return [
        " ".join([*random.choices(_WORDS.split(), k=random.randint(1, 11)), str(number)])
        for number in range(count)
    ]


def table(path: Path | str, rows: list[tuple[str, str]]) -> str:
    """A table of texts and labels, as .jsonl."""
    lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def classified(
    path: Path, *assignments: str, files: tuple[str, ...] = (), held_out: tuple[str, ...] = ()
) -> RunFolder:
    """A run folder with the weights that training would begin with."""
    folder = RunFolder(path)
    settings = ClassifySettings.from_preset(
        "tiny", ["made_up=211", *SMALL, *assignments], files, held_out
    )
    prepared = CLASSIFY.begin(settings, folder, "glasshead train classify")
    with torch.no_grad():
        # Sharper than at the beginning, so that texts differ.
        for parameter in prepared.task.model.parameters():
            parameter.mul_(5)
    write_weights(prepared.task.model, folder.weights)
    return folder
