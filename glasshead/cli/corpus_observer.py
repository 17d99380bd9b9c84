"""Observe a model over the chunks of a corpus, on one rank or several."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn

import torch
import typer
from jaxtyping import Float, Int
from torch import Tensor, distributed, nn

import glasshead as gh
from glasshead.cli.attention_options import StatisticOption
from glasshead.cli.inputs.texts import TextChunks
from glasshead.cli.observe_tables import MAP, pooled_map
from glasshead.statistics import Statistic
from glasshead.tasks.readers.base import Reader
from glasshead.watching import UnseenError

# A rank that has much to read is waited for; one that has died is noticed at once.
_PATIENCE = timedelta(hours=2)


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
    device: torch.device

    @property
    def is_rank_zero(self) -> bool:
        """Whether this rank prints and writes."""
        return self.rank == 0

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run a block on all ranks; an error in one of them ends all.

        Errors: that of this rank; where another has failed, a ValueError with its message on rank
        0, and on the others the exit.
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
        told: list[str | None] = [None] * self.world_size
        with _others():
            distributed.all_gather_object(told, None if own is None else _sentence(own))
        if any(told):
            self._end(own, told)

    def _end(self, own: Exception | None, told: list[str | None]) -> NoReturn:
        """Fail; only rank 0 says how, and is given the time to."""
        if not self.is_rank_zero:
            time.sleep(1.0)
            # The exit code of bad input.
            raise typer.Exit(2)
        if own is not None:
            raise own
        place, sentence = next((place, said) for place, said in enumerate(told) if said)
        raise ValueError(f"process {place} of {self.world_size}: {sentence}")


@contextmanager
def connected_ranks(world_size: int, local_rank: int) -> Iterator[Ranks]:
    """Connect the processes that torchrun started, or the only one; each takes a GPU if any.

    Args:
        world_size: Number of processes that torchrun started; 0 where it started none.
        local_rank: Rank of this process on its machine.

    Errors: an OSError where another process has ended.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device = torch.device("cuda", local_rank % gpus) if gpus else torch.device("cpu")
    if not world_size:
        yield Ranks(0, 1, device)
        return
    if gpus:
        torch.cuda.set_device(device)
    with _others():
        distributed.init_process_group("nccl" if gpus else "gloo", timeout=_PATIENCE)
    try:
        with _others():
            yield Ranks(distributed.get_rank(), world_size, device)
            # A rank that leaves early may tear down the others in the middle of their work.
            distributed.barrier()
    finally:
        distributed.destroy_process_group()


@contextmanager
def _others() -> Iterator[None]:
    """Raise an OSError in one sentence where another process is gone."""
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


# Statistics by position are those of chunks which have all positions.
_BY_POSITION = (("key",), ("row", "column"))


@dataclass(frozen=True, eq=False)
class Gathered:
    """Statistics of each layer and head over a corpus.

    Attributes:
        layers: Names of the attention layers.
        statistics: The statistics by name; the pooled map is one more, unless lengths differ.
        values: Tensors `[layers, heads, …]` in float64, by name.
    """

    layers: tuple[str, ...]
    statistics: dict[str, Statistic]
    values: dict[str, Float[Tensor, "layers heads *rest"]]


