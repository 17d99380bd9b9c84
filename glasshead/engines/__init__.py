"""Engines: interchangeable ways to compute one attention problem."""

from glasshead.engines.fused import Fused
from glasshead.engines.reducing import reduce_by_fastest, reducer_of
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
    "reduce_by_fastest",
    "reducer_of",
]
