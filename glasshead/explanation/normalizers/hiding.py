"""Why a hidden key scores −∞, by the normalizer that weighs it."""

from glasshead.explanation.subject import Subject


def softmax_hides(subject: Subject) -> str:
    """e to the power of −∞ is 0, and the others share the whole."""
    return subject.say(
        "Why −∞ and not 0: 0 is a score like any other and would earn weight. −∞ earns none, for "
        "e^(−∞) = 0: the visible keys share everything, as if the hidden ones did not exist."
    )


def any_hides(subject: Subject) -> str:
    """What holds whether or not there are powers of e, and a whole to be shared."""
    return subject.say(
        "Why −∞ and not 0: 0 is a score like any other and could earn weight. −∞ can earn none, as "
        "if the hidden keys did not exist."
    )
