"""Two processes on one machine, of which each saves what it has found, and what they run."""

import os
import socket

import torch
from torch import distributed
from torch.multiprocessing.spawn import spawn

RANKS = 2


def _begin(rank, work, port, folder):
    torch.set_num_threads(1)
    # As torchrun tells them, which transformers asks.
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in told.items()}
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    distributed.init_process_group("gloo")
    try:
        torch.save(work(rank, folder), folder / f"found.{rank}")
        distributed.barrier()
    finally:
        distributed.destroy_process_group()


def of_ranks(work, folder):
    """What `work(rank, folder)` returns on each rank; it is a function of a module."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn(_begin, (work, port, folder), RANKS)
    return [torch.load(folder / f"found.{rank}", weights_only=False) for rank in range(RANKS)]
