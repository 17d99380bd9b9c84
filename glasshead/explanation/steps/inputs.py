"""Queries, keys and values."""

import torch

from glasshead.drawing import Block, Paragraph, Table
from glasshead.explanation.figures import short_vector
from glasshead.explanation.step import Step
from glasshead.explanation.subject import Subject


def tell_inputs(subject: Subject) -> Step:
    """The vectors that go in."""
    say = subject.say
    alike, query = _alike(subject), subject.queries[subject.position].tolist()
    same = say(
        "Here all three are one and the same vector x, the embedding of the word: the numbers that "
        "stand for it. A trained model would make three different vectors from it."
    )
    return Step(
        name="inputs",
        title=say("Queries, keys and values"),
        intro=(_told(subject), same) if alike else (_told(subject),),
        formula="q = k = v = x" if alike else "",
        numbers=(f"{'x' if alike else 'q'}({subject.name}) = {short_vector(query)}",),
        figures=(_table(subject, alike=alike), *_remark(subject)),
        why=say(
            "Why three: think of a library. You come with a question, the query; you compare it "
            "with the labels on the shelves, the keys; and what you carry home are the books, the "
            "values. Question, label and book are different things."
        ),
        data={"queries": subject.queries, "keys": subject.keys, "values": subject.values},
    )


def _told(subject: Subject) -> str:
    say = subject.say
    if subject.same_words:
        return say(
            "Every word brings three vectors, lists of numbers. Its query q says what it is "
            "looking for. Its key k says what can be found there. Its value v is what it hands "
            "over to whoever looks at it."
        )
    return say(
        "Every word that looks brings a vector, a list of numbers: its query q, which says what it "
        "is looking for. Every word that is looked at brings two: its key k, which says what can "
        "be found there, and its value v, which it hands over to whoever looks at it."
    )


def _alike(subject: Subject) -> bool:
    """Whether queries, keys and values are the same vectors."""
    q, k, v = subject.queries, subject.keys, subject.values
    return subject.same_words and torch.equal(q, k) and torch.equal(k, v)


def _table(subject: Subject, *, alike: bool) -> Table:
    """The vectors of the words that are looked at."""
    say = subject.say
    columns = [("x", subject.keys)] if alike else [("k", subject.keys), ("v", subject.values)]
    rows = [
        [
            subject.key_names[key],
            *(short_vector(v[key].tolist()) for _, v in columns),
        ]
        for key in subject.shown
    ]
    others = len(subject.key_names) - len(subject.shown)
    if others:
        rows.append([say("… and {count} others", count=others), *("" for _ in columns)])
    here = (
        subject.shown.index(subject.position)
        if alike and subject.position in subject.shown
        else None
    )
    return Table([say("word"), *(head for head, _ in columns)], rows, highlight_row=here)


def _remark(subject: Subject) -> tuple[Block, ...]:
    """What happens to keys that nobody sees, where there are any."""
    if subject.visible is None or bool(subject.visible.any(0).all()):
        return ()
    return (
        Paragraph(
            subject.say(
                "Some keys are hidden from every query. Whatever their numbers are, they change "
                "nothing; those that are not finite count as 0 from here on."
            )
        ),
    )
