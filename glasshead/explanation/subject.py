"""The subject of an explanation: one query of a trace, its words and its language."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glasshead.drawing import Block, HeatMap, Paragraph, Table
from glasshead.engines.reference import as_computed
from glasshead.explanation.figures import figure
from glasshead.explanation.language import Say
from glasshead.ladder.worked_example import WorkedExample
from glasshead.recipe.problem import Problem, Trace

if TYPE_CHECKING:
    from glasshead.explanation.embeddings import Projection


MOST_ROWS = 12
"""A table of more keys shows those with the largest weights, and one row for the others."""
MOST_WRITTEN = 6
"""Of more keys than this, sums are written out for a few."""
_WRITTEN = 4

Pairs = Literal["scores", "scaled", "capped", "masked", "weights", "dropped"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """One query of a trace, and what the steps need to tell it.

    Attributes:
        trace: All the numbers.
        index: The leading axes told, (batch…, head).
        position: Which query is told.
        query_names, key_names: The words, each printable and no two alike.
        same_words: Whether queries and keys are the same words.
        say: Says a sentence in the language asked for.
        projection: The embeddings and matrices that queries, keys and values were made from.
        printed: A worked example whose printed numbers stand beside the exact ones.
    """

    trace: Trace
    index: tuple[int, ...]
    position: int
    query_names: tuple[str, ...]
    key_names: tuple[str, ...]
    same_words: bool
    say: Say
    projection: "Projection | None" = None
    printed: WorkedExample | None = None

    @property
    def problem(self) -> Problem:
        return self.trace.problem

    @property
    def name(self) -> str:
        """The word whose query is told."""
        return self.query_names[self.position]

    @property
    def heads(self) -> int:
        """How many heads the queries have, 1 where the layout has none."""
        return self.problem.query.shape[-3]

    @property
    def head(self) -> int:
        """Which head is told."""
        return self._full_index[-1]

    @property
    def key_head(self) -> int:
        """Which head of the keys and values that head reads."""
        return self.head // self.problem.group

    @property
    def key_heads(self) -> int:
        """How many heads the keys and values have."""
        return self.problem.key.shape[-3]

    @property
    def beta(self) -> float:
        """The inverse temperature of the head that is told."""
        scale = self.problem.scale
        if not isinstance(scale, Tensor):
            return scale
        return scale.detach().flatten()[self.head if scale.numel() > 1 else 0].item()

    @property
    def _full_index(self) -> tuple[int, ...]:
        """The index into tensors that always have heads, as the problem's."""
        return self.index if self.problem.axes > 3 else (*self.index, 0)

    @property
    def _key_index(self) -> tuple[int, ...]:
        return (*self._full_index[:-1], self.key_head)

    def matrix(self, step: Pairs) -> Float[Tensor, "queries keys"]:
        """One step of the trace between the scores and the context, for the head that is told."""
        return _plain(getattr(self.trace, step)[self.index])

    def row(self, step: Pairs) -> list[float]:
        """The same for the query that is told: a number for each key."""
        return self.matrix(step)[self.position].tolist()

    @cached_property
    def queries(self) -> Float[Tensor, "queries dim"]:
        return _plain(self.problem.query[self._full_index])

    @cached_property
    def keys(self) -> Float[Tensor, "keys dim"]:
        return _plain(self.problem.key[self._key_index])

    @cached_property
    def values(self) -> Float[Tensor, "keys value_dim"]:
        return _plain(self.problem.value[self._key_index])

    @cached_property
    def context(self) -> Float[Tensor, "queries value_dim"]:
        return _plain(self.trace.context[self.index])

    @cached_property
    def used(self) -> tuple[Float[Tensor, "dim"], Float[Tensor, "keys dim"]]:
        """The query and the keys as they were scored."""
        query, key, _ = as_computed(self.problem, self._bias_and_visible[1])
        return _plain(query[self._full_index])[self.position], _plain(key[self._key_index])

    @cached_property
    def _bias_and_visible(self) -> tuple[Tensor | None, Tensor | None]:
        return self.problem.bias_and_visible(self.problem.mask, self.problem.tile())

    @cached_property
    def visible_in_row(self) -> Bool[Tensor, "heads queries keys"] | None:
        """Which pairs are visible in this row of the batch; None where nothing is hidden."""
        visible = self._bias_and_visible[1]
        if visible is None:
            return None
        return visible.expand(self.problem.scores_shape)[self._full_index[:-1]].detach().cpu()

    @property
    def visible(self) -> Bool[Tensor, "queries keys"] | None:
        """The same in the head that is told."""
        return None if self.visible_in_row is None else self.visible_in_row[self.head]

    @cached_property
    def bias(self) -> Float[Tensor, "queries keys"] | None:
        """What was added to the scores; None without a bias."""
        bias = self._bias_and_visible[0]
        if bias is None:
            return None
        return _plain(bias.expand(self.problem.scores_shape)[self._full_index])

    @cached_property
    def seen(self) -> list[int]:
        """The keys that the query can see."""
        if self.visible is None:
            return list(range(len(self.key_names)))
        return self.visible[self.position].nonzero().flatten().tolist()

    @cached_property
    def by_weight(self) -> list[int]:
        """The keys from the largest weight on; of equal ones the visible first, then the first."""
        weights, seen = self.row("weights"), set(self.seen)
        return sorted(
            range(len(weights)),
            key=lambda key: (-_size(weights[key]), key not in seen, key),
        )

    @property
    def written(self) -> list[int]:
        """The keys whose sums are written out: all of a few, else the visible that weigh most.

        Of many keys that are all hidden, they are the first.
        """
        if len(self.key_names) <= MOST_WRITTEN:
            return list(range(len(self.key_names)))
        seen = set(self.seen)
        visible = [key for key in self.by_weight if key in seen]
        return sorted((visible or self.by_weight)[:_WRITTEN])

    @property
    def shown(self) -> list[int]:
        """The keys that have a row in a table: all, or those that weigh most, in reading order."""
        if len(self.key_names) <= MOST_ROWS:
            return list(range(len(self.key_names)))
        return sorted(self.by_weight[: MOST_ROWS - 2])


