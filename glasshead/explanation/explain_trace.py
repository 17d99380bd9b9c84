"""Explain one query of a trace, step by step."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glasshead.drawing import visible
from glasshead.drawing.printable import nearest, shorten
from glasshead.explanation.explanation import Explanation
from glasshead.explanation.steps import TELLERS
from glasshead.explanation.subject import Subject, formula_of, part_name
from glasshead.explanation.translations import Say
from glasshead.ladder.worked_example import WorkedExample
from glasshead.recipe.problem import Trace

if TYPE_CHECKING:
    from glasshead.explanation.embeddings import Projection


_LONGEST_NAME = 16
_MOST_LISTED = 20
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def check_trace(trace: Any) -> None:
    """Check that a trace has at least one query and one key."""
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
    """Check the words of the caller; without any, number them "1", "2" and so on.

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
    """Make words printable, short and distinct.

    >>> names(["the", "cat", " the", "the", ""])
    ('the₁', 'cat', '␣the', 'the₂', '␣')
    """
    short = [shorten(visible(word) or "␣", _LONGEST_NAME) for word in given]
    count, used, shown = Counter(short), Counter[str](), []
    for name in short:
        used[name] += 1
        shown.append(name + (str(used[name]).translate(_SUBSCRIPTS) if count[name] > 1 else ""))
    return tuple(shown)


def position(query: Any, given: Sequence[str], shown: Sequence[str]) -> int:
    """Return the position of the requested query; the last one if not given.

    Errors: a ValueError where a word is not among those `given` (nor their names as `shown`), or a
    position lies outside; a TypeError for anything else.
    """
    if query is None:
        return len(given) - 1
    if isinstance(query, str):
        for places in (list(given), list(shown)):
            if query in places:
                return places.index(query)
        near = nearest(query, given)
        hint = f": did you mean {near!r}?" if near else "."
        raise ValueError(f"query takes one of the words {_listed(given)}, and got {query!r}{hint}")
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
    """Normalize the index of the leading axes, (batch…, head); zeros if not given.

    Errors: a ValueError where its length is not that of the trace's axes, or it is out of range.
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


def _recipe(subject: Subject) -> dict[str, Any]:
    """Return the recipe of a trace as names, formulas and numbers."""
    problem = subject.problem
    return {
        "score": type(problem.score).__name__,
        "score_formula": formula_of(problem.score),
        "beta": subject.beta,
        "softcap": problem.softcap,
        "biases": [part_name(bias) for bias in problem.biases],
        "mask": None if problem.mask is None else repr(problem.mask),
        "normalizer": type(problem.normalizer).__name__,
        "normalizer_formula": formula_of(problem.normalizer),
        "dropout": problem.dropout,
        "offset": problem.offset,
        "heads": subject.heads,
        "key_heads": problem.key.shape[-3],
        "width": problem.query.shape[-1],
        "value_width": problem.value.shape[-1],
        "dtype": str(problem.query.dtype).removeprefix("torch."),
    }


def explain(
    trace: Trace,
    *,
    tokens: Sequence[str] | None = None,
    query: str | int | None = None,
    lang: str = "en",
    keys: Sequence[str] | None = None,
    index: tuple[int, ...] | None = None,
    projection: "Projection | None" = None,
    printed: WorkedExample | None = None,
) -> Explanation:
    r"""Explain a trace in words: the formula of each step, with its numbers, and the reason for it.

    Args:
        trace: The result of `Attention().trace(query, key, value)`, of any layout.
        tokens: The words of the queries, and in self-attention those of the keys; "1", "2" and so
            on if not given.
        query: The query to explain in detail, a word (its first occurrence) or a position; the
            last if not given.
        lang: The language: en, tr, es, zh-Hant or zh-Hans. A code such as "es_ES" or "zh-TW" will
            do.
        keys: The words of the keys where they differ, as in cross-attention.
        index: The index of the leading axes, (batch…, head); zeros if not given.
        projection: The embeddings and the matrices that gave queries, keys and values; they are
            explained in a first step.
        printed: A worked example, whose printed numbers are compared with the exact ones.

    Errors: a TypeError where `trace` is no Trace, or words are not strings; a ValueError where the
    words are not as many as the queries or keys, where the query, the index or the language is not
    there, and where the projection or the printed example does not belong to the trace.

    >>> import torch
    >>> import glasshead as gh
    >>> x = torch.tensor([[0.34, 0.22, 0.54], [0.53, 0.34, 0.98], [0.29, 0.54, 0.93]])
    >>> trace = gh.Attention(score=gh.Dot()).trace(x, x, x)
    >>> explanation = explain(trace, tokens=["Hello", "shiny", "sun"], query="shiny")
    >>> print("\n".join(explanation["context"].numbers[2:6]))
    c(shiny) = 0.2291·[0.34, 0.22, 0.54]
             + 0.4063·[0.53, 0.34, 0.98]
             + 0.3646·[0.29, 0.54, 0.93]
             = [0.3990, 0.3854, 0.8610]
    """
    check_trace(trace)
    query_count, key_count = trace.scores.shape[-2:]
    query_words = words(tokens, query_count, "tokens", "queries")
    same_words = keys is None and query_count == key_count
    key_words = query_words if same_words else words(keys, key_count, "keys", "keys")
    query_names = names(query_words)
    place = position(query, query_words, query_names)
    say = Say(lang, query=query_names[place])
    subject = Subject(
        trace=trace,
        index=leading(index, trace),
        position=place,
        query_names=query_names,
        key_names=names(key_words),
        same_words=same_words,
        say=say,
        projection=projection,
        printed=printed,
    )
    steps = [tell(subject) for tell in TELLERS]
    return Explanation(
        title=say("Attention, step by step: “{query}”"),
        language=say.language,
        recipe=_recipe(subject),
        tokens=query_words,
        keys=key_words,
        query=subject.position,
        index=subject.index,
        steps=tuple(step for step in steps if step is not None),
    )
