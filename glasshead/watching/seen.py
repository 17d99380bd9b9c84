"""The result of a watch: layers by name, summary tables and pandas tables."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.attention.observe import import_pandas
from glasshead.drawing import Block, Document, Paragraph, Table, number
from glasshead.recipe.validation import in_float64
from glasshead.statistics import MaxScore, Statistic
from glasshead.watching.foreign import answer
from glasshead.watching.gathering import gathered
from glasshead.watching.layer_record import Watched
from glasshead.watching.other_mixers import Unobserved, in_order, named
from glasshead.watching.recorded_call import ATTENTION, Call
from glasshead.watching.seen_file import load, save
from glasshead.watching.texts import rows_of_beams

if TYPE_CHECKING:
    import pandas as pd


class Printed(ABC):
    """Base class of results that are printed as the tables of a document, in notebooks too."""

    @abstractmethod
    def document(self) -> Document:
        """Return the tables as a document for the terminal or a page."""

    def __str__(self) -> str:
        return self.document().text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.document()._repr_html_()


@dataclass(frozen=True, eq=False, repr=False)
class Summary(Printed):
    """A summary of each layer and head, printed as tables, in notebooks too.

    Attributes:
        names: Names of the layers.
        values: For each statistic a row per layer, with one number per head; NaN where undefined.
        statistics: The statistics by name.
        heads: Indices of the heads, where only some were requested.

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
        """Summarize all calls of each attention."""
        statistics = {n: s for one in watched.values() for n, s in one[0].statistics.items()}
        values = {
            name: [
                _of_heads(one, name, statistic) if name not in one[0].refused else []
                for one in watched.values()
            ]
            for name, statistic in statistics.items()
            if (statistic.axes == ("query",) and statistic.has_mean)
            or isinstance(statistic, MaxScore)
        }
        heads = next(iter(watched.values()))[0].heads if watched else None
        names = tuple(_labelled(name, one[0]) for name, one in watched.items())
        return cls(names, values, statistics, heads)

    def document(self) -> Document:
        blocks: list[Block] = [self._table(name, rows) for name, rows in self.values.items()]
        blocks += [
            Paragraph(f"{name} names keys, which have no mean: to_frame() has each.")
            for name, one in self.statistics.items()
            if one.axes == ("query",) and not one.has_mean
        ]
        empty = Paragraph("Nothing that was asked is a number a query or a head.")
        layers = counted(len(self.names), "layer")
        return Document(blocks or [empty], title=f"The attention of {layers}")

    def _table(self, name: str, rows: list[list[float]]) -> Table:
        statistic = self.statistics[name]
        of = "the largest" if isinstance(statistic, MaxScore) else "mean over queries"
        most = max(map(len, rows))
        names, pattern = short([n for n, row in zip(self.names, rows, strict=True) if row])
        rows = [row for row in rows if row]
        cells = [[*(number(x) for x in row), *[""] * (most - len(row))] for row in rows]
        return Table(
            ["layer", *(f"head {head}" for head in self.heads or range(most))],
            [[layer or "the model", *row] for layer, row in zip(names, cells, strict=True)],
            caption=f"{name}{pattern and f' of {pattern}'}, {statistic.unit}: {of}",
        )


def _labelled(name: str, call: Call) -> str:
    """Return the name of a layer, and how many channels its one number is the mean of."""
    return f"{name} (mean of {call.shape[-2]} channels)" if call.channels else name


def _of_heads(watched: Watched, name: str, statistic: Statistic) -> list[float]:
    """Reduce a statistic over all calls to one number per head; of channels, to one in all."""
    axes = len(statistic.axes)
    flat = []
    for _, call in watched.kept:
        numbers = heads_last(in_float64(call[name]), len(call.shape) > 2, axes)
        if call.real is not None and axes:
            numbers = numbers[call.real.reshape(-1).to(numbers.device)]
        flat.append(numbers)
    every = torch.cat(flat)
    if isinstance(statistic, MaxScore):
        return every.amax(0).tolist()
    # The logsumexp of an empty row is -inf, and is left out of the mean.
    means = torch.where(every.isfinite(), every, torch.nan).nanmean(0)
    return [float(means.mean())] if watched[0].channels else means.tolist()


def heads_last(value: Tensor, headed: bool, axes: int = 1) -> Float[Tensor, "numbers heads"]:
    """Reshape a statistic to one column per head; inputs without heads have one.

    Args:
        value: Its value.
        headed: Whether the inputs have heads.
        axes: Number of its axes, which come after that of the heads.
    """
    place = -1 - axes
    value = value if headed else value.unsqueeze(place)
    return value.movedim(place, -1).flatten(0, -2) if value.ndim > 1 else value[None]


def counted(count: int, one: str, several: str | None = None) -> str:
    """Format a count with its noun.

    >>> counted(1, "query", "queries"), counted(2, "layer")
    ('1 query', '2 layers')
    """
    return f"{count} {one if count == 1 else several or f'{one}s'}"


