"""Recognising: the first rule that shows exactly what a mask shows."""

from collections.abc import Iterator

from glasshead.diagnosis.case import Case
from glasshead.diagnosis.laying import LaidOut
from glasshead.diagnosis.meaning import Meaning
from glasshead.diagnosis.structures.bands import band, named
from glasshead.diagnosis.structures.documents import packed
from glasshead.diagnosis.structures.padded import padded
from glasshead.diagnosis.structures.prefixes import prefixed
from glasshead.diagnosis.structures.structure import Structure, equals

__all__ = ["Structure", "reads_as_a_rule", "recognize"]


def recognize(case: Case) -> Structure | None:
    """The rule that shows exactly what the mask shows, or None where none of those known does."""
    for structure in _candidates(case):
        if equals(structure.mask, case.visible, case.layout.position):
            return structure
    return None


def reads_as_a_rule(laid: LaidOut, meaning: Meaning) -> bool:
    """Whether a mask, read so, is one of the rules by which queries see pairs.

    Where all queries see the same keys, either reading is: padding on one side or the other.
    """
    if meaning.visible is None:
        return False
    case = Case(laid, meaning, laid.layout.pairs(meaning.visible))
    if case.uniform:
        return False
    structure = recognize(case)
    # To see all but the past is what hides in a causal mask.
    return structure is not None and "after=None" not in structure.line


def _candidates(case: Case) -> Iterator[Structure]:
    """From simple ones to composed ones."""
    diagonal, cut = band(case), padded(case)
    yield from (one for one in (diagonal, cut) if one is not None)
    if diagonal is not None and cut is not None:
        yield diagonal & cut
    if case.uniform:
        return
    causal = prefixed(case)
    if causal is not None:
        yield causal
        if cut is not None:
            yield causal & cut
    apart = packed(case)
    if apart is None:
        return
    yield apart
    for other in (diagonal, cut):
        if other is not None:
            yield apart & other
    if case.edge is not None and case.edge.lag == case.layout.position:
        yield apart & named(None, 0, case.layout.position)
