"""Numbers that a text prints, or its code gives, beside the exact ones."""

from collections.abc import Iterator, Sequence

from glasshead.drawing import Block, Paragraph, Table
from glasshead.explanation.figures import figure
from glasshead.explanation.subject import Subject
from glasshead.ladder.worked_example import WorkedExample

# Half of the last of four decimals, and what a sum in another order may add to that.
_LAST_DIGIT = 0.51e-4
_Pair = tuple[str, Sequence[float], Sequence[float]]
"""A name of a vector, its exact numbers and the printed ones."""


def printed_vectors(subject: Subject) -> tuple[Block, ...]:
    """Show the query, the keys and the values as a text prints them."""
    printed = subject.printed
    if not isinstance(printed, WorkedExample):
        return ()
    pairs: list[_Pair] = []
    if printed.printed_query:
        exact = subject.queries[subject.position].tolist()
        pairs.append((f"query_{subject.position + 1}", exact, printed.printed_query))
    for name, vectors, given in (
        ("key", subject.keys, printed.printed_keys),
        ("value", subject.values, printed.printed_values),
    ):
        # Without any, the text prints none of them.
        _check_count(f"{name}s", len(given) or len(vectors), len(vectors))
        pairs += [
            (f"{name}_{place + 1}", exact, row)
            for place, (exact, row) in enumerate(zip(vectors.tolist(), given, strict=False))
        ]
    return _compared(subject, printed, pairs)


def printed_row(subject: Subject, step: str) -> tuple[Block, ...]:
    """Show the scores or the weights of the query as a text prints them."""
    printed = subject.printed
    if not isinstance(printed, WorkedExample):
        return ()
    given, exact = {
        "scores": (printed.printed_scores, subject.row("scores")),
        "weights": (printed.printed_weights, subject.row("weights")),
    }[step]
    if not given:
        return ()
    name = f"{step}_{subject.position + 1}"
    marked = _marks(name, given, exact)
    rows = [
        [subject.say("exact"), *map(four, exact)],
        [_by_text(subject, printed), *marked],
    ]
    return Table([name, *subject.key_names], rows), _agreement(subject, marked)


def printed_context(subject: Subject) -> tuple[Block, ...]:
    """Show the context as a text prints it; where it prints the terms too, they have a table."""
    printed = subject.printed
    if not isinstance(printed, WorkedExample) or printed.printed_terms:
        return ()
    exact, given = subject.context[subject.position].tolist(), printed.printed_context
    pairs = [(f"context_{subject.position + 1}", exact, given)] if given else []
    return _compared(subject, printed, pairs)


def _compared(
    subject: Subject, printed: WorkedExample, pairs: Sequence[_Pair]
) -> tuple[Block, ...]:
    """Build a table of vectors, exact and as printed, and say whether they agree."""
    if not pairs:
        return ()
    rows, marked = [], []
    for name, exact, given in pairs:
        marks = _marks(name, given, exact)
        marked += marks
        rows.append([name, _vector(map(four, exact)), _vector(marks)])
    table = Table(["", subject.say("exact"), _by_text(subject, printed)], rows)
    return table, _agreement(subject, marked)


def _marks(name: str, given: Sequence[float], exact: Sequence[float]) -> list[str]:
    """Format printed numbers, with a sign before those that are not the exact ones, rounded."""
    _check_count(name, len(given), len(exact))
    return [
        f"≠ {four(one)}" if abs(one - right) > _LAST_DIGIT else four(one)
        for one, right in zip(given, exact, strict=True)
    ]


def _by_text(subject: Subject, printed: WorkedExample) -> str:
    say = subject.say
    if printed.by_code:
        return say("computed with tutorial {letter}'s code", letter=printed.by_code)
    return say("as the text prints it")


def _agreement(subject: Subject, marked: Sequence[str]) -> Block:
    """Say whether the numbers of the text are the exact ones."""
    say = subject.say
    if any(one.startswith("≠") for one in marked):
        return Paragraph(say("The numbers marked ≠ differ from the exact ones."))
    return Paragraph(say("The two agree, up to rounding."))


def four(x: float) -> str:
    """Format a number with exactly four decimals, as texts print them."""
    return f"{x:.4f}" if abs(x) < 1e4 else figure(x, 4)


def _vector(written: Iterator[str] | Sequence[str]) -> str:
    return f"[{', '.join(written)}]"


def _check_count(name: str, given: int, exact: int) -> None:
    """Check that an example belongs to the trace."""
    if given != exact:
        raise ValueError(
            f"printed must be an example of the trace, which has {exact} numbers or rows in "
            f"{name}, got {given}."
        )
