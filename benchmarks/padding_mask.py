"""What masking the padding does for the classifier of the course notebook, and nothing else.

    python benchmarks/padding_mask.py train.jsonl.xz test.jsonl.xz [--seeds 0 1 2]

Rung 9 of the ladder is trained twice from the same weights on the same batches, as the notebook
trains it: 164 reviews of exactly 200 words a batch, short ones filled up, AdamW at 1e-3, ten
epochs, a tenth held out. Once padding is words like any other, as there; once it is masked. The
best epoch is chosen on what is held out, and is then tried on the test set.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from glasshead.models import Classifier
from glasshead.models.saving import read_weights
from glasshead.tasks.classify import ClassifySettings
from glasshead.tasks.data.batches import shuffled
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.train_classifier import (
    ClassifyObjective,
    LabelledBatches,
    make_tokenizer,
    read_corpus,
    read_labelled,
)
from glasshead.tasks.training import train

BATCH, LENGTH, EPOCHS = 164, 200, 10


class Fixed:
    """Batches of 164 texts, each filled up to 200 words, which are masked or not."""

    def __init__(self, texts: LabelledBatches, seed: int, *, masked: bool) -> None:
        self.texts, self.seed, self.masked = texts, seed, masked

    def batches(self, epoch: int) -> list[list[int]]:
        return shuffled(len(self.texts.labels), BATCH, self.seed, epoch)

    def collate(self, indices: Sequence[int]) -> dict[str, Tensor]:
        batch = self.texts.collate(indices)
        room = LENGTH - batch["tokens"].shape[1]
        batch["tokens"] = torch.nn.functional.pad(batch["tokens"], (0, room))
        if not self.masked:
            batch["lengths"] = torch.full_like(batch["lengths"], LENGTH)
        return batch

    def count(self, indices: Sequence[int]) -> int:
        return len(indices)


def accuracy(task: ClassifyObjective, source: Fixed) -> float:
    """The share of texts with the right label."""
    sums = {"loss": 0.0, "targets": 0.0, "right": 0.0}
    task.model.eval()
    with torch.inference_mode():
        for batch in source.batches(0):
            for name, value in task.validate(source.collate(batch)).items():
                sums[name] += float(value)
    return task.metrics(sums)["accuracy"]


def main() -> None:
    """Train each seed both ways, print what each reaches, and write JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    asked = parser.parse_args()
    settings = ClassifySettings.from_preset("course", files=[asked.train])
    corpus = read_corpus(settings.data)
    data = replace(settings.data, **corpus.found)
    tokenizer = make_tokenizer(data, corpus)
    config = settings.model_config(vocab_size=tokenizer.vocab_size)
    tests = read_labelled([asked.test], data.text, data.label)
    texts = [LabelledBatches(tokenizer, x, data) for x in (corpus.training, corpus.held_out, tests)]
    steps = -(-len(corpus.training) // BATCH)
    rows = []
    for seed in asked.seeds:
        training = replace(settings.training, seed=seed, steps=EPOCHS * steps, validate_every=steps)
        for masked in (False, True):
            sources = [Fixed(part, seed, masked=masked) for part in texts]
            torch.manual_seed(seed)
            task = ClassifyObjective(Classifier(config))
            with tempfile.TemporaryDirectory() as path:
                folder = RunFolder(Path(path))
                folder.create()
                best = train(task, sources[0], sources[1], training, folder)["best"]
                read_weights(task.model, folder.weights)
            row = {
                "seed": seed,
                "padding": "masked" if masked else "words",
                "epoch": best["step"] // steps,
                "held_out": best["accuracy"],
                "test": accuracy(task, sources[2]),
            }
            rows.append(row)
            print(row, flush=True)
    file = Path("build/benchmarks/padding_mask.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
