"""The step that shows the result in columns, as texts do that write H = XA."""

from glasshead.drawing import Block, Table
from glasshead.explanation.explanation import Step
from glasshead.explanation.subject import MOST_ROWS, Subject, aligned, figure, short_vector


def tell_columns(subject: Subject) -> Step | None:
    """Show values, weights and context with words as columns; None where it is not asked for."""
    if not subject.columns:
        return None
    say = subject.say
    letter = "X" if _values_are_inputs(subject) else "V"
    weights = subject.matrix("dropped")[subject.position].tolist()
    context = subject.context[subject.position].tolist()
    return Step(
        name="columns",
        title=say("The same in columns: H = {letter}A", letter=letter),
        intro=(_intro(subject, letter),),
        formula=f"H = {letter}·A,   A = Pᵀ,   H = Cᵀ",
        numbers=aligned(
            [
                (f"p({subject.name})", short_vector(weights)),
                (f"a({subject.name})", f"{short_vector(weights)}ᵀ"),
                (f"c({subject.name})", short_vector(context)),
                (f"h({subject.name}) = {letter}·a({subject.name})", f"{short_vector(context)}ᵀ"),
            ]
        ),
        figures=_tables(subject, letter),
        data={
            letter: subject.values.T,
            "A": subject.matrix("dropped").T,
            "H": subject.context.T,
        },
    )


def _values_are_inputs(subject: Subject) -> bool:
    """Return whether the words are mixed themselves, without a matrix of values."""
    return subject.projection is None and subject.values.equal(subject.keys)


def _intro(subject: Subject, letter: str) -> str:
    say = subject.say
    opening = say(
        "Some texts write words as columns. {letter} has a column for each word, and A a row for "
        "each key and a column for each query: the column of “{query}” is its row of P above. "
        "{letter} times A then has the context vectors as columns, H. They are the same numbers, "
        "transposed.",
        letter=letter,
    )
    weights = subject.matrix("dropped").double()
    if bool((weights < 0).any()) or bool(((weights.sum(-1) - 1).abs() > 1e-3).any()):
        return opening
    return say.after_each_other(
        opening, say("So it is the columns of A that add up to 1, and not its rows.")
    )


def _tables(subject: Subject, letter: str) -> tuple[Block, ...]:
    """Build the three matrices; of many words, the column of the explained query alone."""
    say, keys = subject.say, subject.key_names
    queries = list(range(len(subject.query_names)))
    if max(len(queries), len(keys)) > MOST_ROWS:
        queries = [subject.position]
    weights = subject.matrix("dropped").T.double()
    names = [subject.query_names[query] for query in queries]
    shown = subject.shown
    rows = [[keys[key], *(figure(weights[key, q].item()) for q in queries)] for key in shown]
    others = [key for key in range(len(keys)) if key not in shown]
    if others:
        sums = weights[others].sum(0)
        more = say("… and {count} others", count=len(others))
        rows.append([more, *(figure(sums[q].item()) for q in queries)])
    total = [say("total"), *(figure(weights[:, q].sum().item()) for q in queries)]
    return (
        _matrix(letter, subject.values.T[:, shown].tolist(), [keys[key] for key in shown]),
        Table(["A", *names], [*rows, total]),
        _matrix("H", subject.context.T[:, queries].tolist(), names),
    )


def _matrix(letter: str, rows: list[list[float]], names: list[str]) -> Table:
    """Build a table of vectors as columns; of long ones the first numbers."""
    shown = [[str(place + 1), *map(figure, row)] for place, row in enumerate(rows[:MOST_ROWS])]
    more = [["…", *("" for _ in names)]] if len(rows) > MOST_ROWS else []
    return Table([letter, *names], [*shown, *more])
