"""A task so small that its steps cost nothing: a network that learns the next of its tokens."""

import csv

import torch
from torch import nn

from glasshead.attention import io as files
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training import TrainingSettings, train

VOCABULARY, WIDTH, IGNORED = 11, 7, -100


class Sequences:
    """Sequences of unequal lengths; the next token is a function of the last."""

    def __init__(self, examples=23, batch=5, seed=3):
        lengths = torch.randint(
            2, 9, (examples,), generator=torch.Generator().manual_seed(seed)
        ).tolist()
        self.rows = [
            [(number + seed + place * place) % VOCABULARY for place in range(length)]
            for number, length in enumerate(lengths)
        ]
        self.batch, self.seed = batch, seed

    def batches(self, epoch):
        generator = torch.Generator().manual_seed(self.seed * 1000 + epoch)
        order = torch.randperm(len(self.rows), generator=generator).tolist()
        return [order[start : start + self.batch] for start in range(0, len(order), self.batch)]

    def collate(self, indices):
        longest = max(len(self.rows[index]) for index in indices)
        tokens = torch.zeros(len(indices), longest - 1, dtype=torch.long)
        targets = torch.full_like(tokens, IGNORED)
        for place, index in enumerate(indices):
            row = torch.tensor(self.rows[index])
            tokens[place, : len(row) - 1], targets[place, : len(row) - 1] = row[:-1], row[1:]
        return {"tokens": tokens, "targets": targets}

    def count(self, indices):
        return sum(len(self.rows[index]) - 1 for index in indices)


class Tiny:
    monitor, higher_is_better = "loss", False

    def __init__(self, dropout=0.3, seed=0):
        torch.manual_seed(seed)
        self.model = nn.Sequential(
            nn.Embedding(VOCABULARY, WIDTH),
            nn.Sequential(nn.Linear(WIDTH, 13), nn.Tanh(), nn.Dropout(dropout)),
            nn.Linear(13, VOCABULARY),
        )

    def loss(self, batch):
        logits = self.model(batch["tokens"])
        return nn.functional.cross_entropy(
            logits.flatten(0, 1), batch["targets"].flatten(), ignore_index=IGNORED, reduction="sum"
        )

    def validate(self, batch):
        return {"loss": self.loss(batch), "targets": (batch["targets"] != IGNORED).sum()}

    def metrics(self, sums):
        return {"loss": sums["loss"] / sums["targets"]}


SETTINGS = TrainingSettings(
    steps=13, learning_rate=0.01, warmup=2, validate_every=5, save_every=3, log_every=2, seed=7
)


def run(path, settings=SETTINGS, *, resume=False, task=None, source=None, **options):
    """Make a run folder, train the task in it, and give the folder."""
    folder = RunFolder(path)
    folder.create(resume=resume)
    folder.write_config({"model": "tiny"})
    train(
        task or Tiny(),
        source or Sequences(),
        Sequences(examples=11, batch=3, seed=4),
        settings,
        folder,
        resume=resume,
        **options,
    )
    return folder


def rows(folder):
    """The rows of a log."""
    with folder.log.open(newline="") as file:
        return list(csv.DictReader(file))


def everything(folder):
    """What two runs that are the same have in common, to the last bit."""
    _, last = files.read(folder.checkpoint, "checkpoint")
    _, best = files.read(folder.weights, "weights")
    log = [{name: row[name] for name in row if name != "seconds"} for row in rows(folder)]
    bits = {f"last {n}": x.numpy().tobytes() for n, x in last.items()}
    bits |= {f"best {n}": x.numpy().tobytes() for n, x in best.items()}
    return {"log": log, "metrics": folder.metrics.read_text(), **bits}
