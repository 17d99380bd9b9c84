"""Engines: interchangeable ways to compute one attention problem."""

from glasshead.engines.base import Cost, Engine, Observed
from glasshead.engines.fused import Fused
from glasshead.engines.reductions_only import price, reductions_of
from glasshead.engines.reference import REFERENCE, Reference
from glasshead.engines.streaming import STREAMING, Streaming

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
    "price",
    "reductions_of",
]
