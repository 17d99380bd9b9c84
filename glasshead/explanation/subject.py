"""The subject of an explanation: one query of a trace, its words and its numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Bool, Float
from rich.cells import cell_len
from torch import Tensor, nn

from glasshead.drawing import Block, HeatMap, Paragraph, Table
from glasshead.engines.reference import as_computed
from glasshead.explanation.figures import Figures
from glasshead.explanation.settings import ExplanationSettings
from glasshead.explanation.translations import Say
from glasshead.ladder.worked_example import WorkedExample
from glasshead.recipe.problem import Problem, Trace

if TYPE_CHECKING:
    from glasshead.explanation.embeddings import Projection


def aligned(lines: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Align equations `left = right` at their equals signs.

    >>> aligned([("s(sun)", "1"), ("s(shiny)", "2")])
    ('s(sun)   = 1', 's(shiny) = 2')
    """
    width = max((cell_len(left) for left, _ in lines), default=0)
    return tuple(f"{left}{' ' * (width - cell_len(left))} = {right}" for left, right in lines)


MOST_ROWS = 12
"""A table of more keys shows those with the largest weights, and one row for the others."""
MOST_WRITTEN = 6
"""Of more keys than this, sums are written out for a few."""
_WRITTEN = 4

Pairs = Literal["scores", "scaled", "capped", "masked", "weights", "dropped"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """One query of a trace, with the inputs of all steps of its explanation.

    Attributes:
        trace: The trace.
        index: Index of the leading axes, (batch…, head).
        position: Position of the explained query.
        query_names, key_names: The words, printable and distinct.
        same_words: Whether queries and keys are the same words.
        say: Translator to the requested language; it knows the word of the query.
        projection: The embeddings and matrices that gave queries, keys and values.
        settings: What the user chose.
        printed: A worked example, whose printed numbers are compared with the exact ones.
    """

    trace: Trace
    index: tuple[int, ...]
    position: int
    query_names: tuple[str, ...]
    key_names: tuple[str, ...]
    same_words: bool
    say: Say
    settings: ExplanationSettings
    projection: "Projection | None" = None
    printed: WorkedExample | None = None

    @cached_property
    def write(self) -> Figures:
        """Writes numbers, with the decimals and in the language that the user chose."""
        return Figures(self.say, self.settings.decimals)

    @property
    def problem(self) -> Problem:
        return self.trace.problem

    @property
    def name(self) -> str:
        """The word of the explained query."""
        return self.query_names[self.position]

    @property
    def heads(self) -> int:
        """Number of query heads, 1 where the layout has none."""
        return self.problem.query.shape[-3]

    @property
    def head(self) -> int:
        """Index of the explained head."""
        return self._full_index[-1]

    @property
    def key_head(self) -> int:
        """Index of the key-value head that it reads."""
        return self.head // self.problem.group

    @property
    def key_heads(self) -> int:
        """Number of key-value heads."""
        return self.problem.key.shape[-3]

    @property
    def beta(self) -> float:
        """The inverse temperature of the explained head."""
        return self.of_head(self.problem.scale)

    def of_head(self, number: float | Tensor) -> float:
        """Select the explained head's number, of one number or one a head."""
        if not isinstance(number, Tensor):
            return float(number)
        return number.detach().flatten()[self.head if number.numel() > 1 else 0].item()

    @property
    def is_scaled_by_width(self) -> bool:
        """Whether β is 1/√d because none was given, for a width d above 1."""
        width = self.queries.shape[-1]
        return self.problem.score.beta is None and width > 1 and self.beta == width**-0.5

    @property
    def _full_index(self) -> tuple[int, ...]:
        """The index into tensors that always have heads, as the problem's."""
        return self.index if self.problem.axes > 3 else (*self.index, 0)

    @property
    def _key_index(self) -> tuple[int, ...]:
        return (*self._full_index[:-1], self.key_head)

    def matrix(self, step: Pairs) -> Float[Tensor, "queries keys"]:
        """Return one step of the trace between scores and context, for the explained head."""
        return _plain(getattr(self.trace, step)[self.index])

    def row(self, step: Pairs) -> list[float]:
        """Return one step of the trace for the explained query, one number per key."""
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
    def used(self) -> tuple[Float[Tensor, " dim"], Float[Tensor, " keys dim"]]:
        """The query and the keys as used for the scores."""
        query, key, _ = as_computed(self.problem, self._bias_and_visible[1])
        return _plain(query[self._full_index])[self.position], _plain(key[self._key_index])

    @cached_property
    def _bias_and_visible(self) -> tuple[Tensor | None, Tensor | None]:
        return self.problem.bias_and_visible(self.problem.mask, self.problem.tile())

    @cached_property
    def visible_in_row(self) -> Bool[Tensor, "heads queries keys"] | None:
        """The visible pairs of this batch row; None if nothing is hidden."""
        visible = self._bias_and_visible[1]
        if visible is None:
            return None
        return visible.expand(self.problem.scores_shape)[self._full_index[:-1]].detach().cpu()

    @property
    def visible(self) -> Bool[Tensor, "queries keys"] | None:
        """The visible pairs of the explained head; None if nothing is hidden."""
        return None if self.visible_in_row is None else self.visible_in_row[self.head]

    @cached_property
    def bias(self) -> Float[Tensor, "queries keys"] | None:
        """The bias added to the scores; None without a bias."""
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

    def by_key(
        self, sign: str, write: Callable[[int], str], keys: Sequence[int] | None = None
    ) -> tuple[str, ...]:
        """Align a line for each key that is written out, as in "s(sun) = …"."""
        keys = self.written if keys is None else keys
        return aligned([(f"{sign}({self.key_names[key]})", write(key)) for key in keys])


def formula_of(part: nn.Module) -> str:
    """Return the formula of a score or normalizer; its class name where it has none."""
    formula = getattr(part, "formula", None)
    return formula if isinstance(formula, str) else type(part).__name__


def part_name(bias: nn.Module | Tensor) -> str:
    """Return the name of a bias: its class, or the shape of its tensor.

    >>> part_name(torch.zeros(3, 5))
    'tensor[3, 5]'
    """
    return f"tensor{list(bias.shape)}" if isinstance(bias, Tensor) else repr(bias)


def _plain(tensor: Tensor) -> Tensor:
    """Return a tensor detached and on the CPU."""
    return tensor.detach().cpu()


def _size(weight: float) -> float:
    """Return a sort key of a weight; NaN comes last."""
    return weight if weight == weight else float("-inf")  # noqa: PLR0124 - NaN is not itself


_MOST_DRAWN = 2048 * 2048


def shown_weights(
    subject: Subject, step: Literal["weights", "dropped"] = "weights"
) -> Float[Tensor, "queries keys"]:
    """Return the weights of the explained head, before or after dropout, NaN where hidden."""
    weights = subject.matrix(step).double()
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
    """Draw a heat map of weights, NaN where hidden, or explain why it cannot be drawn."""
    if weights.numel() > _MOST_DRAWN:
        return Paragraph(
            subject.say(
                "This matrix is too large to be drawn here (rows: {rows}, columns: {columns}).",
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
    """A table column with one number per key; columns of shares have a sum."""

    head: str
    values: Sequence[float]
    share: bool = False


def key_table(
    subject: Subject, columns: Sequence[Column], *, caption: str | None = None, total: bool = False
) -> Table:
    """Build a table by key: all keys, or those with the largest weights and a row for the others.

    Args:
        subject: The subject of the explanation.
        columns: The columns after the name of the key.
        caption: Caption of the table.
        total: Whether to add a row with the sums of the shares.
    """
    say, shown, figure = subject.say, subject.shown, subject.write.figure
    others = sorted(set(range(len(subject.key_names))) - set(shown))
    rows = [[subject.key_names[key], *(figure(c.values[key]) for c in columns)] for key in shown]
    if others:
        rows.append(
            [say("… and {count} more", count=len(others)), *_sums(subject, columns, others)]
        )
    if total:
        rows.append([say("total"), *_sums(subject, columns, range(len(subject.key_names)))])
    return Table([say("key"), *(column.head for column in columns)], rows, caption=caption)


def _sums(subject: Subject, columns: Sequence[Column], keys: Sequence[int]) -> list[str]:
    """Sum each column of shares over some keys."""
    return [
        subject.write.figure(fsum(column.values[key] for key in keys)) if column.share else ""
        for column in columns
    ]
