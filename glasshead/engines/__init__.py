"""Engines: ways to compute a problem, the fastest first."""

from glasshead.engines.engine import Cost, Engine
from glasshead.engines.fused import Fused
from glasshead.engines.reference import Reference

REFERENCE = Reference()
ENGINES: tuple[Engine, ...] = (Fused(), REFERENCE)

__all__ = ["ENGINES", "REFERENCE", "Cost", "Engine", "Fused", "Reference"]
