"""Steps after the scores: weights, dropout, the context vector."""

from collections.abc import Iterator
from math import fsum

from rich.cells import cell_len

from glasshead.drawing import Block, Paragraph, Table
from glasshead.explanation.explanation import Step
from glasshead.explanation.figures import MOST_TERMS
from glasshead.explanation.normalizers import explain_normalizer, is_hard_max, is_softmax
from glasshead.explanation.printed_numbers import four, printed_context, printed_row
from glasshead.explanation.subject import Column, Subject, formula_of, key_table
from glasshead.ladder.worked_example import WorkedExample


def explain_weights(subject: Subject) -> Step:
    """Explain the normalizer's formula with its numbers, and the weights."""
    title, data = _weights_title(subject), {"weights": subject.matrix("weights")}
    if not subject.seen:
        return Step(
            name="weights",
            title=title,
            intro=(_nothing_seen(subject),),
            formula=f"p_j = {formula_of(subject.problem.normalizer)}",
            figures=(_table(subject, ()),),
            data=data,
        )
    telling = explain_normalizer(subject)
    return Step(
        name="weights",
        title=title,
        intro=telling.intro,
        formula=telling.formula,
        numbers=telling.numbers,
        figures=(_table(subject, telling.columns), *_summary(subject)),
        printed=printed_row(subject, "weights"),
        why=telling.why,
        data=data,
    )


def _weights_title(subject: Subject) -> str:
    say = subject.say
    if is_hard_max(subject):
        return say("Weights (hard attention): how much of each?")
    if is_softmax(subject):
        return say("Weights (soft attention): how much of each?")
    return say("Weights: how much of each?")


def _nothing_seen(subject: Subject) -> str:
    return subject.say(
        "“{query}” can see no key at all, so there is nothing to share out, and by convention all "
        "its weights are 0. (A softmax taken literally would divide 0 by 0 here.)"
    )


def _table(subject: Subject, between: tuple[Column, ...]) -> Block:
    """Build the table from score to weight, by key."""
    say = subject.say
    scores = Column(say("score"), subject.row("masked"))
    weights = Column(say("weight"), subject.row("weights"), share=True)
    return key_table(subject, [scores, *between, weights], total=True)


_MOST_NAMED = 8


def _summary(subject: Subject) -> tuple[Block, ...]:
    """Name the keys with the largest weights."""
    say, write, weights = subject.say, subject.write, subject.row("weights")
    best = [key for key in subject.by_weight if weights[key] > 0][:2]
    if not best:
        return ()
    itself = [subject.same_words and key == subject.position for key in best]
    places = {"first": subject.key_names[best[0]], "weight": write.figure(weights[best[0]])}
    if len(best) == 1:
        if itself[0]:
            text = say("“{query}” looks at itself alone, with a weight of {weight}.", **places)
        else:
            text = say("“{query}” looks at “{first}” alone, with a weight of {weight}.", **places)
        return (Paragraph(text),)
    alike = [key for key in subject.by_weight if write.figure(weights[key]) == places["weight"]]
    if len(alike) > 1:
        names = [subject.key_names[key] for key in sorted(alike)]
        shown = ", ".join(names[:_MOST_NAMED]) + ", …" * (len(names) > _MOST_NAMED)
        text = say(
            "“{query}” gives {count} keys the same weight, {weight}, and no key a larger one: "
            "{shown}.",
            count=len(alike),
            weight=places["weight"],
            shown=shown,
        )
        return (Paragraph(text),)
    places |= {
        "second": subject.key_names[best[1]],
        "second_weight": write.figure(weights[best[1]]),
    }
    if itself[0]:
        text = say(
            "“{query}” looks most at itself (weight {weight}), and next at “{second}” "
            "({second_weight}).",
            **places,
        )
    elif itself[1]:
        text = say(
            "“{query}” looks most at “{first}” (weight {weight}), and next at itself "
            "({second_weight}).",
            **places,
        )
    else:
        text = say(
            "“{query}” looks most at “{first}” (weight {weight}), and next at “{second}” "
            "({second_weight}).",
            **places,
        )
    return (Paragraph(text),)


