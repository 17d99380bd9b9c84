"""Explanations of the normalizers, by the formula that each computes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from glasshead.explanation.subject import Column, Subject, formula_of
from glasshead.recipe import normalizers


class NormalizerExplanation(NamedTuple):
    """The explanation of a normalizer: its description, formula, numbers and reason.

    `columns` are its intermediate values between scores and weights, one per key.
    """

    intro: tuple[str, ...]
    formula: str
    numbers: tuple[str, ...]
    why: str
    columns: tuple[Column, ...] = ()


def by_key(subject: Subject, write: Callable[[float], str]) -> tuple[str, ...]:
    """Format a line for each key that is written out: `write` of its score, and its weight.

    The weight is the trace's own.
    """
    scores, weights, seen = subject.row("masked"), subject.row("weights"), set(subject.seen)

    def line(key: int) -> str:
        weight = subject.write.figure(weights[key])
        if key in seen:
            return f"{write(scores[key])} = {weight}"
        hidden = subject.say("hidden")
        return f"{weight}   ({hidden})"

    return subject.by_key("p", line)


_LARGEST = 10.0


@dataclass(frozen=True)
class Exponentials:
    """The exponentials of the scores, shifted by the row maximum where they would be large.

    Attributes:
        subject: The subject of the explanation.
        shift: Number subtracted from each score; 0 where the exponentials are small enough.
        powers: The exponentials, one per key; 0 for a hidden one.
        sink: The score of the sink in the sum, if there is one.
    """

    subject: Subject
    shift: float
    powers: list[float]
    sink: float | None = None

    @classmethod
    def of(cls, subject: Subject, sink: float | None = None) -> "Exponentials":
        scores, seen = subject.row("masked"), set(subject.seen)
        largest = max((scores[key] for key in seen), default=0.0)
        shift = largest if abs(largest) > _LARGEST and math.isfinite(largest) else 0.0
        powers = [_exp(s - shift) if key in seen else 0.0 for key, s in enumerate(scores)]
        return cls(subject, shift, powers, sink)

    @property
    def column(self) -> Column:
        """The column of the exponentials."""
        return Column(f"e^{self.above('s')}", self.powers, share=True)

    def above(self, place: str) -> str:
        """Return the exponent of e in a formula, for an indexed score."""
        return f"({place} - m)" if self.shift else place

    def written(self, score: float) -> str:
        """Format one exponential with its number."""
        write = self.subject.write
        if self.shift:
            return f"e^({write.figure(score)} - {write.factor(self.shift)})"
        return f"e^{write.factor(score)}"

    def lines(self) -> tuple[str, ...]:
        """Format their sum, as powers and as numbers, and the share of each key in it."""
        write, scores = self.subject.write, self.subject.row("masked")
        keys = [key for key in self.subject.written if key in set(self.subject.seen)]
        omitted = len(self.subject.seen) - len(keys)
        terms = [*([] if self.sink is None else [self.sink]), *(scores[key] for key in keys)]
        powers = write.total([self.written(score) for score in terms], omitted)
        figures = write.total([write.figure(_exp(score - self.shift)) for score in terms], omitted)
        sink = 0.0 if self.sink is None else _exp(self.sink - self.shift)
        whole = write.figure(sum([*self.powers, sink]))

        def share(score: float) -> str:
            return f"{self.written(score)} / Σ = {write.figure(_exp(score - self.shift))} / {whole}"

        return f"Σ = {powers}", f"  = {figures} = {whole}", "", *by_key(self.subject, share)

    def remark(self) -> tuple[str, ...]:
        """Explain the shift by the largest score, where there is one."""
        if not self.shift:
            return ()
        sentence = self.subject.say(
            "These scores are far from 0, so the powers of e would be unwieldy; the largest score, "
            "m = {largest}, is therefore first subtracted from all of them, as computers always "
            "do. That changes no weight, for it divides every power, and so their sum, by the same "
            "number.",
            largest=self.subject.write.figure(self.shift),
        )
        return (sentence,)


def _exp(exponent: float) -> float:
    try:
        return math.exp(exponent)
    except OverflowError:
        return math.inf


def explain_softmax(subject: Subject) -> NormalizerExplanation:
    """Explain the softmax: powers of e, and the share of each in their sum."""
    say, exponentials = subject.say, Exponentials.of(subject)
    above = exponentials.above
    return NormalizerExplanation(
        intro=(
            say(
                "Scores can be of any size, positive or negative. The softmax turns them into "
                "shares: it raises e = 2.718… to the power of each score, which always gives a "
                "positive number, and divides each power by the sum of them all, so that the "
                "shares add up to 1. The share of a key is its weight p."
            ),
            *exponentials.remark(),
        ),
        formula=f"p_j = e^{above('s_j')} / Σ,   Σ = Σ_k e^{above('s_k')}",
        numbers=exponentials.lines(),
        why=_why(subject),
        columns=(exponentials.column,),
    )


def _why(subject: Subject) -> str:
    """Explain by the two best keys that score differences become weight ratios."""
    say, write = subject.say, subject.write
    scores, weights = subject.row("masked"), subject.row("weights")
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
        difference=write.figure(difference),
        power=write.factor(difference),
        quotient=write.figure(weights[first] / weights[second]),
    )


def explain_softmax_one(subject: Subject) -> NormalizerExplanation:
    """Explain the softmax with a sink: one more power in the sum, which belongs to no key."""
    say, write, sink = subject.say, subject.write, _sink(subject)
    exponentials = Exponentials.of(subject, sink)
    above = exponentials.above
    return NormalizerExplanation(
        intro=(
            say(
                "This softmax has one place more than there are keys: a sink, with the score "
                "{sink}. As in any softmax, e = 2.718… is raised to the power of each score and "
                "divided by the sum of all these powers; but the sink's power is in the sum too, "
                "so that the weights p of the keys add up to less than 1.",
                sink=write.figure(sink),
            ),
            *exponentials.remark(),
        ),
        formula=f"p_j = e^{above('s_j')} / Σ,   Σ = e^{above('sink')} + Σ_k e^{above('s_k')}",
        numbers=exponentials.lines(),
        why=say(
            "Why a sink: an ordinary softmax has to give away all of the attention, even where no "
            "key deserves any. With a sink a word may look away: here {rest} of the attention goes "
            "to no key. The proportions between the keys stay the same.",
            rest=write.figure(1 - math.fsum(subject.row("weights"))),
        ),
        columns=(exponentials.column,),
    )


def _sink(subject: Subject) -> float:
    """Return the sink of the explained head."""
    return subject.of_head(getattr(subject.problem.normalizer, "sink", 0.0))


def explain_hard_max(subject: Subject) -> NormalizerExplanation:
    """Explain hard attention: the largest score takes all."""
    say, write, scores = subject.say, subject.write, subject.row("masked")
    keys = [key for key in subject.written if key in set(subject.seen)]
    listed = ", ".join(write.figure(scores[key]) for key in keys)
    more = ", …" if len(keys) < len(subject.seen) else ""
    largest = max((scores[key] for key in subject.seen), default=0.0)
    return NormalizerExplanation(
        intro=(
            say(
                "Hard attention does not share: the key with the largest score gets the whole "
                "weight, p = 1, and all the others get 0. Ties go to the first."
            ),
        ),
        formula=f"p_j = {normalizers.HardMax.formula}",
        numbers=(
            f"max s = max({listed}{more}) = {write.figure(largest)}",
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
    """Format each weight, and the comparison of its score with the largest."""
    write = subject.write
    scores, weights, seen = subject.row("masked"), subject.row("weights"), set(subject.seen)

    def line(key: int) -> str:
        sign = "<" if scores[key] < largest else "="
        compared = f"{write.figure(scores[key])} {sign} {write.figure(largest)}"
        why = compared if key in seen else subject.say("hidden")
        return f"{write.figure(weights[key])}   ({why})"

    return subject.by_key("p", line)


def explain_sigmoid(subject: Subject) -> NormalizerExplanation:
    """Explain the sigmoid at each score."""
    say, write = subject.say, subject.write

    def written(score: float) -> str:
        power = math.exp(min(-score, 700.0))
        return f"1 / (1 + e^{write.factor(-score)}) = 1 / (1 + {write.figure(power)})"

    return NormalizerExplanation(
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
            total=write.figure(math.fsum(subject.row("weights"))),
        ),
    )


def sparsemax_threshold(scores: Sequence[float], weights: Sequence[float]) -> float:
    """Compute the threshold τ that sparsemax subtracts from a row of scores, from its weights.

    >>> sparsemax_threshold([1.0, 0.5, -3.0], [0.75, 0.25, 0.0])
    0.25
    """
    above = [score for score, weight in zip(scores, weights, strict=True) if weight > 0]
    return (math.fsum(above) - 1) / max(len(above), 1)


def entmax15_threshold(scores: Sequence[float], weights: Sequence[float]) -> float:
    """Compute the threshold τ that 1.5-entmax subtracts from half of a row of scores.

    >>> entmax15_threshold([2.0, 0.0], [1.0, 0.0])
    0.0
    """
    best = max(range(len(weights)), key=lambda key: weights[key])
    return scores[best] / 2 - math.sqrt(weights[best])


def explain_sparsemax(subject: Subject) -> NormalizerExplanation:
    """Explain the sparsemax: a threshold is subtracted from all scores."""
    say, write, scores = subject.say, subject.write, subject.row("masked")
    above = _above(subject)
    terms = [write.factor(scores[key]) for key in above]
    threshold = sparsemax_threshold(scores, subject.row("weights"))
    return NormalizerExplanation(
        intro=(
            say(
                "The sparsemax subtracts one threshold τ (tau) from every score. What is left "
                "above 0 is the weight p; whatever falls below gets exactly 0. τ is chosen so that "
                "the weights add up to 1: add up the scores that stay above it, subtract 1, and "
                "divide by their number, here {count}.",
                count=len(above),
            ),
        ),
        formula="p_j = max(s_j - τ, 0),   Σ p_j = 1",
        numbers=(
            f"τ = ({write.total(terms)} - 1) / {len(above)} = {write.figure(threshold)}",
            "",
            *by_key(subject, lambda s: f"max({write.figure(s)} - {write.factor(threshold)}, 0)"),
        )
        if above
        else (),
        why=say(
            "Why cut off: a softmax never gives exactly 0, so in a long text many tiny weights add "
            "up to a lot. Visible keys that get nothing at all here: {zeros} of {seen}.",
            zeros=len(subject.seen) - len(above),
            seen=len(subject.seen),
        ),
    )


def explain_entmax15(subject: Subject) -> NormalizerExplanation:
    """Explain the 1.5-entmax: a threshold is subtracted from half of each score, and squared."""
    say, write = subject.say, subject.write
    scores, weights = subject.row("masked"), subject.row("weights")
    above = _above(subject)
    threshold = entmax15_threshold(scores, weights)
    return NormalizerExplanation(
        intro=(
            say(
                "This is 1.5-entmax, halfway between softmax and sparsemax: one threshold τ (tau) "
                "is subtracted from half of every score, and what is left above 0 is squared. "
                "Whatever falls below gets exactly 0. τ is found by a search, so that the weights "
                "p add up to 1: here it is {threshold}.",
                threshold=write.figure(threshold),
            ),
        ),
        formula="p_j = max(s_j/2 - τ, 0)²,   Σ p_j = 1",
        numbers=(
            f"τ = {write.figure(threshold)}",
            "",
            *by_key(subject, lambda s: f"max({write.figure(s)}/2 - {write.factor(threshold)}, 0)²"),
        )
        if above
        else (),
        why=say(
            "Why halfway: like sparsemax it gives exactly 0 to keys that do not matter (here to "
            "{zeros} of {seen} visible); like softmax it is smooth, without a sharp bend, "
            "which makes it easier to train.",
            zeros=len(subject.seen) - len(above),
            seen=len(subject.seen),
        ),
    )


def _above(subject: Subject) -> list[int]:
    """Return the keys with positive weight."""
    return [key for key, weight in enumerate(subject.row("weights")) if weight > 0]


def explain_own(subject: Subject) -> NormalizerExplanation:
    """Explain a custom normalizer by its results only."""
    say, write = subject.say, subject.write
    normalizer, weights = subject.problem.normalizer, subject.row("weights")
    return NormalizerExplanation(
        intro=(say("The scores are turned into weights p, one for each key."),),
        formula=f"p_j = {formula_of(normalizer)}",
        numbers=subject.by_key("p", lambda key: write.figure(weights[key])),
        why=say.described(normalizer.describe() or "")
        or say(
            "“{normalizer}” is a normalizer of your own, so only its results are shown here, not "
            "how it gets them.",
            normalizer=type(normalizer).__name__,
        ),
    )


# Keyed by method, not by class: a subclass that computes something else is not its base.
_EXPLAINERS = {
    normalizers.Softmax.normalize: explain_softmax,
    normalizers.SoftmaxOne.normalize: explain_softmax_one,
    normalizers.HardMax.normalize: explain_hard_max,
    normalizers.Sparsemax.normalize: explain_sparsemax,
    normalizers.Entmax15.normalize: explain_entmax15,
    normalizers.Sigmoid.normalize: explain_sigmoid,
}


def explain_normalizer(subject: Subject) -> NormalizerExplanation:
    """Explain the normalizer of the subject's recipe."""
    return _EXPLAINERS.get(type(subject.problem.normalizer).normalize, explain_own)(subject)


