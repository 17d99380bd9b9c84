"""Reading: lets a model read, and finds the roles of its heads."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

import glasshead as gh
from glasshead.cli.observing.runs.gathering import in_a_sentence
from glasshead.tasks.readers.base import Reader
from glasshead.watching.analytics.role_scores import THRESHOLDS
from glasshead.watching.analytics.roles import Masses, masses_of_layers, roles_of

# Queries and keys of every layer are kept until their roles are found.
_TOKENS_AT_ONCE = 1024
_BUDGET = 2**34


@dataclass(frozen=True, eq=False)
class Found:
    """The roles of the heads on some texts.

    Attributes:
        name: Of the texts.
        said: What they are, in words.
        tokens: How many there are.
        roles: What was found.
        sees_later: Whether a query sees keys after it.
    """

    name: str
    said: str
    tokens: int
    roles: gh.HeadRoles
    sees_later: bool


def found(
    reader: Reader,
    name: str,
    said: str,
    groups: Sequence[Int[Tensor, "texts length"]],
    progress: Callable[[int, int], None],
) -> Found:
    """What the heads do on texts, in groups of one length.

    Args:
        reader: What reads.
        name, said: Of the texts.
        groups: Their tokens.
        progress: Is told how many batches are done, and of how many.

    Errors: a ValueError where an attention cannot be seen, or its numbers overflow.
    """
    batches = [
        batch
        for group in groups
        for batch in group.split(max(1, _TOKENS_AT_ONCE // group.shape[1]))
    ]
    masses: dict[str, Masses] = {}
    sees_later = False
    for done, batch in enumerate(batches):
        progress(done, len(batches))
        with torch.inference_mode(), in_a_sentence():
            with gh.watch(reader.model, keep="weights", budget=_BUDGET) as seen:
                reader.read(batch)
            sees_later = sees_later or _sees_later(seen)
            masses = _sum(masses, masses_of_layers(seen, batch))
    if any(one.sums.isnan().any() for one in masses.values()):
        raise ValueError(
            "the scores grow beyond all numbers: train the model again, or name another."
        )
    tokens = sum(group.numel() for group in groups)
    return Found(name, said, tokens, roles_of(masses, THRESHOLDS), sees_later)


def _sees_later(seen: gh.Seen) -> bool:
    """Whether the first query of a text puts weight on any key but the first."""
    weights = next(iter(seen.values())).weights
    return bool(weights[..., 0, 1:].any())


def _sum(left: Mapping[str, Masses], right: Mapping[str, Masses]) -> dict[str, Masses]:
    return {name: left[name] + one if name in left else one for name, one in right.items()}
