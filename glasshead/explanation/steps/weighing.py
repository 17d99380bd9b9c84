"""Weights: the scores shared out."""

from math import fsum

from glasshead.drawing import Block, Paragraph
from glasshead.explanation.figures import figure
from glasshead.explanation.normalizers import normalizer_formula, tell_normalizer
from glasshead.explanation.step import Step
from glasshead.explanation.subject import Subject
from glasshead.explanation.tables import Column, key_table


def tell_weights(subject: Subject) -> Step:
    """The normalizer's formula with its numbers, and what comes of it."""
    say = subject.say
    title, data = say("Weights: how much of each?"), {"weights": subject.matrix("weights")}
    if not subject.seen:
        return Step(
            name="weights",
            title=title,
            intro=(_nothing_seen(subject),),
            formula=f"p_j = {normalizer_formula(subject.problem.normalizer)}",
            figures=(_table(subject, ()),),
            data=data,
        )
    telling = tell_normalizer(subject)
    return Step(
        name="weights",
        title=title,
        intro=telling.intro,
        formula=telling.formula,
        numbers=telling.numbers,
        figures=(_table(subject, telling.columns), *_summary(subject)),
        why=telling.why,
        data=data,
    )


def _nothing_seen(subject: Subject) -> str:
    return subject.say(
        "“{query}” can see no key at all, so there is nothing to share out, and by convention all "
        "its weights are 0. (A softmax taken literally would divide 0 by 0 here.)",
        query=subject.name,
    )


def _table(subject: Subject, between: tuple[Column, ...]) -> Block:
    """From score to weight, key by key."""
    say = subject.say
    scores = Column(say("score"), subject.row("masked"))
    weights = Column(say("weight"), subject.row("weights"), share=True)
    return key_table(subject, [scores, *between, weights], total=True)


def _summary(subject: Subject) -> tuple[Block, ...]:
    """What the query looks at most."""
    say, weights = subject.say, subject.row("weights")
    best = [key for key in subject.by_weight if weights[key] > 0][:2]
    if not best:
        return ()
    first = best[0]
    if len(best) == 1:
        told = say(
            "“{query}” looks at “{first}” alone, with a weight of {weight}.",
            query=subject.name,
            first=subject.key_names[first],
            weight=figure(weights[first]),
        )
    else:
        told = say(
            "“{query}” looks most at “{first}” (weight {weight}), and next at “{second}” "
            "({second_weight}).",
            query=subject.name,
            first=subject.key_names[first],
            weight=figure(weights[first]),
            second=subject.key_names[best[1]],
            second_weight=figure(weights[best[1]]),
        )
    return (Paragraph(told),)


def adds_up_to_one(subject: Subject) -> bool:
    """Whether the weights that mix the values are shares of a whole."""
    weights = subject.row("dropped")
    return min(weights) >= 0 and abs(fsum(weights) - 1) < 1e-3