def short(names: Sequence[str]) -> tuple[list[str], str]:
    """Split names into the part that varies and their common pattern; "" where there is none.

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
    """Concatenate the tables of all calls, for `Seen.to_frame`."""
    pandas = import_pandas()
    if not watched:
        raise ValueError(
            "to_frame needs a watch that observed attention, but this one observed none. Run the "
            "model inside the block."
        )
    tables, keys = [], []
    for name, calls in watched.items():
        for place, call in calls.kept:
            if not call.has(names):
                continue
            table = call.to_frame(*names)
            table = _numbered(table, call)
            tables.append(table)
            keys.append((name, place))
    return pandas.concat(tables, keys=keys, names=["layer", "call"])


def _numbered(table: "pd.DataFrame", call: Call) -> "pd.DataFrame":
    """Number the queries of a table as in the text, and its heads as in the model."""
    if not call.position and call.heads is None:
        return table
    index = table.index.to_frame(index=False)
    if "query" in index:
        index["query"] += call.position
    if "head" in index and call.heads is not None:
        index["head"] = [call.heads[head] for head in index["head"]]
    return table.set_index([index[name] for name in index.columns])


class Seen(Mapping[str, Watched]):
    """The observed attentions of a model, by the dotted name of their modules.

    `seen["model.layers.11.self_attn"].entropy` is the entropy of the last text, prefill and
    decoding steps joined; `seen[name][i]` is one call.

    It can be saved, converted to a table, and summarized.

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

    def __init__(
        self,
        watched: Mapping[str, Watched],
        unobserved: Callable[[], Mapping[str, Unobserved]] = dict,
        unexpected: Mapping[str, str] | None = None,
    ) -> None:
        self._watched, self._other_mixers = watched, unobserved
        self._unexpected = {} if unexpected is None else unexpected
        # What is followed of the logits of the last pass, for `logit_parts`.
        self.logits: Callable[[], Any] = _nothing

    def __getitem__(self, name: str) -> Watched:
        if name not in self._watched and name in (layers := self.observed):
            return layers[name]
        if name not in self._watched:
            raise KeyError(f"{name!r} was not observed. Use one of {_some(list(self))}.")
        return self._watched[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._watched)

    def __len__(self) -> int:
        return len(self._watched)

    @property
    def unexpected(self) -> dict[str, str]:
        """The first difference of each layer that ran with another mask than `expect=` states."""
        return dict(self._unexpected)

    @property
    def unobserved(self) -> dict[str, str]:
        """The layers that mix tokens by other means than attention, by name, and their classes.

        They stand in a stack of which other layers attend, such as Mamba layers or linear
        attention.
        """
        return {name: one.kind for name, one in self._other_mixers().items()}

    @property
    def unobserved_of_selected(self) -> dict[str, str]:
        """The layers in `unobserved` that `layers` of the watch selects."""
        return {name: one.kind for name, one in self._other_mixers().items() if one.selected}

    @property
    def layers(self) -> dict[str, Watched]:
        """All layers that mix tokens, by name, observed or not; `kind` states what each computes.

        A layer that was not observed has no calls, and its `observed` is False.

        >>> import torch
        >>> import glasshead as gh
        >>> rule, x = gh.Attention(), torch.eye(3)
        >>> with gh.watch(rule, [gh.Entropy()]) as seen:
        ...     context = rule(x, x, x)
        >>> {name: (layer.kind, layer.observed) for name, layer in seen.layers.items()}
        {'': ('attention', True)}
        """
        layers, found = self.observed, self._other_mixers()
        for name, one in found.items():
            layers[name] = Watched(name, kind=one.kind)
        return {name: layers[name] for name in in_order(layers)} if found else layers

    @property
    def observed(self) -> dict[str, Watched]:
        """The observed layers by name; a module that runs several times per pass is one per run.

        So is one that attends several times in one call. Runs are named "name#0", "name#1" and so
        on, by which `seen["name#1"]` gives them, too.
        """
        return {run.name: run for watched in self.values() for run in watched.runs}

    @property
    def missing(self) -> str | None:
        """The reason why part of what `keep` requests was not kept; None if all of it was."""
        calls = (call for watched in self.values() for call in watched)
        return next((call.missing for call in calls if call.missing), None)

    def gather(self) -> "Seen":
        """Gather all heads and queries of a model that is sharded over ranks, on each of them.

        In tensor parallel a rank computes some of the heads, in context parallel some of the
        queries: `call.heads` and `call.position` state which. All ranks call it, and all get the
        same: what one process would have seen, kept weights and context included, without
        gradients and traces. What is not sharded stays as it is.

        Errors: a ValueError if ranks have seen other calls.

        >>> import torch
        >>> import glasshead as gh
        >>> rule, x = gh.Attention(), torch.eye(3)
        >>> with gh.watch(rule, [gh.Entropy()]) as seen:
        ...     context = rule(x, x, x)
        >>> seen.gather()
        Seen: 1 attention
        the model: 1 call, the last of 3 queries on 3 keys
        """
        return Seen(gathered(self._watched), self._other_mixers, self._unexpected)

    def follow(self, beam_indices: Any = None) -> "Seen":
        """Return the texts that came out of a search by beams, each as one row.

        Rows of a cache change places while beams are searched, so that a row of the calls is not a
        text. `follow` puts the rows of each text together: statistics, weights, `rollout` and
        `token_timestamps` of the result equal the results of the text read alone.

        Args:
            beam_indices: The `beam_indices` of transformers' `generate`, with
                `return_dict_in_generate=True`: row i is then sequence i of its output. None: the
                texts that the rows of the last call continue, of any search.

        Errors: a TypeError if these are not whole numbers in two axes, a ValueError if they do not
        belong to these calls.

        >>> import torch
        >>> import glasshead as gh
        >>> model = gh.LanguageModel(gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3))
        >>> cache = model.new_cache()
        >>> with gh.watch(model, [gh.Entropy()], layers="blocks.0") as seen:
        ...     logits = model(torch.tensor([[3, 1], [4, 1]]), cache=cache)
        ...     cache.reorder(torch.tensor([1, 1, 0]))
        ...     logits = model(torch.tensor([[5], [9], [2]]), cache=cache)
        >>> seen.follow()["blocks.0.attention"].entropy.shape
        torch.Size([3, 3, 3])
        """
        indices = rows_of_beams(beam_indices)
        return Seen({name: one.followed(indices) for name, one in self._watched.items()})

    def summary(self) -> Summary:
        """Return a table, layers × heads, for each statistic with one number per query or head.

        Numbers per query are averaged over the queries of all calls, without padding. A query that
        sees no key counts as 0; it is omitted from the mean of a logsumexp. Statistics that name
        keys, such as `ArgMax`, have no mean, and no table: use `to_frame`.
        """
        return Summary.of(self.observed)

    def to_frame(self, *names: "str | Statistic") -> "pd.DataFrame":
        """Return all calls as one pandas table: a row per layer, call, batch row, head and query.

        Padded queries have no row; the others keep their index in the row, padding included.

        Args:
            names: Names, or statistics, of the same axes; without any, all with one number per
                query.

        Errors: as of `Observation.to_frame`, and a ValueError if nothing was seen.

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
        return frame(self.observed, names)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write every call as safetensors: `layer/call/statistic`, with metadata as JSON.

        Kept weights are not written: save them with `seen[name].weights.save`.

        Errors: an OSError if the file cannot be written; an older one is left unchanged.

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
        save(file, self._watched, self._other_mixers())

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> "Seen":
        """Read a file of `save`; no code of the file is run.

        Errors: an OSError if the file cannot be read; a ValueError for any other file.
        """
        watched, unobserved = load(file)
        return cls(watched, lambda: unobserved)

    def __repr__(self) -> str:
        lines = [f"Seen: {self._counted()}"]
        for name, watched in self.items():
            calls, last = counted(len(watched), "call"), watched[-1]
            queries = counted(last.queries, "query", "queries")
            on = f"{queries} on {counted(last.keys, 'key')}"
            lines.append(f"{name or 'the model'}: {calls}, the last of {on}")
        lines = lines if len(lines) < 9 else [*lines[:4], "…", *lines[-3:]]
        return "\n".join([*lines, *self._unobserved_lines()])

    def _counted(self) -> str:
        """Return how many attentions and mixers were observed."""
        attend = sum(one.kind == ATTENTION for one in self.values())
        mixers = len(self) - attend
        return counted(attend, "attention") + (f", {counted(mixers, 'mixer')}" if mixers else "")

    def _unobserved_lines(self) -> list[str]:
        """Describe the layers that mix tokens by other means, in a line."""
        found = self.unobserved
        if not found:
            return []
        mix = "layer mixes" if len(found) == 1 else "layers mix"
        return [f"Not observed: {len(found)} {mix} tokens by other means, {named(found)}"]

    def _repr_html_(self) -> str:
        rows = [
            [name or "the model", str(len(calls)), str(calls[-1].queries), str(calls[-1].keys)]
            for name, calls in self.items()
        ]
        table = Table(["layer", "calls", "queries of the last", "keys"], rows)
        blocks = [table, *self.summary().document().blocks] if rows else []
        blocks = [*map(Paragraph, self._unobserved_lines()), *blocks]
        title = f"Seen: {self._counted()}"
        return Document(blocks, title=title)._repr_html_()


def _nothing() -> None:
    return None


def end(seen: Seen) -> None:
    """Find the layers that were not observed, and release the model."""
    found = answer(seen._other_mixers) or {}  # noqa: SLF001 - of this module
    seen._other_mixers = lambda: found  # noqa: SLF001 - of this module


def _some(names: list[str]) -> str:
    return ", ".join([*map(repr, names[:3]), *(["…"] if len(names) > 3 else [])]) or "nothing"
