"""Engines: interchangeable ways to compute one attention problem."""

from glasshead.engines.fused import Fused
from glasshead.engines.reference import REFERENCE, Cost, Engine, Observed, Reference
from glasshead.engines.streaming import STREAMING, Streaming, reductions_of

FUSED = Fused()
ENGINES: tuple[Engine, ...] = (FUSED, STREAMING, REFERENCE)

__all__ = [
    "ENGINES",
    "FUSED",
    "REFERENCE",
    "STREAMING",
    "Cost",
    "Engine",
    "Fused",
    "Observed",
    "Reference",
    "Streaming",
    "reductions_of",
]
