"""What a watch has seen of a model: layers by name, summary tables, pandas, files."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.attention.io import describe_values, found, tensors_of
from glasshead.attention.tensor_files import read, understood, write
from glasshead.attention.to_pandas import import_pandas
from glasshead.drawing import Block, Document, Paragraph, Table, number
from glasshead.recipe.validation import whole_number
from glasshead.statistics import MaxScore, Statistic
from glasshead.watching.layer_record import Call, CallInfo, Watched

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Summary:
    """Numbers of each layer and head, that print as tables, in a notebook too.

    Attributes:
        names: Of the layers.
        values: Of each statistic a number a head, a row for each layer; NaN where there is none.
        statistics: What they are.
        heads: Which heads they are, where not all were asked for.

    >>> import glasshead as gh
    >>> rule, x = gh.Attention(mask=gh.causal()), torch.eye(4).expand(2, 3, 4, 4)
    >>> with gh.watch(rule, [gh.Entropy()]) as seen:
    ...     context = rule(x, x, x)
    >>> print(seen.summary())
    The attention of 1 layer
    ━━━━━━━━━━━━━━━━━━━━━━━━
    <BLANKLINE>
    entropy, nats: mean over queries
    layer      head 0  head 1  head 2
    ─────────────────────────────────
    the model  0.7726  0.7726  0.7726
    """

    names: tuple[str, ...]
    values: dict[str, list[list[float]]]
    statistics: dict[str, Statistic]
    heads: tuple[int, ...] | None = None

    @classmethod
    def of(cls, watched: Mapping[str, Watched]) -> "Summary":
        """The numbers of all calls of each attention."""
        statistics = next(iter(watched.values()))[0].statistics if watched else {}
        values = {
            name: [_of_heads(one, name, statistic) for one in watched.values()]
            for name, statistic in statistics.items()
            if (statistic.axes == ("query",) and statistic.has_mean)
            or isinstance(statistic, MaxScore)
        }
        heads = next(iter(watched.values()))[0].heads if watched else None
        return cls(tuple(watched), values, statistics, heads)

    def document(self) -> Document:
        """The same as a document for the terminal or a page."""
        blocks: list[Block] = [self._table(name, rows) for name, rows in self.values.items()]
        blocks += [
            Paragraph(f"{name} names keys, which have no mean: to_frame() has each.")
            for name, one in self.statistics.items()
            if one.axes == ("query",) and not one.has_mean
        ]
        said = Paragraph("Nothing that was asked is a number a query or a head.")
        layers = "1 layer" if len(self.names) == 1 else f"{len(self.names)} layers"
        return Document(blocks or [said], title=f"The attention of {layers}")

    def _table(self, name: str, rows: list[list[float]]) -> Table:
        statistic = self.statistics[name]
        of = "the largest" if isinstance(statistic, MaxScore) else "mean over queries"
        most = max(map(len, rows))
        names, pattern = short(self.names)
        cells = [[*(number(x) for x in row), *[""] * (most - len(row))] for row in rows]
        return Table(
            ["layer", *(f"head {head}" for head in self.heads or range(most))],
            [[layer or "the model", *row] for layer, row in zip(names, cells, strict=True)],
            caption=f"{name}{pattern and f' of {pattern}'}, {statistic.unit}: {of}",
        )

    def __str__(self) -> str:
        return self.document().text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.document()._repr_html_()


def _of_heads(watched: Watched, name: str, statistic: Statistic) -> list[float]:
    """A number for each head, over all calls."""
    axes = len(statistic.axes)
    flat = [
        _tokens(_heads_last(call[name], len(call.shape) > 2, axes), call, axes) for call in watched
    ]
    every = torch.cat(flat)
    if isinstance(statistic, MaxScore):
        return every.amax(0).tolist()
    # The logsumexp of a query that sees nothing is -inf, and has no part in a mean.
    return torch.where(every.isfinite(), every, torch.nan).nanmean(0).tolist()


def _tokens(
    values: Float[Tensor, "numbers heads"], call: Call, axes: int
) -> Float[Tensor, "tokens heads"]:
    """Leave out the queries that are padding, of what is a number a query."""
    return values if call.real is None or not axes else values[call.real.reshape(-1)]


def _heads_last(
    value: Float[Tensor, "..."], headed: bool, axes: int
) -> Float[Tensor, "numbers heads"]:
    """A statistic as a column for each head; texts without heads have one."""
    place = -1 - axes
    value = value.double() if headed else value.double().unsqueeze(place)
    return value.movedim(place, -1).flatten(0, -2) if value.ndim > 1 else value[None]


def short(names: Sequence[str]) -> tuple[list[str], str]:
    """What tells names apart, and the pattern that the rest of them is; "" where there is none.

    >>> short(["model.layers.0.self_attn", "model.layers.1.self_attn"])
    (['0', '1'], 'model.layers.*.self_attn')
    >>> short(["encoder.attention", "decoder.layers.0"])
    (['encoder.attention', 'decoder.layers.0'], '')
    """
    parts = [name.split(".") for name in names]
    places = [at for at, one in enumerate(zip(*parts, strict=False)) if len(set(one)) > 1]
    if len({len(one) for one in parts}) != 1 or len(places) != 1:
        return list(names), ""
    (at,) = places
    return [one[at] for one in parts], ".".join([*parts[0][:at], "*", *parts[0][at + 1 :]])


def frame(watched: Mapping[str, Watched], names: Sequence[str | Statistic]) -> "pd.DataFrame":
    """All calls below each other, as `Seen.to_frame` has them."""
    pandas = import_pandas()
    if not watched:
        raise ValueError("to_frame takes what was seen, and nothing was: run the model first.")
    tables, keys = [], []
    for name, calls in watched.items():
        for place, call in enumerate(calls):
            table = call.to_frame(*names)
            table = _numbered(table, call)
            tables.append(table)
            keys.append((name, place))
    return pandas.concat(tables, keys=keys, names=["layer", "call"])


def _numbered(table: "pd.DataFrame", call: Call) -> "pd.DataFrame":
    """The same with queries numbered as in the text, and heads as in the model."""
    if not call.position and call.heads is None:
        return table
    index = table.index.to_frame(index=False)
    if "query" in index:
        index["query"] += call.position
    if "head" in index and call.heads is not None:
        index["head"] = [call.heads[head] for head in index["head"]]
    return table.set_index([index[name] for name in index.columns])


_KIND = "watch"
# Beside statistics, whose names are words.
_REAL = "#real"


def save(file: str | os.PathLike[str], watched: Mapping[str, Watched]) -> None:
    """Write every call."""
    tensors: dict[str, Tensor] = {}
    layers: dict[str, Any] = {}
    for name, calls in watched.items():
        layers[name] = []
        for place, call in enumerate(calls):
            own = tensors_of(call.values)
            tensors |= {f"{name}/{place}/{value}": tensor for value, tensor in own.items()}
            if call.real is not None:
                tensors[f"{name}/{place}/{_REAL}"] = call.real
            stands = {"position": call.position, "first_key": call.first_key, "keys": call.keys}
            heads = None if call.heads is None else list(call.heads)
            layers[name].append(
                {
                    "shape": list(call.shape),
                    **stands,
                    "crossing": call.crossing,
                    "pass": [call.forward, call.run, call.interleaved],
                    "heads": heads,
                    "statistics": describe_values(call.statistics, call.values),
                }
            )
    write(file, _KIND, {"layers": layers}, tensors)


def load(file: str | os.PathLike[str]) -> dict[str, Watched]:
    """Every call, by the names of the layers."""
    description, tensors = read(file, _KIND)
    with understood(file, _KIND):
        own: defaultdict[str, dict[str, Tensor]] = defaultdict(dict)
        for name, tensor in tensors.items():
            call, _, value = name.rpartition("/")
            own[call][value] = tensor
        return {name: _watched(name, calls, own) for name, calls in description["layers"].items()}


def _watched(
    name: str, calls: Sequence[Mapping[str, Any]], own: Mapping[str, Mapping[str, Tensor]]
) -> Watched:
    """The calls of a layer, of which there is one at least."""
    if not calls:
        raise ValueError(f"{name!r} has no call")
    return Watched(name, [_call(told, own[f"{name}/{place}"]) for place, told in enumerate(calls)])


def _call(told: Mapping[str, Any], own: Mapping[str, Tensor]) -> Call:
    statistics, values = found(told["statistics"], own)
    shape = tuple(whole_number(length, "shape") for length in told["shape"])
    if not shape:
        raise ValueError("a call has one axis at least")
    heads, crossing = told["heads"], told.get("crossing", False)
    if crossing not in (True, False):
        raise ValueError("a call crosses or does not")
    forward, run, interleaved = told.get("pass", (0, 0, False))
    if interleaved not in (True, False):
        raise ValueError("a call is interleaved or not")
    info = CallInfo(
        position=whole_number(told["position"], "position"),
        first_key=whole_number(told["first_key"], "first_key"),
        keys=whole_number(told["keys"], "keys"),
        crossing=crossing,
        heads=None if heads is None else tuple(whole_number(head, "heads") for head in heads),
        real=_real(own.get(_REAL), shape),
        forward=whole_number(forward, "forward"),
        run=whole_number(run, "run"),
        interleaved=interleaved,
    )
    return Call(shape, statistics, values, info)


def _real(real: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    """Check which queries are real tokens, `[batch, queries]`."""
    if real is not None and (
        real.dtype != torch.bool or real.ndim != 2 or real.shape[1] != shape[-1]
    ):
        raise ValueError(f"a call of {shape[-1]} queries has {list(real.shape)} that are real")
    return real


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
        save(file, self._watched)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> "Seen":
        """Read what `save` has written; nothing in the file is run.

        Errors: an OSError where the file cannot be read; a ValueError where it holds no such thing.
        """
        return cls(load(file))

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
