"""All weight on the best key."""

from glasshead.explanation.figures import aligned, figure
from glasshead.explanation.normalizers.telling import NormalizerTelling, hidden_weight
from glasshead.explanation.subject import Subject

HARD_MAX_FORMULA = "1 (s_j = max s), 0 (s_j < max s)"
"""The formula in signs alone, for every language."""


def tell_hard_max(subject: Subject) -> NormalizerTelling:
    """Which score is the largest."""
    say, scores = subject.say, subject.row("masked")
    keys = [key for key in subject.written if key in set(subject.seen)]
    listed = ", ".join(figure(scores[key]) for key in keys)
    more = ", …" if len(keys) < len(subject.seen) else ""
    largest = max((scores[key] for key in subject.seen), default=0.0)
    return NormalizerTelling(
        intro=(
            say(
                "Hard attention does not share: the key with the largest score gets the whole "
                "weight, p = 1, and all the others get 0. Of equal scores the first one wins."
            ),
        ),
        formula=f"p_j = {HARD_MAX_FORMULA}",
        numbers=(
            f"max s = max({listed}{more}) = {figure(largest)}",
            "",
            *_compared(subject, largest),
        ),
        why=say(
            "Why models are seldom trained with it: a choice does not change when the scores "
            "change a little, so its derivative is 0 and training gets no hint about which way to "
            "go. (In training, the derivative of the softmax stands in for it here.) It is what a "
            "softmax becomes when its scores grow without limit."
        ),
    )


def _compared(subject: Subject, largest: float) -> tuple[str, ...]:
    """Each weight, and how its score stands to the largest."""
    scores, weights, seen = subject.row("masked"), subject.row("weights"), set(subject.seen)
    lines = []
    for key in subject.written:
        sign = "<" if scores[key] < largest else "="
        compared = f"{figure(weights[key])}   ({figure(scores[key])} {sign} {figure(largest)})"
        told = compared if key in seen else hidden_weight(subject, key)
        lines.append((f"p({subject.key_names[key]})", told))
    return aligned(lines)
