"""Two processes on one machine that are ranks of each other, and what they compute."""

import importlib
import os
import selectors
import subprocess
import sys
from pathlib import Path

import torch
from torch import distributed

import forked

RANKS = 2
DONE = "done\n"


def _serve():
    """Do what each line of the input names: a module, a function of it, and a folder."""
    # What the work prints is not an answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    for line in sys.stdin:
        module, name, place = line.rstrip("\n").split(" ", 2)
        work, folder = getattr(importlib.import_module(module), name), Path(place)
        torch.save(work(rank, folder), folder / f"found.{rank}")
        print(end=DONE, file=answers, flush=True)
    distributed.destroy_process_group()


class Ranks:
    """The processes, which begin with the first work and then wait for more.

    To start them takes longer than most of what they compute.
    """

    def __init__(self):
        self._processes = []

    def __call__(self, work, folder):
        """Return what `work(rank, folder)` returns on each rank; it is a function of a module."""
        processes, self._processes = self._processes or self._started(), []
        for one in processes:
            print(work.__module__, work.__name__, folder, file=one.stdin, flush=True)
        with selectors.DefaultSelector() as answers:
            for one in processes:
                answers.register(one.stdout, selectors.EVENT_READ)
            while answers.get_map():
                for key, _ in answers.select():
                    answers.unregister(key.fileobj)
                    if key.fileobj.readline() != DONE:
                        self._fail(processes)
        self._processes = processes
        return [torch.load(folder / f"found.{rank}", weights_only=False) for rank in range(RANKS)]

    def _started(self):
        # They find the module of the work where this process has found it.
        paths = os.pathsep.join(sys.path)
        return forked.ranks(RANKS, "-m", "watching.ranks", stdin=subprocess.PIPE, PYTHONPATH=paths)

    def _fail(self, processes):
        """Raise what a rank has raised that ended; the others wait for it in vain."""
        for one in processes:
            one.kill()
        raise AssertionError("".join(one.ended().stderr for one in processes))

    def close(self):
        """End the processes."""
        for one in self._processes:
            one.ended()


if __name__ == "__main__":
    _serve()
