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
                "The query of “{query}” is held against each key in turn. Every comparison gives "
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
    say = subject.say
    return (
        Paragraph(
            say(
                "Written out are the {count} keys that will weigh most; the other {others} go the "
                "same way.",
                count=len(subject.written),
                others=others,
            )
        ),
        key_table(subject, [Column(say("score"), subject.row("scores"))]),
    )
