"""Ranks that torchrun started, or the one process that there is."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

import torch
import typer
from torch import distributed

from glasshead.cli.exits import BAD_INPUT
from glasshead.cli.observe import rank_from_environment, started_together

# One that has much to read is waited for; one that has died is noticed at once.
_PATIENCE = timedelta(hours=2)


@dataclass(frozen=True)
class Ranks:
    """Who reads.

    Attributes:
        place: Which of them this one is, from 0.
        count: How many there are.
        device: Where this one computes.
    """

    place: int
    count: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this one prints and writes."""
        return self.place == 0

    @contextmanager
    def together(self) -> Iterator[None]:
        """A block that all of them pass, or none: what one refuses ends them all.

        Errors: that of this process; where another has failed, a ValueError that says how in the
        one that leads, and in the others the exit.
        """
        own: Exception | None = None
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the others must not wait
            own = error
        if self.count == 1:
            if own is not None:
                raise own
            return
        told: list[str | None] = [None] * self.count
        with _others():
            distributed.all_gather_object(told, None if own is None else _sentence(own))
        if any(told):
            self._end(own, told)

    def _end(self, own: Exception | None, told: list[str | None]) -> NoReturn:
        """Fail; only the one that leads says how, and has the time to."""
        if not self.leads:
            time.sleep(1.0)
            raise typer.Exit(BAD_INPUT)
        if own is not None:
            raise own
        place, sentence = next((place, said) for place, said in enumerate(told) if said)
        raise ValueError(f"process {place} of {self.count}: {sentence}")


@contextmanager
def processes() -> Iterator[Ranks]:
    """The processes of this command: those of torchrun, where it started them.

    They compute on a GPU each where there are some, and else on the CPU.

    Errors: an OSError where another process has ended.
    """
    local = rank_from_environment("LOCAL_RANK", "0")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device = torch.device("cuda", local % gpus) if gpus else torch.device("cpu")
    count = started_together()
    if not count:
        yield Ranks(0, 1, device)
        return
    if gpus:
        torch.cuda.set_device(device)
    with _others():
        distributed.init_process_group("nccl" if gpus else "gloo", timeout=_PATIENCE)
    try:
        with _others():
            yield Ranks(distributed.get_rank(), count, device)
            # Who leaves while others are still at it may be torn down in the middle of their work.
            distributed.barrier()
    finally:
        distributed.destroy_process_group()


@contextmanager
def _others() -> Iterator[None]:
    """Say in a sentence that another process is gone."""
    try:
        yield
    except (distributed.DistError, ConnectionError) as error:
        raise _gone() from error
    except RuntimeError as error:
        if "gloo" not in str(error).lower() and "Connection" not in str(error):
            raise
        raise _gone() from error


def _gone() -> OSError:
    return OSError(
        "another process of this command has ended: see what it said, or start all of them again."
    )


def _sentence(error: Exception) -> str:
    known = isinstance(error, ValueError | TypeError | OSError)
    return str(error) if known and str(error) else f"{type(error).__name__}: {error}"