def adds_up_to_one(subject: Subject) -> bool:
    """Return whether the weights of the values are nonnegative and sum to 1."""
    weights = subject.row("dropped")
    return min(weights) >= 0 and abs(fsum(weights) - 1) < 1e-3


def explain_dropout(subject: Subject) -> Step | None:
    """Explain which weights were dropped, and how the others grew; None outside training."""
    write = subject.write
    rate, say = subject.problem.dropout, subject.say
    if not rate:
        return None
    weights, dropped = subject.row("weights"), subject.row("dropped")

    def line(key: int) -> str:
        if not dropped[key]:
            return f"{write.figure(weights[key])} → 0"
        before, after = write.figure(weights[key]), write.figure(dropped[key])
        return f"{before} / {write.figure(1 - rate)} = {after}"

    columns = [
        Column(say("weight before"), weights, share=True),
        Column(say("weight after"), dropped, share=True),
    ]
    return Step(
        name="dropped",
        title=say("Dropout: some weights are set to 0"),
        intro=(
            say(
                "In training, each weight is set to 0 at random, with probability {rate}; those "
                "that remain are divided by {kept} to make up for it.",
                rate=write.figure(rate),
                kept=write.figure(1 - rate),
            ),
        ),
        formula="p ← 0,   p ← p / (1 - r)",
        numbers=subject.by_key("p", line),
        figures=(key_table(subject, columns, total=True),),
        why=say(
            "Why by chance: a model that cannot rely on any single weight has to learn to find the "
            "same thing in several ways. When it is used, after training, nothing is dropped."
        ),
        data={"rate": rate, "dropped": subject.matrix("dropped")},
    )


_FIRST = 4


def explain_context(subject: Subject) -> Step:
    """Explain the weighted sum with its numbers."""
    say = subject.say
    return Step(
        name="context",
        title=say("Context: the mixture"),
        intro=(_intro(subject),),
        formula="c = Σ_j p_j·v_j",
        numbers=_numbers(subject),
        printed=(*_printed(subject), *printed_context(subject)),
        why=_why(subject),
        data={"context": subject.context},
    )


def _intro(subject: Subject) -> str:
    return subject.say(
        "Every value is multiplied by the weight of its key, and the products are added up. The "
        "result c is the context vector of “{query}”: what it has gathered from the words it "
        "looked at."
    )


def _mixed(subject: Subject) -> list[int]:
    """Return the keys with nonzero weight; of many those with the largest."""
    weights = subject.row("dropped")
    parts = [key for key, weight in enumerate(weights) if weight != 0]
    if len(parts) <= MOST_TERMS:
        return parts
    return sorted(sorted(parts, key=lambda key: -abs(weights[key]))[:_FIRST])


def _numbers(subject: Subject) -> tuple[str, ...]:
    """Write out the sum by names, by vectors, and for the first number."""
    write, weights = subject.write, subject.row("dropped")
    values, context = subject.values, subject.context[subject.position].tolist()
    keys = _mixed(subject)
    omitted = sum(weight != 0 for weight in weights) - len(keys)
    left = f"c({subject.name})"
    if not keys:
        return (f"{left} = {write.vector(context)}",)
    by_name = [f"{write.factor(weights[key])}·v({subject.key_names[key]})" for key in keys]
    first = (f"{left} = {_joined(by_name, subject, omitted)}",)
    if not context:
        return first
    margin = " " * cell_len(left)
    vectors = [f"{write.factor(weights[key])}·{write.vector(values[key].tolist())}" for key in keys]
    vectors += write.and_more(omitted)
    signs = ["=", *("+" for _ in vectors[1:])]
    heads = [left, *(margin for _ in vectors[1:])]
    lines = [f"{h} {s} {v}" for h, s, v in zip(heads, signs, vectors, strict=True)]
    terms = [f"{write.factor(weights[key])}·{write.factor(values[key, 0].item())}" for key in keys]
    by_number = f"c₁ = {_joined(terms, subject, omitted)} = {write.figure(context[0])}"
    return (*first, "", *lines, f"{margin} = {write.vector(context)}", "", by_number)


def _joined(terms: list[str], subject: Subject, omitted: int) -> str:
    """Join all terms by +, with the number of omitted ones."""
    return " + ".join([*terms, *subject.write.and_more(omitted)])