def why_hidden(subject: Subject) -> str:
    """Explain why the scores of hidden keys are −∞, for the normalizer of the subject's recipe."""
    if is_softmax(subject):
        return subject.say(
            "Why −∞ and not 0: 0 is a score like any other and would earn weight. −∞ earns none, "
            "for e^(−∞) = 0: the visible keys share everything, as if the hidden ones did not "
            "exist."
        )
    return subject.say(
        "Why −∞ and not 0: 0 is a score like any other and could earn weight. −∞ can earn none, as "
        "if the hidden keys did not exist."
    )


def is_hard_max(subject: Subject) -> bool:
    """Return whether one key gets all the weight."""
    return type(subject.problem.normalizer).normalize is normalizers.HardMax.normalize


_SHARPENING = {
    kind.normalize for kind in (normalizers.Softmax, normalizers.Sparsemax, normalizers.Entmax15)
}


def sharpens(subject: Subject) -> bool:
    """Return whether β alone takes the weights from equal ones to all for the largest score."""
    problem = subject.problem
    return (
        type(problem.normalizer).normalize in _SHARPENING
        and problem.softcap is None
        and subject.bias is None
    )


def is_softmax(subject: Subject) -> bool:
    """Return whether the weights are a plain softmax of the scores."""
    return subject.problem.normalizer.is_softmax
