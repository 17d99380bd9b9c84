"""Context: the values, mixed by the weights."""

from rich.cells import cell_len

from glasshead.explanation.figures import MOST_TERMS, and_more, factor, figure, short_vector
from glasshead.explanation.normalizers import is_hard_max
from glasshead.explanation.step import Step
from glasshead.explanation.steps.printed import tell_printed
from glasshead.explanation.steps.weighing import adds_up_to_one
from glasshead.explanation.subject import Subject

_FIRST = 4


def tell_context(subject: Subject) -> Step:
    """The weighted sum with its numbers."""
    say = subject.say
    return Step(
        name="context",
        title=say("Context: the mixture"),
        intro=(_intro(subject),),
        formula="c = Σ_j p_j·v_j",
        numbers=_numbers(subject),
        figures=tell_printed(subject),
        why=_why(subject),
        data={"context": subject.context},
    )


def _intro(subject: Subject) -> str:
    return subject.say(
        "Every value is multiplied by the weight of its key, and the products are added up. The "
        "result c is the context vector of “{query}”: what it has gathered from the words it "
        "looked at.",
        query=subject.name,
    )


def _mixed(subject: Subject) -> list[int]:
    """The keys that have a part in the sum, largest weights first where there are many."""
    weights = subject.row("dropped")
    parts = [key for key, weight in enumerate(weights) if weight != 0]
    if len(parts) <= MOST_TERMS:
        return parts
    return sorted(sorted(parts, key=lambda key: -abs(weights[key]))[:_FIRST])


def _numbers(subject: Subject) -> tuple[str, ...]:
    """The sum by names, by vectors, and for the first number alone."""
    say, weights = subject.say, subject.row("dropped")
    values, context = subject.values, subject.context[subject.position].tolist()
    keys = _mixed(subject)
    left_out = sum(weight != 0 for weight in weights) - len(keys)
    left = f"c({subject.name})"
    if not keys:
        return (f"{left} = {short_vector(context)}",)
    by_name = [f"{factor(weights[key])}·v({subject.key_names[key]})" for key in keys]
    first = (f"{left} = {_joined(by_name, subject, left_out)}",)
    if not context:
        return first
    margin = " " * cell_len(left)
    vectors = [f"{factor(weights[key])}·{short_vector(values[key].tolist())}" for key in keys]
    vectors += and_more(left_out, say)
    signs = ["=", *("+" for _ in vectors[1:])]
    heads = [left, *(margin for _ in vectors[1:])]
    lines = [f"{h} {s} {v}" for h, s, v in zip(heads, signs, vectors, strict=True)]
    terms = [f"{factor(weights[key])}·{factor(values[key, 0].item())}" for key in keys]
    by_number = f"c₁ = {_joined(terms, subject, left_out)} = {figure(context[0])}"
    return (*first, "", *lines, f"{margin} = {short_vector(context)}", "", by_number)


def _joined(terms: list[str], subject: Subject, left_out: int) -> str:
    """Terms joined by +, all of them, and how many there are besides."""
    return " + ".join([*terms, *and_more(left_out, subject.say)])


def _is_single(subject: Subject) -> bool:
    """Whether the mixture is one of the values, with nothing of another."""
    parts = sum(weight != 0 for weight in subject.row("dropped"))
    return is_hard_max(subject) or (parts == 1 and adds_up_to_one(subject))


def _why(subject: Subject) -> str:
    say = subject.say
    if not any(subject.row("dropped")):
        return say("Nothing was looked at, so nothing is handed over: every number of c is 0.")
    if _is_single(subject):
        return say("Here the mixture is a single value.")
    if not adds_up_to_one(subject):
        return say(
            "Why a mixture and not a choice: a little more weight on a key changes the result by a "
            "little, so training can tell which way to move each weight."
        )
    return say(
        "Why a mixture and not a choice: a little more weight on a key changes the result by a "
        "little, so training can tell which way to move each weight. And as the weights add up to "
        "1, the context lies in the midst of the values, nearest to those that weigh most."
    )
