"""The softmax that may look away."""

import math

from torch import Tensor

from glasshead.explanation.figures import figure
from glasshead.explanation.normalizers.exponentials import Exponentials
from glasshead.explanation.normalizers.telling import NormalizerTelling, by_key
from glasshead.explanation.subject import Subject
from glasshead.explanation.tables import Column


def tell_softmax_one(subject: Subject) -> NormalizerTelling:
    """Powers of e, and one more in their sum that belongs to no key."""
    say, exponentials, sink = subject.say, Exponentials.of(subject), _sink(subject)
    extra, above = exponentials.power(sink), exponentials.above
    whole = exponentials.sum(extra)

    def written(score: float) -> str:
        power = figure(exponentials.power(score))
        return f"{exponentials.written(score)} / Σ = {power} / {figure(whole)}"

    sum_written = exponentials.sum_written(subject, whole, ((exponentials.written(sink), extra),))
    return NormalizerTelling(
        intro=(
            say(
                "This softmax has one place more than there are keys: a sink, with the score "
                "{sink}. As in any softmax, e = 2.718… is raised to the power of each score and "
                "divided by the sum of all these powers; but the sink's power is in the sum too, "
                "so that the weights p of the keys add up to less than 1.",
                sink=figure(sink),
            ),
            *exponentials.remark(subject),
        ),
        formula=(f"p_j = e^{above('s_j')} / Σ,   Σ = e^{above('sink')} + Σ_k e^{above('s_k')}"),
        numbers=(*sum_written, "", *by_key(subject, written)),
        why=say(
            "Why a sink: an ordinary softmax has to give away all of the attention, even where no "
            "key deserves any. With a sink a word may look away: here {rest} of the attention goes "
            "to no key. The proportions between the keys stay the same.",
            rest=figure(1 - math.fsum(subject.row("weights"))),
        ),
        columns=(Column(f"e^{exponentials.exponent}", exponentials.powers, share=True),),
    )


def _sink(subject: Subject) -> float:
    """The sink of the head that is told."""
    sink = getattr(subject.problem.normalizer, "sink", 0.0)
    if not isinstance(sink, Tensor):
        return float(sink)
    return sink.detach().flatten()[subject.head if sink.numel() > 1 else 0].item()
