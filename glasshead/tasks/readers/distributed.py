"""Ranks: the processes of a distributed run, each of which reads its share of the texts."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# A rank that has much to read is waited for; one that has died is noticed at once.
_PATIENCE = timedelta(hours=2)
# Variables that torchrun sets in each process.
_LAUNCHER = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def world_size() -> int:
    """Return the number of processes that torchrun started; 0 if it started none.

    >>> world_size()
    0
    """
    if not all(os.environ.get(name) for name in _LAUNCHER):
        return 0
    count = _from_environment("WORLD_SIZE")
    return count if count > 1 else 0


def _from_environment(name: str, default: str = "") -> int:
    """Read a whole number from a variable that the launcher sets.

    Errors: a ValueError if it is none.
    """
    value = os.environ.get(name, default)
    if not value.isdecimal():
        raise ValueError(
            f"{name} must be a whole number, set by the launcher, got {value!r}. Start with "
            "torchrun."
        )
    return int(value)


class RankError(ValueError):
    """An error of any rank, raised on each but the first, which has its sentence too."""


@dataclass(frozen=True)
class Ranks:
    """This process among the ranks that read.

    Attributes:
        rank: Rank of this process, from 0.
        world_size: Number of ranks.
        device: Device of this rank.
    """

    rank: int
    world_size: int
    device: "torch.device"

    @property
    def is_rank_zero(self) -> bool:
        """Whether this rank prints and writes."""
        return self.rank == 0

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run a block on all ranks; an error in one of them ends all.

        Errors: on rank 0 its own, or a ValueError with that of another; elsewhere a `RankError`.
        """
        own: Exception | None = None
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the others must not wait
            own = error
        if self.world_size == 1:
            if own is not None:
                raise own
            return
        from torch import distributed

        sentences: list[str | None] = [None] * self.world_size
        with _others():
            distributed.all_gather_object(sentences, None if own is None else _sentence(own))
        if not any(sentences):
            return
        if own is not None and self.is_rank_zero:
            raise own
        place, sentence = next((place, said) for place, said in enumerate(sentences) if said)
        kind = ValueError if self.is_rank_zero else RankError
        raise kind(f"process {place} of {self.world_size}: {sentence}") from own


@contextmanager
def connected_ranks() -> Iterator[Ranks]:
    """Connect the processes that torchrun started, or take the only one; each has a GPU if any.

    A process group that is there already is used, and left open.

    Errors: an OSError if another process has ended; a ValueError if the launcher's variables
    are no numbers.
    """
    import torch
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        with _others():
            yield Ranks(distributed.get_rank(), distributed.get_world_size(), default_device())
        return
    count, device = world_size(), default_device()
    if not count:
        yield Ranks(0, 1, device)
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with _others(), _output_kept_clean():
        backend = "nccl" if device.type == "cuda" else "gloo"
        distributed.init_process_group(backend, timeout=_PATIENCE)
    try:
        with _others():
            yield Ranks(distributed.get_rank(), count, device)
            # A rank that leaves early may tear down the others in the middle of their work.
            distributed.barrier()
    finally:
        distributed.destroy_process_group()


def default_device() -> "torch.device":
    """Return the GPU of this process on its machine, or the CPU."""
    import torch

    local_rank = _from_environment("LOCAL_RANK", "0")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return torch.device("cuda", local_rank % gpus) if gpus else torch.device("cpu")


@contextmanager
def _output_kept_clean() -> Iterator[None]:
    """Keep what PyTorch 2.8 says of its ranks out of standard output, which may be JSON."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:
        # There is no standard output.
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


@contextmanager
def _others() -> Iterator[None]:
    """Raise an OSError in one sentence if another process is gone."""
    from torch import distributed

    try:
        yield
    except (distributed.DistError, ConnectionError, RuntimeError) as error:
        known = isinstance(error, distributed.DistError | ConnectionError)
        if not known and "gloo" not in str(error).lower() and "Connection" not in str(error):
            raise
        raise OSError(
            "another process of this command has ended. See its error, or start all of them again."
        ) from error


def _sentence(error: Exception) -> str:
    from glasshead.watching import UnseenError

    known = isinstance(error, ValueError | TypeError | OSError | UnseenError)
    return str(error) if known and str(error) else f"{type(error).__name__}: {error}"
