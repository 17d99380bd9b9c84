"""Steps about all weights at once: their matrix, the same in columns, and the heads."""

import torch

from glasshead.drawing import Block, Table
from glasshead.explanation.explanation import Step
from glasshead.explanation.subject import MOST_ROWS, Subject, aligned, heat_map, shown_weights


def explain_matrix(subject: Subject) -> Step:
    """Show the weights of every query as a heat map, with the explained row marked."""
    say = subject.say
    return Step(
        name="matrix",
        title=say("All words at once"),
        intro=(
            say(
                "So far we followed one word. Every other word is treated in just the same way, "
                "and together all the weights make a matrix P: a row for each query, a column for "
                "each key. The row of “{query}” is marked; it is the one explained above. P times "
                "the matrix V of all values gives all context vectors C at once."
            ),
        ),
        formula="C = P·V",
        numbers=(_shapes(subject),),
        figures=(
            heat_map(
                subject,
                shown_weights(subject, "dropped"),
                subject.query_names,
                highlight=subject.position,
                caption=say("The weights: rows are queries, columns are keys"),
            ),
        ),
        why=say(
            "Why at once: no row depends on another, so a computer finds them all together with a "
            "few matrix products. Nothing has to be read word by word, and that is what made "
            "transformers fast to train."
        ),
        data={"weights": subject.matrix("dropped"), "context": subject.context},
    )


def _shapes(subject: Subject) -> str:
    queries, keys = len(subject.query_names), len(subject.key_names)
    width = subject.values.shape[-1]
    return f"[{queries}, {width}] = [{queries}, {keys}]·[{keys}, {width}]"


def explain_columns(subject: Subject) -> Step | None:
    """Show values, weights and context with words as columns; None if it is not asked for."""
    write = subject.write
    if not subject.settings.columns:
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
                (f"p({subject.name})", write.vector(weights)),
                (f"a({subject.name})", f"{write.vector(weights)}ᵀ"),
                (f"c({subject.name})", write.vector(context)),
                (f"h({subject.name}) = {letter}·a({subject.name})", f"{write.vector(context)}ᵀ"),
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
    if not bool((weights >= 0).all() & ((weights.sum(-1) - 1).abs() <= 1e-3).all()):
        return opening
    return say.after_each_other(
        opening, say("So it is the columns of A that add up to 1, and not its rows.")
    )


def _tables(subject: Subject, letter: str) -> tuple[Block, ...]:
    """Build the three matrices; of many words, the column of the explained query alone."""
    say, write, keys = subject.say, subject.write, subject.key_names
    queries = list(range(len(subject.query_names)))
    if max(len(queries), len(keys)) > MOST_ROWS:
        queries = [subject.position]
    weights = subject.matrix("dropped").T.double()
    names = [subject.query_names[query] for query in queries]
    shown = subject.shown
    rows = [[keys[key], *(write.figure(weights[key, q].item()) for q in queries)] for key in shown]
    others = [key for key in range(len(keys)) if key not in shown]
    if others:
        sums = weights[others].sum(0)
        more = say("… and {count} others", count=len(others))
        rows.append([more, *(write.figure(sums[q].item()) for q in queries)])
    total = [say("total"), *(write.figure(weights[:, q].sum().item()) for q in queries)]
    return (
        _transposed(
            subject, letter, subject.values.T[:, shown].tolist(), [keys[key] for key in shown]
        ),
        Table(["A", *names], [*rows, total]),
        _transposed(subject, "H", subject.context.T[:, queries].tolist(), names),
    )


def _transposed(subject: Subject, letter: str, rows: list[list[float]], names: list[str]) -> Table:
    """Build a table of vectors as columns; of long ones the first numbers."""
    shown = [
        [str(place + 1), *map(subject.write.figure, row)]
        for place, row in enumerate(rows[:MOST_ROWS])
    ]
    more = [["…", *("" for _ in names)]] if len(rows) > MOST_ROWS else []
    return Table([letter, *names], [*shown, *more])


def explain_heads(subject: Subject) -> Step | None:
    """Show the weights of the query in each head; None for a single head."""
    if subject.heads == 1:
        return None
    say = subject.say
    batch = subject.index[:-1]
    weights = subject.trace.weights.detach().cpu()[batch][:, subject.position]
    names = tuple(say("head {head}", head=head) for head in range(subject.heads))
    here = say(
        "This attention has {heads} heads; explained above is head {head}, counted from 0.",
        heads=subject.heads,
        head=subject.head,
    )
    if subject.key_heads == subject.heads:
        alone = say(
            "Each head does all of this by itself, with queries, keys and values of its own."
        )
    else:
        alone = say(
            "Each head does all of this by itself, with queries of its own; {count} heads in a row "
            "share keys and values.",
            count=subject.problem.group,
        )
    looks = say("Here is what “{query}” looks at in each of them.")
    return Step(
        name="heads",
        title=say("Multi-head attention: what each head looks at"),
        intro=(say.after_each_other(here, alone, looks),),
        numbers=_best(weights, names, subject),
        figures=(
            heat_map(
                subject,
                _hidden_as_nan(weights, subject),
                names,
                highlight=subject.head,
                caption=say("The weights of “{query}”, a row for each head"),
            ),
        ),
        why=say(
            "Why several heads: one head can give its attention only once, and what it gives to "
            "one word it takes from another. Several heads look for several things at a time: one "
            "for the word before, another for the verb. What they find is joined into one vector "
            "at the end."
        ),
        data={"weights": weights},
    )


def _best(weights: torch.Tensor, names: tuple[str, ...], subject: Subject) -> tuple[str, ...]:
    """Name the key with the largest weight in each head; of many heads, in the first ones."""
    lines = []
    for name, row in list(zip(names, weights, strict=True))[:MOST_ROWS]:
        best = int(row.argmax())
        weight = row[best].item()
        found = f"{subject.key_names[best]} ({subject.write.figure(weight)})" if weight > 0 else "0"
        lines.append(f"{name}: max p = {found}")
    return (*lines, "…") if len(names) > MOST_ROWS else tuple(lines)


def _hidden_as_nan(weights: torch.Tensor, subject: Subject) -> torch.Tensor:
    if subject.visible_in_row is None:
        return weights.double()
    visible = subject.visible_in_row[:, subject.position]
    return weights.double().masked_fill(~visible, torch.nan)
