"""Each key on its own."""

import math

from glasshead.explanation.figures import factor, figure
from glasshead.explanation.normalizers.telling import NormalizerTelling, by_key
from glasshead.explanation.subject import Subject


def tell_sigmoid(subject: Subject) -> NormalizerTelling:
    """The logistic curve at each score."""
    say = subject.say

    def written(score: float) -> str:
        power = math.exp(min(-score, 700.0))
        return f"1 / (1 + e^{factor(-score)}) = 1 / (1 + {figure(power)})"

    return NormalizerTelling(
        intro=(
            say(
                "The sigmoid looks at each key by itself: a very negative score gives a weight p "
                "near 0, a score of 0 gives one half, a large score a weight near 1."
            ),
        ),
        formula="p_j = 1 / (1 + e^(-s_j))",
        numbers=by_key(subject, written),
        why=say(
            "Why each by itself: the keys do not compete, so one can gain weight without another "
            "losing any. The weights need not add up to 1; here they add up to {total}.",
            total=figure(math.fsum(subject.row("weights"))),
        ),
    )
