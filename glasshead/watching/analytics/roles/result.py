"""Result: the scores of every head, and the role that each has."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from glasshead.attention.to_pandas import import_pandas
from glasshead.drawing import Document, Table
from glasshead.recipe.validation import finite
from glasshead.watching.analytics.roles.keys import ROLES
from glasshead.watching.analytics.roles.strips import Strips
from glasshead.watching.summary import short

if TYPE_CHECKING:
    import pandas as pd

# Of several roles a head has the first: a head that looks everywhere alike has no other, a key that
# repeats may stand anywhere, and the previous token is a local one.
PRECEDENCE = ("broad", "induction", "duplicate", "previous", "first", "local")
# Half of the way from an even look to all the mass; of broad, an entropy near that of an even look.
THRESHOLDS = MappingProxyType(dict.fromkeys(ROLES, 0.5) | {"broad": 0.9})


@dataclass(frozen=True, eq=False)
class HeadRoles:
    """The scores of each head of each layer, and its role; a table where it is printed.

    Attributes:
        names: Of the layers.
        scores: Of each role `[layers, heads]`, from 0 to 1, in float64; NaN where no query of the
            text counts, and where a layer has fewer heads than others.
        even: The scores that an even look at all visible keys would have, alike; 0 of broad.
        thresholds: How far from there to 1 the score of a head with the role is, at least.
    """

    names: tuple[str, ...]
    scores: Mapping[str, Float[Tensor, "layers heads"]]
    even: Mapping[str, Float[Tensor, "layers heads"]]
    thresholds: Mapping[str, float]

    @cached_property
    def roles(self) -> tuple[tuple[str | None, ...], ...]:
        """The role of each head of each layer; None where it has none."""
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
        """The score from which on a head has a role."""
        even = float(self.even[role][layer, head])
        return even + self.thresholds[role] * (1 - even)

    def heads(self, role: str) -> list[tuple[str, int]]:
        """The heads that have a role, each as the name of its layer and its number.

        Errors: a ValueError where there is no such role.
        """
        _checked(role)
        return [
            (name, head)
            for name, row in zip(self.names, self.roles, strict=True)
            for head, own in enumerate(row)
            if own == role
        ]

    def best(self, role: str) -> tuple[str, int]:
        """The head with the highest score, whether or not it has the role.

        Errors: a ValueError where there is no such role, or no query of the text counts for it.
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
        """A pandas table: a row for each layer and head, a column for each score, and the role.

        Errors: an ImportError where pandas is not installed.
        """
        pandas = import_pandas()
        heads = range(len(self.roles[0]))
        index = pandas.MultiIndex.from_product([self.names, heads], names=["layer", "head"])
        columns = {role: self.scores[role].flatten().numpy() for role in ROLES}
        roles = [role for row in self.roles for role in row]
        return pandas.DataFrame({**columns, "role": roles}, index=index)

    def document(self) -> Document:
        """Two tables for the terminal or a page: the role of each head, and the best of each."""
        layers = "1 layer" if len(self.names) == 1 else f"{len(self.names)} layers"
        heads = len(self.roles[0])
        of = "1 head" if heads == 1 else f"{heads} heads"
        title = f"The roles of the heads: {layers} of {of}"
        return Document([self._of_heads(), self._of_roles()], title=title)

    def _of_heads(self) -> Strips:
        names, pattern = short(self.names)
        cells = [
            [
                f"{role} {float(self.scores[role][layer, head]):.2f}" if role else "·"
                for head, role in enumerate(row)
            ]
            for layer, row in enumerate(self.roles)
        ]
        caption = f"role and score of each head{pattern and f' of {pattern}'}; · none"
        return Strips([name or "the model" for name in names], cells, caption)

    def _of_roles(self) -> Table:
        rows = []
        for role in ROLES:
            row = [role, f"{len(self.heads(role))}", "–", "–", "no query counts"]
            if not self.scores[role].isnan().all():
                name, head = self.best(role)
                layer = self.names.index(name)
                score, bar = float(self.scores[role][layer, head]), self._bar(role, layer, head)
                row[2:] = [f"{score:.3f}", f"{bar:.3f}", f"{name or 'the model'}, head {head}"]
            rows.append(row)
        columns = ["role", "heads", "highest", "asked", "of"]
        return Table(columns, rows, caption="highest score of each role, and which is asked of it")

    def __str__(self) -> str:
        return self.document().text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.document()._repr_html_()


def thresholds_of(given: Mapping[str, float] | None) -> Mapping[str, float]:
    """Those that are asked for, and for the other roles the common ones.

    Errors: a TypeError or ValueError where they are not numbers by the names of roles.
    """
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"thresholds takes a dict such as {{'induction': 0.4}}, and got {given!r}.")
    own = {_checked(role): finite(x, f"thresholds[{role!r}]") for role, x in (given or {}).items()}
    return MappingProxyType({**THRESHOLDS, **own})


def _checked(role: str) -> str:
    if role not in ROLES:
        raise ValueError(f"a role is one of {', '.join(ROLES)}, and got {role!r}.")
    return role
