"""Sequence tracker: where the queries and keys of each call stand in their text."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from glasshead.watching.captured_call import Met
from glasshead.watching.errors import UnseenError
from glasshead.watching.layer_record import Call

# A decoder layer attends to itself and then to one other text, or two.
_PASSED = 3


class Place(NamedTuple):
    """The place of a call in its text.

    Attributes:
        position: Of its first query in the text.
        first_key: Which key of the text its first one is.
        offset: Of query 0 among the keys, where it is another than that of the problem.
    """

    position: int
    first_key: int = 0
    offset: int | None = None


class _SelfAttention(NamedTuple):
    """The last attention of a text to itself: in which forward pass, and which queries."""

    forward: int = -1
    position: int = 0
    queries: int = 0


class SequenceTracker:
    """Places the calls of a model in their texts, most of which their keys place.

    Two are placed otherwise. A sliding cache hands on the last keys alone: the cache tells where
    these stand, and where it is out of sight the tokens fed so far are counted. Cross-attention
    stands where the self-attention before it in the same forward pass stood, whether that one is
    watched or not.
    """

    def __init__(self) -> None:
        self._last = _SelfAttention()
        self._passed: deque[tuple[int, Callable[[], Met]]] = deque(maxlen=_PASSED)
        self._unplaced: tuple[int, str, int] | None = None

    def place(self, name: str, met: Met, last: Call | None, forward: int) -> Place:
        """Return where a call stands.

        Args:
            name: Of its module.
            met: The call.
            last: The call before it of the same layer.
            forward: The number of the forward pass.

        Errors: an `UnseenError` where cross-attention ran before anything told where it stood.
        """
        if met.crossing:
            return self._of_crossing(name, met, last, forward)
        place = _by_keys(met, last)
        self._passed.clear()
        self._note(_SelfAttention(forward, place.position, met.queries))
        return place

    def passed(self, met: Callable[[], Met], forward: int) -> None:
        """Take note of an attention that is not watched; cross-attention after it may ask for it.

        Args:
            met: Tells what it was.
            forward: The number of the forward pass.
        """
        self._passed.append((forward, met))
        if self._unplaced and self._unplaced[0] == forward:
            self._look_back(forward)

    def _of_crossing(self, name: str, met: Met, last: Call | None, forward: int) -> Place:
        self._look_back(forward)
        own = self._last
        if own.forward == forward:
            position = own.position if own.queries == met.queries else 0
        elif last is not None and _goes_on(met, last, forward):
            position = last.end
        else:
            position = 0
            self._unplaced = forward, name, met.queries
        return Place(position, offset=position)

    def _look_back(self, forward: int) -> None:
        """Find the last self-attention among what was passed in this forward pass."""
        while self._passed:
            passed_in, met = self._passed.pop()
            one = met() if passed_in == forward else None
            if one is not None and not one.crossing:
                self._note(_SelfAttention(forward, _by_keys(one, None).position, one.queries))
                self._passed.clear()

    def _note(self, own: _SelfAttention) -> None:
        """Keep the last self-attention.

        Errors: an `UnseenError` where cross-attention before it was placed without it, wrongly.
        """
        self._last = own
        if self._unplaced is None:
            return
        forward, name, queries = self._unplaced
        self._unplaced = None
        if forward == own.forward and queries == own.queries and own.position:
            raise UnseenError(
                f"watch places cross-attention by the self-attention before it, and {name!r} ran "
                f"first, at position {own.position} of its text: leave it out by layers=."
            )


def _by_keys(met: Met, last: Call | None) -> Place:
    """Return where a call of self-attention stands."""
    offset = met.problem.offset
    if not isinstance(offset, int):
        # Rows of a batch that stand at different places have no position in common.
        return Place(0)
    if met.position is not None:
        return Place(met.position, met.position - offset)
    if met.sliding and offset and last is not None and last.batch == met.batch:
        return Place(last.end, max(0, last.end - offset))
    return Place(offset)


def _goes_on(met: Met, last: Call, forward: int) -> bool:
    """Whether one query follows another of the same forward pass, as in a recurrent decoder."""
    keys = met.problem.scores_shape[-1]
    return (
        met.queries == last.queries == 1
        and last.forward == forward
        and (last.batch, last.keys) == (met.batch, keys)
    )
