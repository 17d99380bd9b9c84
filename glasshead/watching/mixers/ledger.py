"""Which text a run of a mixer continues: the one whose last state it begins with."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.watching.mixers.kinds import Mix
from glasshead.watching.mixers.recurrence import Operator

# Texts of a module that may be continued.
_TEXTS = 8


@dataclass(eq=False)
class Tokens:
    """The tokens of a run, and those of the text before them.

    Attributes:
        own: The operator over the tokens of the run.
        before: Those before them; None: the run begins the text.
        rows: For each row, the row of these that it continues; None: the same.
    """

    own: Operator
    before: "Tokens | None" = None
    rows: Int[Tensor, " rows"] | None = None

    @property
    def count(self) -> int:
        """Return the number of tokens so far."""
        return self.own.shape[2] + (0 if self.before is None else self.before.count)

    def operator(self) -> Operator:
        """Return the operator over all tokens."""
        parts, one, rows = [self.own], self, None
        while one.before is not None:
            if one.rows is not None:
                rows = one.rows if rows is None else one.rows[rows]
            one = one.before
            parts.append(one.own if rows is None else one.own.selected(rows))
        first, *later = reversed(parts)
        return first.then(later) if later else first  # type: ignore[arg-type] - all of one kind


@dataclass(eq=False)
class _Text:
    """A text that a later run may continue: its tokens, its number, and its state."""

    tokens: Tokens
    number: tuple[int, ...]
    state: Tensor
    continued: bool = False


class MixerPlace(NamedTuple):
    """The place of a run in its text.

    Attributes:
        position: Position of its first token.
        text: The text: its number, after that of the text that it shares its beginning with.
        rows: For each row, the row of the text's last run that it continues; None: the same.
        tokens: The tokens of the text so far.
    """

    position: int
    text: tuple[int, ...]
    rows: tuple[int, ...] | None
    tokens: Tokens


@dataclass(eq=False)
class Ledger:
    """The texts that mixers read, by what their states held at the end of a run.

    A state is known again by its numbers, as caches copy it, write to it and reorder its rows.
    """

    _texts: dict[str, list[_Text]] = field(default_factory=dict)
    _count: int = 0

    def place(self, name: str, mix: Mix, own: Operator) -> MixerPlace | None:
        """Return the place of a run; None if it begins with the state of a text not seen.

        Args:
            name: Name of the mixer, and of its run in a pass.
            mix: The run.
            own: Its operator, of tensors that nobody else writes to.
        """
        known = self._texts.setdefault(name, [])
        place = self._begun(own)
        if mix.state is not None and bool(mix.state.any()):
            found = next(((one, rows) for one in known[::-1] if (rows := _rows(one, mix))), None)
            if found is None:
                return None
            place = self._continued(*found, own)
        if mix.left is not None:
            known.append(_Text(place.tokens, place.text, mix.left.detach().clone()))
            del known[:-_TEXTS]
        return place

    def _begun(self, own: Operator) -> MixerPlace:
        self._count += 1
        return MixerPlace(0, (self._count,), None, Tokens(own))

    def _continued(self, text: _Text, rows: list[int], own: Operator) -> MixerPlace:
        moved = rows != [*range(len(text.state))]
        number = (*text.number, self._count + 1) if text.continued else text.number
        self._count += text.continued
        text.continued = True
        tokens = Tokens(own, text.tokens, torch.tensor(rows) if moved else None)
        return MixerPlace(text.tokens.count, number, tuple(rows) if moved else None, tokens)


def _rows(text: _Text, mix: Mix) -> list[int] | None:
    """Return for each row of a run the row of a text whose state it begins with; None: it does not.

    A cache may hold states in another type than that of the kernel.
    """
    given, state = mix.given, text.state
    if given is None or given.shape[1:] != state.shape[1:]:
        return None
    state = state.to(given.device, given.dtype)
    if torch.equal(state, given):
        return [*range(len(given))]
    found = []
    for row in given:
        same = [place for place, one in enumerate(state) if torch.equal(one, row)]
        if not same:
            return None
        found.append(same[0])
    return found