def _plain(tensor: Tensor) -> Tensor:
    """A tensor to be read: here, without a gradient, of a type that every number of it fits."""
    return tensor.detach().cpu()


def _size(weight: float) -> float:
    """A weight to sort by; what is not a number comes last."""
    return weight if weight == weight else float("-inf")  # noqa: PLR0124 - NaN is not itself


_MOST_DRAWN = 2048 * 2048


def shown_weights(subject: Subject) -> Float[Tensor, "queries keys"]:
    """The weights of the head that is told, NaN where hidden."""
    weights = subject.matrix("weights").double()
    if subject.visible is None:
        return weights
    return weights.masked_fill(~subject.visible, torch.nan)


def heat_map(
    subject: Subject,
    weights: Tensor,
    rows: tuple[str, ...],
    *,
    caption: str,
    highlight: int | None = None,
) -> Block:
    """A heat map of weights, NaN where hidden, or why it cannot be drawn."""
    if weights.numel() > _MOST_DRAWN:
        return Paragraph(
            subject.say(
                "This matrix is too large to be drawn here: it has {rows} rows and {columns} "
                "columns.",
                rows=len(rows),
                columns=len(subject.key_names),
            )
        )
    if bool((weights < 0).any()) or bool(weights.isinf().any()):
        return Paragraph(
            subject.say(
                "These weights cannot be drawn as a heat map, as some are negative or infinite."
            )
        )
    return HeatMap(weights, rows, subject.key_names, caption=caption, highlight_row=highlight)


@dataclass(frozen=True)
class Column:
    """A number for each key; those of a share are worth adding up."""

    head: str
    values: Sequence[float]
    share: bool = False


def key_table(
    subject: Subject, columns: Sequence[Column], *, caption: str | None = None, total: bool = False
) -> Table:
    """Numbers by key: all keys, or those that weigh most and one row for the others together.

    Args:
        subject: Whose keys they are.
        columns: What stands behind each key.
        caption: What the table shows.
        total: Whether a last row has the sums of the shares.
    """
    say, shown = subject.say, subject.shown
    others = sorted(set(range(len(subject.key_names))) - set(shown))
    rows = [[subject.key_names[key], *(figure(c.values[key]) for c in columns)] for key in shown]
    if others:
        rows.append([say("… and {count} others", count=len(others)), *_sums(columns, others)])
    if total:
        rows.append([say("together"), *_sums(columns, range(len(subject.key_names)))])
    return Table([say("key"), *(column.head for column in columns)], rows, caption=caption)


def _sums(columns: Sequence[Column], keys: Sequence[int]) -> list[str]:
    """The sum of each share over some keys."""
    return [
        figure(fsum(column.values[key] for key in keys)) if column.share else ""
        for column in columns
    ]
