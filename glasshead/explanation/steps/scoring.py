"""Scores: the query against each key."""

from glasshead.drawing import Block, Paragraph
from glasshead.explanation.scores import tell_score
from glasshead.explanation.step import Step
from glasshead.explanation.subject import Subject
from glasshead.explanation.tables import Column, key_table


def tell_scores(subject: Subject) -> Step:
    """Each comparison, written out, with its result."""
    say, telling = subject.say, tell_score(subject)
    return Step(
        name="scores",
        title=say("Scores: how well does each key fit?"),
        intro=(
            say(
                "The query of “{query}” is compared with each key in turn. Every comparison gives "
                "one number, the score s: the larger it is, the better the two fit.",
                query=subject.name,
            ),
        ),
        formula=telling.formula,
        numbers=telling.numbers,
        figures=_table(subject),
        why=telling.why,
        data={"scores": subject.matrix("scores")},
    )


def _table(subject: Subject) -> tuple[Block, ...]:
    """The scores of more keys than are written out."""
    others = len(subject.key_names) - len(subject.written)
    if not others:
        return ()
    scores = Column(subject.say("score"), subject.row("scores"))
    return Paragraph(_written(subject, others)), key_table(subject, [scores])


def _written(subject: Subject, others: int) -> str:
    """Which of many keys are written out."""
    say, count = subject.say, len(subject.written)
    if not subject.seen:
        return say(
            "Only the first {count} keys are written out; the other {others} are computed the same "
            "way.",
            count=count,
            others=others,
        )
    if count == len(subject.seen):
        return say(
            "Only the keys that “{query}” may see are written out; the other {others} are computed "
            "the same way.",
            query=subject.name,
            others=others,
        )
    return say(
        "Only the {count} keys that will get the largest weights are written out; the other "
        "{others} are computed the same way.",
        count=count,
        others=others,
    )
