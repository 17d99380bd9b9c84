"""The softcap."""

from glasshead.explanation.figures import aligned, factor, figure
from glasshead.explanation.step import Step
from glasshead.explanation.subject import Subject


def tell_softcap(subject: Subject) -> Step | None:
    """Scores bent so that they stay between -c and c."""
    softcap, say = subject.problem.softcap, subject.say
    if softcap is None:
        return None
    cap, scaled, capped = figure(softcap), subject.row("scaled"), subject.row("capped")
    lines = [
        (
            f"s({subject.key_names[key]})",
            f"{cap}·tanh({figure(scaled[key])} / {factor(softcap)}) = {figure(capped[key])}",
        )
        for key in subject.written
    ]
    return Step(
        name="capped",
        title=say("Softcap: no score too large"),
        intro=(
            say(
                "The scores are bent smoothly, so that none leaves the range from −{cap} to {cap}.",
                cap=cap,
            ),
        ),
        formula="s ← c·tanh(s / c)",
        numbers=aligned(lines),
        why=say(
            "Why a cap: one enormous score would take all the weight and leave training nothing to "
            "correct. Scores that are small beside {cap} pass almost unchanged, for near 0 the "
            "curve tanh is almost a straight line of slope 1.",
            cap=cap,
        ),
        data={"softcap": softcap, "capped": subject.matrix("capped")},
    )
