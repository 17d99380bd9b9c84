"""Why scores are scaled: the softmax's derivative, and how it dies as scores grow."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glasshead.drawing import Block, Formula, Paragraph, Table
from glasshead.explanation.explanation import Step
from glasshead.explanation.normalizers import is_softmax
from glasshead.explanation.subject import Subject, aligned

_FACTORS = (1, 10, 100)
_NEARLY_ALL = 0.99
# Scores nearer to each other than this are a tie: ten million times larger ones still share.
_TIE = 5e-6
_MOST_KEYS = 5
_EXAMPLE = (0.1, 0.3, 0.5, 0.6, 0.9)


def explain_sharpness(subject: Subject) -> Step:
    """Explain scaling by the derivative at the user's scores, and at multiples of these."""
    say = subject.say
    title = say("Why scores are scaled")
    if not is_softmax(subject):
        return Step(name="sharpness", title=title, intro=(_not_softmax(subject),))
    if len(subject.seen) < 2:
        return Step(name="sharpness", title=title, intro=(_too_few(subject),))
    weights = torch.tensor(subject.row("weights"), dtype=torch.float64)
    keys = _keys(subject)
    jacobian = derivative(weights, keys)
    scores = _scores(subject)
    factors = _factors(scores)
    grown = _grown(scores, factors)
    example = _grown(torch.tensor(_EXAMPLE, dtype=torch.float64), _FACTORS)
    return Step(
        name="sharpness",
        title=title,
        intro=(_introduction(subject),),
        formula="∂p_i/∂s_j = p_i·(δ_ij - p_j)\nδ_ij = 1 (i = j), 0 (i ≠ j)",
        numbers=_numbers(subject, keys, weights, jacobian),
        figures=(
            *_jacobian_table(subject, keys, jacobian),
            *_growth(subject, factors, grown, example),
        ),
        why=_why(subject),
        data={
            "jacobian": jacobian,
            "jacobian_keys": keys,
            "factors": list(factors),
            "weights": grown,
            "largest_derivatives": [largest_derivative(row) for row in grown],
            "example_scores": list(_EXAMPLE),
            "example_weights": example,
        },
    )


def derivative(weights: Float[Tensor, " keys"], of: list[int]) -> Float[Tensor, "of of"]:
    """Compute ∂p_i/∂s_j of a softmax, from its weights p, for the given keys i and j.

    The diagonal p_i (1 - p_i) is written as p_i times the sum of the other weights, which keeps
    its digits where p_i is nearly 1.

    Source: p_i (δ_ij - p_j), by the quotient rule.

    >>> derivative(torch.tensor([0.5, 0.25, 0.25]), of=[0, 1])
    tensor([[ 0.2500, -0.1250],
            [-0.1250,  0.1875]])
    """
    chosen = weights[of]
    others = weights.repeat(len(of), 1).scatter_(1, torch.tensor(of)[:, None], 0.0).sum(-1)
    return (-chosen[:, None] * chosen).diagonal_scatter(chosen * others)


def largest_derivative(weights: Float[Tensor, " keys"]) -> float:
    """Return the largest |∂p_i/∂s_j|: that of the largest weight by its own score.

    All others are smaller, since p_i p_j ≤ p_i (1 - p_i), and p (1 - p) is larger the nearer p is
    to a half, where no weight is nearer than the largest.
    """
    return derivative(weights, [int(weights.argmax())]).item()


def _scores(subject: Subject) -> Float[Tensor, " seen"]:
    """Return the inputs of the softmax, for the visible keys."""
    scores = subject.row("masked")
    return torch.tensor([scores[key] for key in subject.seen], dtype=torch.float64)


def _grown(
    scores: Float[Tensor, " keys"], factors: Sequence[int]
) -> Float[Tensor, " factors keys"]:
    """Return the softmax of the scores times each factor."""
    return torch.stack([(scores * times).softmax(-1) for times in factors])


def _leaders(scores: Float[Tensor, " keys"]) -> Bool[Tensor, " keys"]:
    """Return which keys have the largest score, or tie with it."""
    return scores.max() - scores < _TIE


def _factors(scores: Float[Tensor, " keys"]) -> tuple[int, ...]:
    """Return powers of ten, up to the first at which the largest scores have nearly all weight."""
    factors = _FACTORS
    if not bool(scores.max().isfinite()):
        return factors
    while (scores * factors[-1]).softmax(-1)[_leaders(scores)].sum() < _NEARLY_ALL:
        factors = (*factors, 10 * factors[-1])
    return factors


def _keys(subject: Subject) -> list[int]:
    """Return the visible keys of the table, those with the largest weights."""
    seen = set(subject.seen)
    return sorted([key for key in subject.by_weight if key in seen][:_MOST_KEYS])


