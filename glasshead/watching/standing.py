"""Standing: where the queries and keys of one call stand in the text."""

from typing import NamedTuple

from glasshead.watching.met import Met
from glasshead.watching.watched import Call


class Place(NamedTuple):
    """Where a call stands.

    Attributes:
        position: Of its first query in the text.
        first_key: Which key of the text its first one is.
        offset: Of query 0 among the keys, where it is another than that of the problem.
    """

    position: int
    first_key: int = 0
    offset: int | None = None


class Standing:
    """Follows the calls of a model, of which most tell by their keys where they stand.

    Two do not. A sliding cache hands on the last keys alone: the cache tells where these stand, and
    where it is out of sight the tokens fed so far are counted. An attention that crosses to another
    text stands where the self-attention before it stood.
    """

    def __init__(self) -> None:
        self._of_self: tuple[int, int] = (0, 0)

    def of(self, met: Met, last: Call | None) -> Place:
        """Where a call stands.

        Args:
            met: What was met.
            last: The call before it of the same module.
        """
        queries = met.queries
        if met.crossing:
            position, of_queries = self._of_self
            position = position if of_queries == queries else 0
            return Place(position, offset=position)
        offset = met.problem.offset
        if not isinstance(offset, int):
            # Rows of a batch that stand at different places have no position in common.
            return Place(0)
        place = Place(offset)
        if met.position is not None:
            place = Place(met.position, met.position - offset)
        elif met.sliding and offset and last is not None and last.batch == met.batch:
            place = Place(last.end, max(0, last.end - offset))
        self._of_self = place.position, queries
        return place
