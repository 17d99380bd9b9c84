"""Runs by two processes: a folder, and what to run in it."""

import os
import signal
import sys
from pathlib import Path

import torch
from tiny_training import Sequences, Tiny, run

from glasshead.attention import io as files
from glasshead.tasks.run_folder import leads
from glasshead.tasks.training import Hardware, Interrupted, TrainingSettings

TWO = Hardware(devices=2, strategy="ddp", accelerator="cpu")
# Two batches of five, which two processes cannot halve, and one that leaves the second with none.
SETTINGS = TrainingSettings(
    steps=5, learning_rate=0.1, optimizer="sgd", validate_every=2, save_every=1, log_every=1
)


class Uneven(Sequences):
    """Eleven sequences; one process may be interrupted by itself when it asks for that batch."""

    def __init__(self, interrupted_at=None):
        super().__init__(examples=11)
        self.interrupted_at, self.collated = interrupted_at, 0

    def collate(self, indices):
        self.collated += 1
        # The first batch is collated for the fingerprint, and so are two more.
        if self.collated == self.interrupted_at and not leads():
            os.kill(os.getpid(), signal.SIGINT)
        return super().collate(indices)


def trained(path, source, **options):
    return run(path, SETTINGS, task=Tiny(dropout=0), source=source, **options)


def ends(path, source):
    """What this process says when training ends early; the second one says nothing."""
    try:
        trained(path, source, hardware=TWO)
    except (Interrupted, OSError) as error:
        return f"{type(error).__name__}: {error}"
    except SystemExit as error:
        return f"left with {error.code}"
    return "finished"


def full_disk():
    write = files.write

    def refused(file, kind, description, tensors):
        if kind == "checkpoint":
            raise OSError(f"{file} cannot be written (No space left on device).")
        write(file, kind, description, tensors)

    files.write = refused


def main(base, names):
    torch.set_num_threads(1)
    for name in names:
        if name == "whole":
            trained(base / name, Uneven(), hardware=TWO)
        elif name == "interrupted":
            how = ends(base / name, Uneven(interrupted_at=3 + 3))
            sys.stdout.write(f"{name} {how}\n")
        else:
            full_disk()
            sys.stdout.write(f"{name} {ends(base / name, Uneven())}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
