"""Engines: interchangeable ways to compute one attention problem."""

from glasshead.engines.fused import Fused, reduced_by, reductions_of
from glasshead.engines.reference import REFERENCE, Cost, Engine, Observed, Reference
from glasshead.engines.streaming import STREAMING, Streaming
from glasshead.engines.triton import TRITON, Triton

FUSED = Fused()
ENGINES: tuple[Engine, ...] = (FUSED, STREAMING, REFERENCE)

__all__ = [
    "ENGINES",
    "FUSED",
    "REFERENCE",
    "STREAMING",
    "TRITON",
    "Cost",
    "Engine",
    "Fused",
    "Observed",
    "Reference",
    "Streaming",
    "Triton",
    "reduced_by",
    "reductions_of",
]
