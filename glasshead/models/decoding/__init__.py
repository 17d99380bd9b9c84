"""Decoding: generate text token by token."""

from glasshead.models.decoding.beam import Beam
from glasshead.models.decoding.generation import (
    Chosen,
    Generated,
    Hypothesis,
    Steps,
    Strategy,
    generate,
    stream,
)
from glasshead.models.decoding.strategies import Greedy, Sampling

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
