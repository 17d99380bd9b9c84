"""Role scores: the score of every head for each role, its role, and tables of both."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from rich.cells import cell_len
from rich.text import Text
from torch import Tensor

from glasshead.attention.observe import import_pandas
from glasshead.drawing import ENGLISH, Block, Canvas, Document, Table, Words
from glasshead.message import Message, _
from glasshead.recipe.validation import finite
from glasshead.watching.seen import Printed, counted, short

if TYPE_CHECKING:
    import pandas as pd


# The roles defined by a set of keys, in the order of `keys_of_roles`.
OF_KEYS = ("previous", "first", "induction", "duplicate", "local")
ROLES = (*OF_KEYS, "broad")


def keys_of_roles(
    tokens: Int[Tensor, "batch length"],
    queries: range,
    keys: range,
    near: int,
    first: Int[Tensor, "batch 1 1"] | int = 0,
) -> Bool[Tensor, "batch roles queries keys"]:
    """Return which keys belong to each role of `OF_KEYS`, for ranges of queries and keys of a text.

    Visibility is not considered here. `first` is the position of the first real token of each text,
    where padding precedes it.

    >>> tokens = torch.tensor([[7, 8, 7, 8]])
    >>> for role, belongs in zip(OF_KEYS, keys_of_roles(tokens, range(2, 4), range(4), 1)[0]):
    ...     print(f"{role:9}", belongs.int().tolist())
    previous  [[0, 1, 0, 0], [0, 0, 1, 0]]
    first     [[1, 0, 0, 0], [1, 0, 0, 0]]
    induction [[0, 1, 0, 0], [0, 0, 1, 0]]
    duplicate [[1, 0, 0, 0], [0, 1, 0, 0]]
    local     [[0, 1, 1, 1], [0, 0, 1, 1]]
    """
    i = torch.arange(queries.start, queries.stop, device=tokens.device)[:, None]
    j = torch.arange(keys.start, keys.stop, device=tokens.device)
    own = tokens[:, queries.start : queries.stop, None]  # [batch, queries, 1]
    at, before = (tokens[:, None, place] for place in (j, (j - 1).clamp(min=0)))
    back = i - j
    roles = (
        back == 1,
        (j == first) & (i > first),
        (before == own) & (j > 0) & (back != 0) & (back != -1),
        (at == own) & (back != 0),
        back.abs() <= near,
    )
    shape = (len(tokens), len(queries), len(keys))
    return torch.stack([one.expand(shape) for one in roles], 1)


_BETWEEN = 2


@dataclass(frozen=True)
class Strips(Block):
    """A table of heads, split into strips that fit the width; a single table on an HTML page.

    Args:
        layers: Names of the rows.
        cells: Cells, a row per layer and a column per head.
        caption: Caption of the table.

    Example:
        >>> print(Strips(["0"], [["first 0.71", "·", "broad 0.93"]], "roles").as_text(width=30))
        roles
        layer  head 0      head 1
        ─────────────────────────
            0  first 0.71  ·
        <BLANKLINE>
        layer  head 2
        ─────────────────
            0  broad 0.93
    """

    layers: Sequence[str]
    cells: Sequence[Sequence[str]]
    caption: str
    layer: str = Message("layer")
    head: str = Message("head {head}", head="{head}")

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw the table in strips, one below the other."""
        first = max(map(cell_len, (self.layer, *self.layers)))
        widest = max(cell_len(cell) for row in (self._heads(), *self.cells) for cell in row)
        side = max(1, (canvas.width - first) // (widest + _BETWEEN))
        for begin in range(0, len(self._heads()), side):
            if begin:
                yield Text()
            yield from self._table(slice(begin, begin + side), begin == 0).lines(canvas)

    def html(self, words: Words = ENGLISH) -> str:
        """Draw a single table."""
        return self._table(slice(None), captioned=True).html(words)

    def _table(self, part: slice, captioned: bool) -> Table:
        return Table(
            [self.layer, *self._heads()[part]],
            [[name, *row[part]] for name, row in zip(self.layers, self.cells, strict=True)],
            caption=self.caption if captioned else None,
        )

    def _heads(self) -> list[str]:
        return [self.head.format(head=head) for head in range(len(self.cells[0]))]


# Of several roles a head has the first of these: a broad head has no other role, a repeated key may
# be anywhere, and the previous token is also local.
PRECEDENCE = ("broad", "induction", "duplicate", "previous", "first", "local")
# Half of the way from uniform attention to all the mass; for broad, entropy near that of uniform.
THRESHOLDS = MappingProxyType(dict.fromkeys(ROLES, 0.5) | {"broad": 0.9})


@dataclass(frozen=True, eq=False, repr=False)
class HeadRoles(Printed):
    """The role scores of each head of each layer, and its role; printed as tables.

    Attributes:
        names: Names of the layers.
        scores: For each role `[layers, heads]`, from 0 to 1, in float64; NaN if no query of the
            text counts, or a layer has fewer heads than others.
        even: The scores of uniform attention to all visible keys, alike; 0 for broad.
        thresholds: For each role the fraction of the way from `even` to 1 that a score must reach.
    """

    names: tuple[str, ...]
    scores: Mapping[str, Float[Tensor, "layers heads"]]
    even: Mapping[str, Float[Tensor, "layers heads"]]
    thresholds: Mapping[str, float]

    @cached_property
    def roles(self) -> tuple[tuple[str | None, ...], ...]:
        """The role of each head of each layer; None if it has none."""
        layers, heads = self.scores[ROLES[0]].shape
        return tuple(
            tuple(self._role(layer, head) for head in range(heads)) for layer in range(layers)
        )

    def _role(self, layer: int, head: int) -> str | None:
        reached = (
            role
            for role in PRECEDENCE
            if float(self.scores[role][layer, head]) >= self._bar(role, layer, head)
        )
        return next(reached, None)

    def _bar(self, role: str, layer: int, head: int) -> float:
        """Return the score that a head must reach for a role."""
        even = float(self.even[role][layer, head])
        return even + self.thresholds[role] * (1 - even)

    def heads(self, role: str) -> list[tuple[str, int]]:
        """Return the heads with a role, each as layer name and head index.

        Errors: a ValueError for an unknown role.
        """
        _checked(role)
        return [
            (name, head)
            for name, row in zip(self.names, self.roles, strict=True)
            for head, own in enumerate(row)
            if own == role
        ]

    def best(self, role: str) -> tuple[str, int]:
        """Return the head with the highest score, whether or not it has the role.

        Errors: a ValueError for an unknown role, or if no query of the text counts for it.
        """
        scores = self.scores[_checked(role)]
        if scores.isnan().all():
            raise ValueError(
                f"no head has a score of {role!r}, as no query of the text counts for it: take a "
                f"text whose tokens recur, such as repeated_random_tokens(…)."
            )
        layer, head = divmod(int(scores.nan_to_num(-1.0).argmax()), scores.shape[1])
        return self.names[layer], head

    def to_frame(self) -> "pd.DataFrame":
        """Return a pandas table: a row per layer and head, a column per score, and the role.

        Errors: an ImportError without pandas.
        """
        pandas = import_pandas()
        heads = range(len(self.roles[0]))
        index = pandas.MultiIndex.from_product([self.names, heads], names=["layer", "head"])
        columns = {role: self.scores[role].flatten().numpy() for role in ROLES}
        roles = [role for row in self.roles for role in row]
        return pandas.DataFrame({**columns, "role": roles}, index=index)

    def document(self) -> Document:
        """Return tables for the terminal or a page: the role of each head, and the best heads."""
        layers, heads = counted(len(self.names), "layer"), counted(len(self.roles[0]), "head")
        title = f"The roles of the heads: {layers} of {heads}"
        return Document([self._of_heads(), self._of_roles()], title=title)

    def _of_heads(self) -> Strips:
        names, pattern = short(self.names)
        cells = [
            [
                Message(
                    "{role} {score:.2f}",
                    role=Message(role),
                    score=float(self.scores[role][layer, head]),
                )
                if role
                else "·"
                for head, role in enumerate(row)
            ]
            for layer, row in enumerate(self.roles)
        ]
        caption = Message("role and score of each head; · none")
        if pattern:
            caption = Message("role and score of each head of {layers}; · none", layers=pattern)
        return Strips([name or Message("the model") for name in names], cells, caption)

    def _of_roles(self) -> Table:
        rows = []
        for role in ROLES:
            row = [Message(role), f"{len(self.heads(role))}", "–", "–", Message("no query counts")]
            if not self.scores[role].isnan().all():
                name, head = self.best(role)
                layer = self.names.index(name)
                score, bar = float(self.scores[role][layer, head]), self._bar(role, layer, head)
                row[2:] = [f"{score:.3f}", f"{bar:.3f}", _place(name, head)]
            rows.append(row)
        columns = ["role", "heads", "highest", "threshold", "head"]
        caption = Message("highest score of each role, its threshold, and the head that has it")
        return Table([*map(Message, columns)], rows, caption=caption)


_MARKED = _("role"), _("heads"), _("highest"), _("threshold"), _("head")
_ROLES = _("previous"), _("first"), _("induction"), _("duplicate"), _("local"), _("broad")


def _place(name: str, head: int) -> str:
    """Name a head and its layer."""
    return Message("{layer}, head {head}", layer=name or Message("the model"), head=head)


def thresholds_of(given: Mapping[str, float] | None) -> Mapping[str, float]:
    """Merge given thresholds with the defaults.

    Errors: a TypeError or ValueError if they are not numbers keyed by role.
    """
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"thresholds takes a dict such as {{'induction': 0.4}}, and got {given!r}.")
    own = {_checked(role): finite(x, f"thresholds[{role!r}]") for role, x in (given or {}).items()}
    return MappingProxyType({**THRESHOLDS, **own})


def _checked(role: str) -> str:
    if role not in ROLES:
        raise ValueError(f"a role is one of {', '.join(ROLES)}, and got {role!r}.")
    return role
