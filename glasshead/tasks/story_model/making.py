"""How the story model is trained, and by which settings and texts its weights were.

python -m glasshead.tasks.story_model.making    trains it again, in its place
"""

import hashlib
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch

from glasshead.attention.io import read, write
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.story_model import FOLDER
from glasshead.tasks.training.processes import Hardware
from glasshead.tasks.write import WRITE, WriteSettings

_KIND = "weights"


def recipe_of(folder: Path) -> str:
    """Return the hash of a run's settings and texts, from which its weights follow."""
    return hashlib.sha256(RunFolder(folder).config.read_bytes()).hexdigest()


def stored_recipe(folder: Path = FOLDER) -> str:
    """Return the recipe by which the weights in a folder were made."""
    description, _ = read(RunFolder(folder).weights, _KIND)
    return str(description.get("recipe"))


def make(folder: Path, assignments: Iterable[str] = ()) -> None:
    """Train the story model, and write what reading it and its training takes.

    On one processor, with one version of PyTorch and one thread, the weights are the same, bit for
    bit.

    Args:
        folder: Where to; its files are replaced.
        assignments: Settings other than those of the preset, as "steps=5".
    """
    with tempfile.TemporaryDirectory() as name:
        run = RunFolder(Path(name) / "story")
        settings = WriteSettings.from_preset("story", assignments)
        prepared = WRITE.begin(settings, run, "make story-model")
        prepared.train(run, Hardware(accelerator="cpu"), watch=True)
        model, _, _ = WRITE.load(run.path)
        half = {name: weight.half() for name, weight in model.state_dict().items()}
        write(RunFolder(folder).weights, _KIND, {"recipe": recipe_of(run.path)}, half)
        for file in (run.config, run.tokenizer, run.metrics, run.log, run.attention):
            shutil.copyfile(file, folder / file.name)


if __name__ == "__main__":
    # Threads divide sums, and so round otherwise.
    torch.set_num_threads(1)
    make(FOLDER)
