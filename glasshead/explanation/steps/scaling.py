"""β: how sharply scores are told apart."""

from glasshead.explanation.figures import aligned, factor, figure
from glasshead.explanation.normalizers import is_softmax
from glasshead.explanation.step import Step
from glasshead.explanation.subject import Subject
from glasshead.recipe.scores import ScaledDot


def tell_scaling(subject: Subject) -> Step:
    """Each score times β, or a line where β is 1."""
    data = {"beta": subject.beta, "scaled": subject.matrix("scaled")}
    if subject.beta == 1:
        return _unscaled(subject, data)
    say, beta = subject.say, figure(subject.beta)
    scores, scaled = subject.row("scores"), subject.row("scaled")
    by_width = _is_by_width(subject)
    width = subject.queries.shape[-1]
    if by_width:
        intro = say(
            "Every score is divided by √d, the square root of the width of the vectors; here d = "
            "{width}. In other words, it is multiplied by β = 1/√{width} = {beta}.",
            width=width,
            beta=beta,
        )
    else:
        intro = say("Every score is multiplied by β = {beta}, the inverse temperature.", beta=beta)
    lines = [
        (f"β·s({subject.key_names[key]})", f"{beta}·{factor(scores[key])} = {figure(scaled[key])}")
        for key in subject.written
    ]
    return Step(
        name="scaled",
        title=say("Scaling: how sharp?"),
        intro=(intro,),
        formula="s ← β·s,   β = 1/√d" if by_width else "s ← β·s",
        numbers=aligned(lines),
        why=_why_root(subject, width) if by_width else _why_beta(subject),
        data=data,
    )


def _is_by_width(subject: Subject) -> bool:
    score = subject.problem.score
    return isinstance(score, ScaledDot) and score.beta is None


def _unscaled(subject: Subject, data: dict) -> Step:
    say = subject.say
    told = say("The inverse temperature β is 1 here, so the scores stay as they are.")
    usual = say(
        "Most models multiply them by β = 1/√d at this point, where d is the width of the vectors; "
        "the last section shows why."
    )
    return Step(
        name="scaled",
        title=say("Scaling: how sharp?"),
        intro=(say.after_each_other(told, usual) if is_softmax(subject) else told,),
        formula="s ← β·s,   β = 1",
        data=data,
    )


def _why_root(subject: Subject, width: int) -> str:
    return subject.say(
        "Why √d: a score is a sum of d products. If the numbers in the vectors are independent, "
        "with mean 0 and variance 1, each product has variance 1 and their sum has variance d, so "
        "that scores typically lie about √d from 0; here √{width} = {here}. Divided by √d they lie "
        "about 1 from 0 however wide the vectors are, and no weight swallows all the others merely "
        "because of the width.",
        width=width,
        here=figure(width**0.5),
    )


def _why_beta(subject: Subject) -> str:
    return subject.say(
        "Why β: it sets how sharply scores are told apart. With a large β nearly all weight goes "
        "to the best key; with a small one the weights become more and more alike; with 0 all "
        "keys weigh the same."
    )
