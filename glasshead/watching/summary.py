"""Summary: what was seen as tables, layers × heads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.drawing import Block, Document, Paragraph, Table, number
from glasshead.statistics import MaxScore, Statistic
from glasshead.watching.watched import Call, Watched


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
