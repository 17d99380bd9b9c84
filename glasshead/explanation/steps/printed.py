"""A worked example's printed numbers, beside the exact ones."""

from collections.abc import Iterator

from glasshead.drawing import Block, Paragraph, Table
from glasshead.explanation.figures import figure
from glasshead.explanation.subject import Subject
from glasshead.ladder.worked_example import WorkedExample

# Rounding the weight to four decimals moves a term by about this much; more is a slip.
_ROUNDING = 2e-4

_Matrix = list[list[float]]


def tell_printed(subject: Subject) -> tuple[Block, ...]:
    """Show each term and each sum, exact and as printed, and the misprints."""
    printed, say = subject.printed, subject.say
    if printed is None:
        return ()
    terms = _terms(subject)
    _check(printed, subject, terms)
    context = subject.context[subject.position].tolist()
    rows = []
    for place, (exact, given) in enumerate(zip(terms, printed.printed_terms, strict=True)):
        rows.append([f"c{_sub(place)}", say("exact"), *map(_four, exact), _four(context[place])])
        marked = [_marked(a, b) for a, b in zip(given, exact, strict=True)]
        rows.append(["", say("printed"), *marked, _four(printed.printed_context[place])])
    table = Table(
        ["", "", *(f"p·v({name})" for name in subject.key_names), say("sum")],
        rows,
        caption=say("The terms of each sum, exact and as a text prints them"),
        align=["left", "left", *("right" for _ in subject.key_names), "right"],
    )
    return (table, *_slips(subject, terms))


def _terms(subject: Subject) -> _Matrix:
    """Compute weight times value: a row per number of the value, a column per key."""
    weights = subject.matrix("dropped")[subject.position]
    return (weights[:, None] * subject.values).T.tolist()


def _check(printed: object, subject: Subject, terms: _Matrix) -> None:
    """Check that an example belongs to the trace."""
    if not isinstance(printed, WorkedExample):
        raise TypeError(
            "printed takes a WorkedExample such as HELLO_SHINY_SUN, and got "
            f"{type(printed).__name__}."
        )
    shape = (len(terms), len(subject.key_names))
    rows = printed.printed_terms
    given = (len(rows), len(rows[0]) if rows else 0)
    if shape != given or len(printed.printed_context) != shape[0]:
        raise ValueError(
            f"printed takes an example of {shape[0]} numbers by {shape[1]} words, as the trace "
            f"has, and got {given[0]} by {given[1]}."
        )


def _slips(subject: Subject, terms: _Matrix) -> Iterator[Block]:
    """Explain the misprints, and their effect."""
    printed, say = subject.printed, subject.say
    if printed is None:
        return
    context = subject.context[subject.position].tolist()
    pairs = [
        (place, key, given, exact)
        for place, (givens, exacts) in enumerate(zip(printed.printed_terms, terms, strict=True))
        for key, (given, exact) in enumerate(zip(givens, exacts, strict=True))
        if abs(given - exact) > _ROUNDING
    ]
    if not pairs:
        yield Paragraph(say("The printed numbers agree with the exact ones, up to rounding."))
        return
    sentences = [
        say(
            "For “{word}” it prints {printed} where {exact} is right, which makes the sum "
            "{printed_sum} instead of {exact_sum}.",
            word=subject.key_names[key],
            printed=_four(given),
            exact=_four(exact),
            printed_sum=_four(printed.printed_context[place]),
            exact_sum=_four(context[place]),
        )
        for place, key, given, exact in pairs
    ]
    opening = say("The numbers marked ≠ are slips in the text.")
    yield Paragraph(say.after_each_other(opening, *sentences))


def _sub(place: int) -> str:
    """Format an index of the vector, counted from 1, as a subscript."""
    return str(place + 1).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def _marked(given: float, exact: float) -> str:
    return f"≠ {_four(given)}" if abs(given - exact) > _ROUNDING else _four(given)


def _four(x: float) -> str:
    """Format a number with exactly four decimals, as texts print them."""
    return f"{x:.4f}" if abs(x) < 1e4 else figure(x)
