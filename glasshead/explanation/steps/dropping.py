"""Dropout: some weights left out by chance, in training."""

from glasshead.explanation.figures import aligned, figure
from glasshead.explanation.step import Step
from glasshead.explanation.subject import Subject
from glasshead.explanation.tables import Column, key_table


def tell_dropout(subject: Subject) -> Step | None:
    """Which weights were dropped, and how the others grew; None outside training."""
    rate, say = subject.problem.dropout, subject.say
    if not rate:
        return None
    weights, dropped = subject.row("weights"), subject.row("dropped")
    lines = [
        (
            f"p({subject.key_names[key]})",
            f"{figure(weights[key])} / {figure(1 - rate)} = {figure(dropped[key])}"
            if dropped[key]
            else f"{figure(weights[key])} → 0",
        )
        for key in subject.written
    ]
    columns = [
        Column(say("weight before"), weights, share=True),
        Column(say("weight after"), dropped, share=True),
    ]
    return Step(
        name="dropped",
        title=say("Dropout: some weights are left out"),
        intro=(
            say(
                "In training, each weight is set to 0 at random, with probability {rate}; those "
                "that remain are divided by {kept} to make up for it.",
                rate=figure(rate),
                kept=figure(1 - rate),
            ),
        ),
        formula="p ← 0,   p ← p / (1 - r)",
        numbers=aligned(lines),
        figures=(key_table(subject, columns, total=True),),
        why=say(
            "Why by chance: a model that cannot rely on any single weight has to learn to find the "
            "same thing in several ways. When it is used, after training, nothing is dropped."
        ),
        data={"rate": rate, "dropped": subject.matrix("dropped")},
    )
