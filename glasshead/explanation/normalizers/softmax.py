"""The softmax."""

from glasshead.explanation.figures import factor, figure
from glasshead.explanation.normalizers.exponentials import Exponentials
from glasshead.explanation.normalizers.telling import NormalizerTelling, by_key
from glasshead.explanation.subject import Subject
from glasshead.explanation.tables import Column


def tell_softmax(subject: Subject) -> NormalizerTelling:
    """Powers of e, and each one's share in their sum."""
    say, exponentials = subject.say, Exponentials.of(subject)
    whole, above = exponentials.sum(), exponentials.above

    def written(score: float) -> str:
        power = figure(exponentials.power(score))
        return f"{exponentials.written(score)} / Σ = {power} / {figure(whole)}"

    return NormalizerTelling(
        intro=(
            say(
                "Scores can be of any size, positive or negative. The softmax turns them into "
                "shares: it raises e = 2.718… to the power of each score, which always gives a "
                "positive number, and divides each power by the sum of them all, so that the "
                "shares add up to 1. The share of a key is its weight p."
            ),
            *exponentials.remark(subject),
        ),
        formula=f"p_j = e^{above('s_j')} / Σ,   Σ = Σ_k e^{above('s_k')}",
        numbers=(
            *exponentials.sum_written(subject, whole),
            "",
            *by_key(subject, written),
        ),
        why=_why(subject),
        columns=(Column(f"e^{exponentials.exponent}", exponentials.powers, share=True),),
    )


def _why(subject: Subject) -> str:
    """Differences of scores become quotients of weights: told with the two best keys."""
    say, scores, weights = subject.say, subject.row("masked"), subject.row("weights")
    best = [key for key in subject.by_weight if key in set(subject.seen)][:2]
    if len(best) < 2 or not weights[best[1]] > 0:
        return say(
            "Why powers of e: they are all positive, they keep the order of the scores, and they "
            "turn a difference between two scores into a ratio of two weights."
        )
    first, second = best
    difference = scores[first] - scores[second]
    return say(
        "Why powers of e: they are all positive, they keep the order of the scores, and they turn "
        "a difference between two scores into a ratio of two weights. The score of “{first}” is "
        "{difference} above that of “{second}”, so its weight is e^{power} = {quotient} times as "
        "large, whatever the other scores are.",
        first=subject.key_names[first],
        second=subject.key_names[second],
        difference=figure(difference),
        power=factor(difference),
        quotient=figure(weights[first] / weights[second]),
    )