def _why(subject: Subject) -> str:
    say = subject.say
    if not any(subject.row("dropped")):
        return say("Nothing was looked at, so nothing is handed over: every number of c is 0.")
    parts = sum(weight != 0 for weight in subject.row("dropped"))
    if is_hard_max(subject) or (parts == 1 and adds_up_to_one(subject)):
        return say("Here the mixture is a single value.")
    if not adds_up_to_one(subject):
        return say(
            "Why a mixture and not a choice: a little more weight on a key changes the result by a "
            "little, so training can tell which way to move each weight."
        )
    return say(
        "Why a mixture and not a choice: a little more weight on a key changes the result by a "
        "little, so training can tell which way to move each weight. And as the weights add up to "
        "1, the context is a weighted average of the values, pulled hardest towards those with the "
        "largest weights."
    )


# Rounding the weight to four decimals moves a term by about this much; more is a slip.
_ROUNDING = 2e-4
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")

_Matrix = list[list[float]]


def _printed(subject: Subject) -> tuple[Block, ...]:
    """Show each term and each sum, exact and as printed, and the misprints."""
    printed, say = subject.printed, subject.say
    if printed is None or not printed.printed_terms:
        return ()
    terms = _printed_terms(subject)
    _check_printed(printed, subject, terms)
    context = subject.context[subject.position].tolist()
    rows = []
    for place, (exact, given) in enumerate(zip(terms, printed.printed_terms, strict=True)):
        number = f"c{place + 1}".translate(_SUBSCRIPTS)
        rows.append([number, say("exact"), *map(four, exact), four(context[place])])
        marked = [_marked(a, b) for a, b in zip(given, exact, strict=True)]
        rows.append(["", say("published"), *marked, four(printed.printed_context[place])])
    table = Table(
        ["", "p·v", *subject.key_names, say("sum")],
        rows,
        caption=say("The terms of each sum, exact and as published"),
        align=["left", "left", *("right" for _ in subject.key_names), "right"],
    )
    return (table, *_slips(printed, subject, terms))


def _printed_terms(subject: Subject) -> _Matrix:
    """Compute weight times value: a row per number of the value, a column per key."""
    weights = subject.matrix("dropped")[subject.position]
    return (weights[:, None] * subject.values).T.tolist()


def _check_printed(printed: WorkedExample, subject: Subject, terms: _Matrix) -> None:
    """Check that an example belongs to the trace."""
    shape = (len(terms), len(subject.key_names))
    rows = printed.printed_terms
    given = (len(rows), len(rows[0]) if rows else 0)
    if shape != given or len(printed.printed_context) != shape[0]:
        raise ValueError(
            f"printed must be an example of {shape[0]} numbers by {shape[1]} words, as the trace "
            f"has, got {given[0]} by {given[1]}."
        )


def _slips(printed: WorkedExample, subject: Subject, terms: _Matrix) -> Iterator[Block]:
    """Explain the misprints, and their effect."""
    say, context = subject.say, subject.context[subject.position].tolist()
    pairs = [
        (place, key, given, exact)
        for place, (givens, exacts) in enumerate(zip(printed.printed_terms, terms, strict=True))
        for key, (given, exact) in enumerate(zip(givens, exacts, strict=True))
        if abs(given - exact) > _ROUNDING
    ]
    if not pairs:
        yield Paragraph(say("The published numbers agree with the exact ones, up to rounding."))
        return
    sentences = [
        say(
            "For “{word}” the source prints {printed} where {exact} is right, which makes the sum "
            "{printed_sum} instead of {exact_sum}.",
            word=subject.key_names[key],
            printed=four(given),
            exact=four(exact),
            printed_sum=four(printed.printed_context[place]),
            exact_sum=four(context[place]),
        )
        for place, key, given, exact in pairs
    ]
    opening = say("The numbers marked ≠ are errors in the source.")
    closing = say(
        "A difference of up to {rounding} is not marked: numbers that are rounded on the way "
        "move a term by about as much.",
        rounding=f"{_ROUNDING:.4f}",
    )
    yield Paragraph(say.after_each_other(opening, *sentences, closing))


def _marked(given: float, exact: float) -> str:
    return f"≠ {four(given)}" if abs(given - exact) > _ROUNDING else four(given)
