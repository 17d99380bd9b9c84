"""Seen: what a watch has seen of a model, by the names of its modules."""

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from glasshead.statistics import Statistic
from glasshead.watching import saved_seen as saved
from glasshead.watching.frames import frame
from glasshead.watching.summary import Summary
from glasshead.watching.watched import Watched

if TYPE_CHECKING:
    import pandas as pd


class Seen(Mapping[str, Watched]):
    """What was seen of each attention of a model, by the dotted name of its module.

    `seen["model.layers.11.self_attn"].entropy` is that of the last text it was given, prefill and
    steps together; `seen[name][i]` is one of its calls.

    It can be saved, put into a table, and summed up.

    >>> import torch
    >>> import glasshead as gh
    >>> model = gh.LanguageModel(gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3))
    >>> cache = model.new_cache()
    >>> with gh.watch(model, [gh.Received()], layers="blocks.[01]") as seen:
    ...     logits = model(torch.tensor([[3, 1, 4, 1]]), cache=cache)
    ...     logits = model(torch.tensor([[5]]), cache=cache)
    >>> seen
    Seen: 2 attentions
    blocks.0.attention: 2 calls, the last of 1 query on 5 keys
    blocks.1.attention: 2 calls, the last of 1 query on 5 keys
    >>> seen["blocks.1.attention"].received.shape
    torch.Size([1, 3, 5])
    """

    def __init__(self, watched: Mapping[str, Watched]) -> None:
        self._watched = watched

    def __getitem__(self, name: str) -> Watched:
        if name not in self._watched:
            raise KeyError(f"{name!r} was not seen; there is {_some(list(self))}.")
        return self._watched[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._watched)

    def __len__(self) -> int:
        return len(self._watched)

    @property
    def layers(self) -> dict[str, Watched]:
        """Every layer by its name; a module that runs several times in a pass is one in each run.

        Names of runs are "name#0", "name#1" and so on.
        """
        return {run.name: run for watched in self.values() for run in watched.runs}

    def summary(self) -> Summary:
        """A table for each statistic that is a number a query or a head: layers × heads.

        A number a query is averaged over the queries of all calls, without padding. A query that
        sees no key counts with 0; of a logsumexp it is left out. What names keys, such as `ArgMax`,
        has no mean, and no table: `to_frame` has it.
        """
        return Summary.of(self.layers)

    def to_frame(self, *names: "str | Statistic") -> "pd.DataFrame":
        """All calls as one pandas table: a row for each layer, call, batch row, head and query.

        Queries that are padding have no row. They are numbered as the tokens of their row of the
        batch are, padding included.

        Args:
            names: Names, or statistics, of the same axes; without any, all that have one number a
                query.

        Errors: as of `Observation.to_frame`, and a ValueError where nothing was seen.

        >>> import torch
        >>> import glasshead as gh
        >>> rule, x = gh.Attention(mask=gh.causal()), torch.eye(2).expand(1, 1, 2, 2)
        >>> with gh.watch(rule, [gh.Entropy()]) as seen:
        ...     context = rule(x, x, x)
        >>> seen.to_frame().round(3)
                                     entropy
        layer call batch head query
              0    0     0    0        0.000
                              1        0.634
        """
        return frame(self.layers, names)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write every call as safetensors: `layer/call/statistic`, and what each is as JSON.

        Kept weights are not written: save those that are wanted by `Weights.save`.

        Errors: an OSError where the file cannot be written; then an older one is as it was.

        >>> import tempfile
        >>> from pathlib import Path
        >>> import torch
        >>> import glasshead as gh
        >>> rule, x = gh.Attention(), torch.eye(3)
        >>> with gh.watch(rule, [gh.Entropy()]) as seen:
        ...     context = rule(x, x, x)
        >>> file = Path(tempfile.mkdtemp()) / "seen.safetensors"
        >>> seen.save(file)
        >>> gh.Seen.load(file)[""].entropy.equal(seen[""].entropy)
        True
        """
        saved.save(file, self._watched)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> "Seen":
        """Read what `save` has written; nothing in the file is run.

        Errors: an OSError where the file cannot be read; a ValueError where it holds no such thing.
        """
        return cls(saved.load(file))

    def __repr__(self) -> str:
        lines = [f"Seen: {_counted(len(self), 'attention', 'attentions')}"]
        for name, watched in self.items():
            calls, last = _counted(len(watched), "call", "calls"), watched[-1]
            queries = _counted(last.queries, "query", "queries")
            keys = _counted(last.keys, "key", "keys")
            lines.append(f"{name or 'the model'}: {calls}, the last of {queries} on {keys}")
        return "\n".join(lines if len(lines) < 9 else [*lines[:4], "…", *lines[-3:]])


def _counted(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


def _some(names: list[str]) -> str:
    return ", ".join([*map(repr, names[:3]), *(["…"] if len(names) > 3 else [])]) or "nothing"