def _numbers(
    subject: Subject, keys: list[int], weights: Tensor, jacobian: Tensor
) -> tuple[str, ...]:
    """Write out one derivative on the diagonal, and one off it."""
    write = subject.write
    best = max(range(len(keys)), key=lambda place: weights[keys[place]].item())
    other = next(place for place in range(len(keys)) if place != best)
    p, q = (write.figure(weights[keys[place]].item()) for place in (best, other))
    own, others = (write.figure(jacobian[best, place].item()) for place in (best, other))
    first, second = subject.key_names[keys[best]], subject.key_names[keys[other]]
    return aligned(
        [
            (f"∂p({first})/∂s({first})", f"{p}·(1 - {p}) = {own}"),
            (f"∂p({first})/∂s({second})", f"{p}·(0 - {q}) = {others}"),
        ]
    )


def _introduction(subject: Subject) -> str:
    return subject.say(
        "A model learns by derivatives: if the score of key j grows a little, how much does the "
        "weight of key i change? For a softmax the derivative depends only on the weights; here "
        "they are those of “{query}”."
    )


def _jacobian_table(subject: Subject, keys: list[int], jacobian: Tensor) -> tuple[Block, ...]:
    say, write = subject.say, subject.write
    names = [subject.key_names[key] for key in keys]
    rows = [
        [f"∂p({name})", *map(write.figure, row)]
        for name, row in zip(names, jacobian.tolist(), strict=True)
    ]
    table = Table(
        ["", *(f"∂s({name})" for name in names)],
        rows,
        caption=say(
            "How the weight of each row changes with the score of each column: a key gains weight "
            "when its own score grows, and loses weight when that of another does"
        ),
    )
    if len(keys) == len(subject.seen):
        return (table,)
    note = say("Only the {count} keys with the largest weights are shown.", count=len(keys))
    return (table, Paragraph(note))


def _growth(
    subject: Subject, factors: Sequence[int], grown: Tensor, example: Tensor
) -> tuple[Block, ...]:
    """Show weights and derivatives as scores grow: the user's scores, then those of text E."""
    say, write = subject.say, subject.write
    places = _few(grown[0])
    names = [subject.key_names[subject.seen[place]] for place in places]
    own = say("The scores of “{query}”, as they are and made larger")
    return (
        Paragraph(_what_grows(subject, factors[-1], grown[-1])),
        _growth_table(subject, factors, grown, places, names, own),
        Paragraph(say("The same with the five scores of text E:")),
        Formula(f"s = {write.vector(_EXAMPLE)}"),
        _growth_table(
            subject,
            _FACTORS,
            example,
            range(len(_EXAMPLE)),
            [write.figure(x) for x in _EXAMPLE],
            say("Five scores, as they are and made larger"),
        ),
    )


def _what_grows(subject: Subject, times: int, weights: Float[Tensor, " keys"]) -> str:
    """Say what becomes of the weights, by the last row of the table."""
    say, write = subject.say, subject.write
    opening = say(
        "Now let the same scores grow, as they do where the dimension is large and nothing is "
        "scaled."
    )
    if not bool(weights.isfinite().all()):
        return opening
    places = {
        "times": times,
        "weight": write.figure(weights.max().item()),
        "derivative": write.figure(largest_derivative(weights)),
    }
    ties = int(_leaders(_scores(subject)).sum())
    if ties > 1:
        shown = say(
            "The largest scores, {count} of them, are equal or nearly equal, and their keys still "
            "share the weight at × {times}: the largest weight is {weight}, and the largest "
            "derivative {derivative}.",
            count=ties,
            **places,
        )
    else:
        shown = say(
            "At × {times} the largest weight is {weight}, and the largest derivative {derivative}: "
            "the largest weight goes to 1, all others go to 0, and the derivatives vanish.",
            **places,
        )
    return say.after_each_other(opening, shown)


def _growth_table(
    subject: Subject,
    factors: Sequence[int],
    grown: Tensor,
    places: Sequence[int],
    names: Sequence[str],
    caption: str,
) -> Table:
    say, write = subject.say, subject.write
    rows = [
        [
            f"× {times}",
            *(write.figure(row[place].item()) for place in places),
            write.figure(row.max().item()),
            write.figure(largest_derivative(row)),
        ]
        for times, row in zip(factors, grown, strict=True)
    ]
    heads = (f"p({name})" for name in names)
    return Table(
        [say("scores"), *heads, say("largest weight"), say("largest |∂p/∂s|")],
        rows,
        caption=caption,
    )


def _few(weights: Tensor) -> list[int]:
    """Return the indices of the largest weights, in reading order."""
    return sorted(weights.sort(descending=True, stable=True).indices[:_MOST_KEYS].tolist())


def _why(subject: Subject) -> str:
    return subject.say(
        "Why this matters: where every derivative is 0, a model cannot tell in which direction to "
        "change its scores, and stops learning. Dividing scores by √d keeps them in the range "
        "where the softmax still responds."
    )


def _not_softmax(subject: Subject) -> str:
    return subject.say(
        "Scaling is explained by the derivative of the softmax. The weights here were made by "
        "{normalizer}, whose derivative is different, so that explanation is left out.",
        normalizer=type(subject.problem.normalizer).__name__,
    )


def _too_few(subject: Subject) -> str:
    return subject.say(
        "Scaling is explained by how one weight grows while others shrink. “{query}” sees fewer "
        "than two keys, so its weights cannot move, whatever the scores are, and the explanation "
        "is left out."
    )
