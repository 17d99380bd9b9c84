"""Decoding: the text that a model writes, token by token."""

from glasshead.models.decoding.beam import Beam
from glasshead.models.decoding.generate import generate, stream
from glasshead.models.decoding.generated import Chosen, Generated, Hypothesis
from glasshead.models.decoding.greedy import Greedy
from glasshead.models.decoding.sampling import Sampling
from glasshead.models.decoding.steps import Steps
from glasshead.models.decoding.strategy import Strategy

__all__ = [
    "Beam",
    "Chosen",
    "Generated",
    "Greedy",
    "Hypothesis",
    "Sampling",
    "Steps",
    "Strategy",
    "generate",
    "stream",
]
