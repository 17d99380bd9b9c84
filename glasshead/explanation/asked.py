"""What a caller asks to be told: checked, and refused in one sentence."""

from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from glasshead.drawing import visible
from glasshead.drawing.printable import shorten
from glasshead.recipe.trace import Trace

_LONGEST_NAME = 16
_MOST_LISTED = 20
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def check_trace(trace: Any) -> None:
    """Raise where there is nothing to tell."""
    if not isinstance(trace, Trace):
        raise TypeError(
            "explain takes a Trace, as Attention().trace(query, key, value) gives, and got "
            f"{type(trace).__name__}."
        )
    queries, keys = trace.scores.shape[-2:]
    for count, name in ((queries, "query"), (keys, "key")):
        if not count:
            raise ValueError(
                f"explain takes a trace of at least one {name}, and got none: "
                f"trace inputs with a word in them (scores have shape {list(trace.scores.shape)})."
            )


def words(given: Any, count: int, argument: str, of_what: str) -> tuple[str, ...]:
    """The words as the caller gave them, or "1", "2" and so on.

    Errors: a TypeError where they are not strings, a ValueError where there are not as many.
    """
    if given is None:
        return tuple(str(place + 1) for place in range(count))
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(
            f"{argument} takes a list of words, and got {given!r}: split a text, as with .split()."
        )
    for word in given:
        if not isinstance(word, str):
            raise TypeError(f"{argument} takes words as strings, and got {word!r} among them.")
    if len(given) != count:
        raise ValueError(
            f"{argument} takes one word for each of the {count} {of_what}, and got {len(given)}."
        )
    return tuple(given)


def names(given: Sequence[str]) -> tuple[str, ...]:
    """Words as they are shown: printable, not long, and no two alike.

    >>> names(["the", "cat", " the", "the", ""])
    ('the₁', 'cat', '␣the', 'the₂', '␣')
    """
    short = [shorten(visible(word) or "␣", _LONGEST_NAME) for word in given]
    count, met, shown = Counter(short), Counter[str](), []
    for name in short:
        met[name] += 1
        shown.append(name + (str(met[name]).translate(_SUBSCRIPTS) if count[name] > 1 else ""))
    return tuple(shown)


def position(query: Any, given: Sequence[str], shown: Sequence[str]) -> int:
    """Where the query that is asked for stands; the last one if none is.

    Errors: a ValueError where a word is not among those `given` (nor their names as `shown`), or a
    position lies outside; a TypeError for anything else.
    """
    if query is None:
        return len(given) - 1
    if isinstance(query, str):
        for places in (list(given), list(shown)):
            if query in places:
                return places.index(query)
        raise ValueError(f"query takes one of the words {_listed(given)}, and {_got(query, given)}")
    if isinstance(query, bool) or not hasattr(query, "__index__"):
        raise TypeError(f"query takes a word or its position, and got {query!r}.")
    place = int(query)
    if not -len(given) <= place < len(given):
        raise ValueError(
            f"query takes a position from 0 to {len(given) - 1}, or a negative one from the end, "
            f"and got {query!r}."
        )
    return place % len(given)


def leading(index: Any, trace: Trace) -> tuple[int, ...]:
    """The leading axes that are told, (batch…, head); zeros if not given.

    Errors: a ValueError where they are not as many as the trace has, or one lies outside.
    """
    axes = tuple(trace.scores.shape[:-2])
    if index is None:
        index = (0,) * len(axes)
    elif hasattr(index, "__index__"):
        index = (index,)
    if not isinstance(index, Sequence) or isinstance(index, str):
        raise TypeError(f"index takes a tuple of positions (batch…, head), and got {index!r}.")
    index = tuple(index)
    for place in index:
        if isinstance(place, bool) or not hasattr(place, "__index__"):
            raise TypeError(f"index takes whole numbers, and got {place!r} among them.")
    if len(index) != len(axes) or not all(
        -size <= place < size for place, size in zip(index, axes, strict=True)
    ):
        raise ValueError(
            f"index takes a position in each leading axis (batch…, head) of the scores, which are "
            f"{list(axes)}, and got {index}."
        )
    return tuple(int(place) % size for place, size in zip(index, axes, strict=True))


def _listed(given: Sequence[str]) -> str:
    listed = ", ".join(repr(word) for word in given[:_MOST_LISTED])
    return listed if len(given) <= _MOST_LISTED else f"{listed}, … ({len(given)} words)"


def _got(query: str, given: Sequence[str]) -> str:
    folded = {word.casefold(): word for word in reversed(given)}
    near = get_close_matches(query.casefold(), folded, n=1)
    hint = f": did you mean {folded[near[0]]!r}?" if near else "."
    return f"got {query!r}{hint}"
