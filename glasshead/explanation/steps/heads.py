"""Several heads: what each looks at."""

import torch

from glasshead.explanation.figures import figure
from glasshead.explanation.maps import heat_map
from glasshead.explanation.step import Step
from glasshead.explanation.subject import MOST_ROWS, Subject


def tell_heads(subject: Subject) -> Step | None:
    """The weights of the query in each head; None where there is one head."""
    if subject.heads == 1:
        return None
    say = subject.say
    batch = subject.index[:-1]
    weights = subject.trace.weights.detach().cpu()[batch][:, subject.position]
    names = tuple(say("head {head}", head=head) for head in range(subject.heads))
    return Step(
        name="heads",
        title=say("What each head looks at"),
        intro=(
            say(
                "This attention has {heads} heads; explained above is head {head}, counted from 0. "
                "Each head does all of this by itself, with queries, keys and values of its own. "
                "Here is what “{query}” looks at in each of them.",
                heads=subject.heads,
                head=subject.head,
                query=subject.name,
            ),
        ),
        numbers=_best(weights, names, subject),
        figures=(
            heat_map(
                subject,
                _hidden_as_nan(weights, subject),
                names,
                highlight=subject.head,
                caption=say("The weights of “{query}”, a row for each head", query=subject.name),
            ),
        ),
        why=say(
            "Why several heads: one head can give its attention only once, and what it gives to "
            "one word it takes from another. Several heads look for several things at a time: one "
            "for the word before, another for the verb. What they find is joined into one vector "
            "at the end."
        ),
        data={"weights": weights},
    )


def _best(weights: torch.Tensor, names: tuple[str, ...], subject: Subject) -> tuple[str, ...]:
    """The key that each head looks at most; of many heads, of the first ones."""
    lines = []
    for name, row in list(zip(names, weights, strict=True))[:MOST_ROWS]:
        best = int(row.argmax())
        weight = row[best].item()
        found = f"{subject.key_names[best]} ({figure(weight)})" if weight > 0 else "0"
        lines.append(f"{name}: max p = {found}")
    return (*lines, "…") if len(names) > MOST_ROWS else tuple(lines)


def _hidden_as_nan(weights: torch.Tensor, subject: Subject) -> torch.Tensor:
    if subject.visible_in_row is None:
        return weights.double()
    visible = subject.visible_in_row[:, subject.position]
    return weights.double().masked_fill(~visible, torch.nan)
