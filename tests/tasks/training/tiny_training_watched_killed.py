"""Watched runs that are killed amid a row of attention.csv and resumed, each in a fork.

It is called with a folder, and prints how many runs were killed.
"""

import dataclasses
import os
import sys
from pathlib import Path

import torch
from tiny_training import SETTINGS as OF_ALL
from tiny_training import VOCABULARY, Tiny, everything, run
from torch import nn

from glasshead.attention import Attention
from glasshead.layers import EncoderBlock, MultiHeadAttention
from glasshead.recipe.masks import causal
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training import logs

WIDTH = 15
# So that of its 13 steps the first and each fourth are watched.
SETTINGS = dataclasses.replace(OF_ALL, log_every=1)


class Attending(Tiny):
    """The same task by a model that attends, with dropout of its weights."""

    def __init__(self):
        torch.manual_seed(0)
        attention = MultiHeadAttention(WIDTH, 3, attention=Attention(mask=causal(), dropout=0.2))
        self.model = nn.Sequential(
            nn.Embedding(VOCABULARY, WIDTH),
            EncoderBlock(attention, None, dropout=0.1),
            nn.Linear(WIDTH, VOCABULARY),
        )


def amid_row(number):
    """Kill when half of what is added to attention.csv is written, at that time of adding."""
    from tiny_training_killed import kill

    appended, append = [], RunFolder.append

    def half(self, file, text):
        if file == self.attention:
            appended.append(text)
            if len(appended) == number:
                append(self, file, text[: len(text) // 2])
                kill()
        append(self, file, text)

    RunFolder.append = half


def main(base):
    from tiny_training_killed import forked

    torch.set_num_threads(1)
    # To draw one takes longer than the steps.
    logs.drawn = lambda rows: b"a picture"

    def made(path, *, resume=False, kill_at=0):
        if kill_at:
            amid_row(kill_at)
        run(path, SETTINGS, task=Attending(), resume=resume, watch=True)

    assert forked(lambda: made(base / "whole")) == 0
    whole = RunFolder(base / "whole")
    moments = (1, 2, 3, 4)
    for number in moments:
        folder = RunFolder(base / f"killed{number}")
        assert forked(lambda: made(folder.path, kill_at=number)) < 0  # noqa: B023
        assert forked(lambda: made(folder.path, resume=True)) == 0  # noqa: B023
        assert folder.attention.read_bytes() == whole.attention.read_bytes()
        assert folder.alarms.read_bytes() == whole.alarms.read_bytes()
        assert everything(folder) == everything(whole)
    sys.stdout.write(f"{len(moments)}\n")


if __name__ == "__main__":
    assert os.fork
    main(Path(sys.argv[1]))
