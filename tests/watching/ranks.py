"""Two processes on one machine that are ranks of each other, and what they compute."""

import os
import socket

import torch
from torch import distributed, multiprocessing

RANKS = 2


def _serve(rank, port, inboxes, done):
    torch.set_num_threads(1)
    # As torchrun tells them, which transformers asks.
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in told.items()}
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    distributed.init_process_group("gloo")
    try:
        for work, folder in iter(inboxes[rank].get, None):
            torch.save(work(rank, folder), folder / f"found.{rank}")
            done.put(rank)
    finally:
        distributed.destroy_process_group()


class Ranks:
    """The processes, which begin with the first work and then wait for more.

    To start them takes longer than most of what they compute.
    """

    def __init__(self):
        self._processes = None

    def __call__(self, work, folder):
        """Return what `work(rank, folder)` returns on each rank; it is a function of a module."""
        processes, self._processes = self._processes or self._started(), None
        for inbox in self._inboxes:
            inbox.put((work, folder))
        for _ in range(RANKS):
            while self._done.empty():
                # It raises what a process has raised, and ends the other one.
                assert not processes.join(0.05)
            self._done.get()
        self._processes = processes
        return [torch.load(folder / f"found.{rank}", weights_only=False) for rank in range(RANKS)]

    def _started(self):
        context = multiprocessing.get_context("spawn")
        self._inboxes = [context.SimpleQueue() for _ in range(RANKS)]
        self._done = context.SimpleQueue()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        given = (port, self._inboxes, self._done)
        return multiprocessing.spawn(_serve, given, RANKS, join=False)

    def close(self):
        """End the processes."""
        if self._processes is None:
            return
        for inbox in self._inboxes:
            inbox.put(None)
        while not self._processes.join():
            pass