class CorpusObserver:
    """Accumulates statistics of a model while it reads chunks, over several ranks too.

    Args:
        reader: The model.
        pieces: The chunks.
        asked: The statistics.
        ranks: The ranks that share the chunks.

    Errors: a ValueError where a statistic does not fit.
    """

    def __init__(
        self,
        reader: Reader,
        pieces: TextChunks,
        asked: tuple[StatisticOption, ...],
        ranks: Ranks,
    ) -> None:
        self._reader, self._pieces, self._ranks = reader, pieces, ranks
        self.statistics: dict[str, Statistic] = {one.name: one.build() for one in asked}
        if not pieces.uneven:
            self.statistics[MAP] = pooled_map(pieces.length, pieces.length)
        _check(self.statistics, pieces)
        # Texts of several lengths have each its own positions; pieces have them all, but the last.
        of_full = {
            name: one
            for name, one in self.statistics.items()
            if one.axes in _BY_POSITION and not pieces.uneven
        }
        of_all = {name: one for name, one in self.statistics.items() if name not in of_full}
        self._of_all, self._of_full = (self._corpus(some) for some in (of_all, of_full))

    def read(
        self, checked: Callable[[int, int], None], progress: Callable[[int, int], None]
    ) -> None:
        """Read the share of this rank.

        Args:
            checked: Called once with the number of layers, and of heads of the first.
            progress: Called with the number of tokens read, and the total; within a batch, tokens
                count in proportion to the layers that it has passed.

        Errors: a ValueError where a statistic does not fit, and those of `checked`.
        """
        share = self._pieces.shard(self._ranks.rank, self._ranks.world_size)
        done, of = 0, sum(batch.numel() for batch in share)
        with torch.inference_mode(), _progress_of_layers(self._reader.model) as layers:
            with self._ranks.together():
                for batch in share[:1]:
                    layers.begin(batch.numel(), lambda read: progress(read, of))
                    seen = self._watch(batch)
                    done = batch.numel()
                    if seen:
                        checked(len(seen), next(iter(seen.values()))[0].shape[-2])
            for batch in share[1:]:
                progress(done, of)
                layers.begin(batch.numel(), lambda read, before=done: progress(before + read, of))
                self._watch(batch)
                done += batch.numel()
        progress(of, of)

    def gathered(self) -> Gathered:
        """Gather the statistics of all ranks.

        Errors: a ValueError where numbers overflow, or layers have unlike many heads.
        """
        results = [
            corpus.compute() for corpus in (self._of_all, self._of_full) if corpus is not None
        ]
        by_name = {name: result for result in results for name in result.statistics}
        values = {name: by_name[name].stacked(name).cpu() for name in self.statistics}
        if not all(value.isfinite().all() for value in values.values()):
            raise ValueError(
                "the scores grow beyond all numbers: train the model again, or name another."
            )
        return Gathered(tuple(results[0]), self.statistics, values)

    def _corpus(self, statistics: dict[str, Statistic]) -> Any:
        if not statistics:
            return None
        corpus = gh.CorpusStatistics(statistics, positions=self._pieces.length)
        return corpus.to(self._ranks.device)

    def _watch(self, batch: Int[Tensor, "pieces length"]) -> Any:
        """Observe the model on a batch, and update the statistics."""
        full = batch.shape[1] == self._pieces.length
        asked = (self._of_all, self._of_full if full else None)
        corpora = [corpus for corpus in asked if corpus is not None]
        if not corpora:
            return {}
        statistics = {name: one for corpus in corpora for name, one in corpus.statistics.items()}
        with unseen_as_value_error(), gh.watch(self._reader.model, statistics) as seen:
            self._reader.read(batch.to(self._ranks.device))
        for corpus in corpora:
            corpus.update(seen)
        return seen


class _Layers:
    """Reports progress within a batch, in proportion to the layers that it has passed.

    Args:
        count: Number of layers.
    """

    def __init__(self, count: int) -> None:
        self._count, self._passed, self._tokens = count, 0, 0
        self._told: Callable[[int], None] | None = None

    def begin(self, tokens: int, told: Callable[[int], None]) -> None:
        """Begin a batch with this number of tokens."""
        self._passed, self._tokens, self._told = 0, tokens, told

    def __call__(self, *of_the_module: object) -> None:
        del of_the_module
        # A layer may run more than once.
        self._passed = min(self._passed + 1, self._count)
        if self._told is not None:
            self._told(self._tokens * self._passed // self._count)


@contextmanager
def _progress_of_layers(model: nn.Module) -> Iterator[_Layers]:
    """Hook the layers of a model, the modules of its longest list, to report progress."""
    lists = (list(one) for one in model.modules() if isinstance(one, nn.ModuleList))
    # A hook on one of PyTorch's own would turn off what it runs as one operator.
    blocks = [
        one
        for one in max(lists, key=len, default=[])
        if not isinstance(one, nn.TransformerEncoderLayer | nn.MultiheadAttention)
    ]
    layers = _Layers(len(blocks))
    hooks = [one.register_forward_hook(layers) for one in blocks]
    try:
        yield layers
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def unseen_as_value_error() -> Iterator[None]:
    """Raise an `UnseenError` of a watch as a ValueError, which is bad input."""
    try:
        yield
    except UnseenError as error:
        raise ValueError(str(error)) from error


def _check(statistics: dict[str, Statistic], pieces: TextChunks) -> None:
    """Check that the statistics fit the longest chunk."""
    text = torch.empty(1, 1, pieces.length, 1, device="meta")
    gh.Attention().plan(text, text, text, statistics=statistics)
