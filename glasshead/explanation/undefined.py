"""Notes on queries whose context is NaN: the first step that holds it, and why."""

from collections.abc import Iterator

from torch import Tensor

from glasshead.explanation.subject import Subject

_PAIRS = "scores", "scaled", "capped", "masked", "weights"
_MOST_NAMES = 5


def undefined_notes(subject: Subject) -> Iterator[str]:
    """Yield a note for each step at which the context of a query becomes NaN."""
    undefined = subject.context.isnan().any(-1)
    if not bool(undefined.any()):
        return
    places: dict[str, list[int]] = {}
    for place in undefined.nonzero().flatten().tolist():
        places.setdefault(_first_step(subject, place), []).append(place)
    say = subject.say
    for step, queries in places.items():
        names = [subject.query_names[place] for place in queries]
        named = ", ".join(f"“{name}”" for name in names[:_MOST_NAMES])
        shown = named + (", …" if len(names) > _MOST_NAMES else "")
        if step == "empty":
            yield say(
                "The context of {shown} is NaN, because no key is visible: a softmax of −∞ alone "
                "is NaN. The weights are shown as 0.",
                shown=shown,
            )
            continue
        first = say(
            "The context of {shown} is NaN. The first step that holds NaN is `{step}`.",
            shown=shown,
            step=step,
        )
        yield say.after_each_other(first, *_cause(subject, step))


def _first_step(subject: Subject, place: int) -> str:
    """Return the first step of a trace that holds NaN for a query; "empty" if it sees no key."""
    seen = subject.matrix("masked")[place] != -float("inf")
    if not bool(seen.any()):
        return "empty"
    steps: dict[str, Tensor] = {
        "queries": subject.queries[place],
        "keys": subject.keys[seen],
        "values": subject.values[seen],
        **{step: subject.matrix(step)[place][seen] for step in _PAIRS},
    }
    return next((step for step, numbers in steps.items() if bool(numbers.isnan().any())), "context")


def _cause(subject: Subject, step: str) -> Iterator[str]:
    if step == "masked":
        yield subject.say(
            "What is added to the scores holds NaN, as the product 0 · (−∞) does. Hide scores "
            "with masked_fill(mask, −∞)."
        )
    elif step == "context" and not bool(subject.values.isfinite().all()):
        yield subject.say("A hidden value is NaN or infinite, and its product with 0 is NaN.")
