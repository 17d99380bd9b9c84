"""The Triton engine: statistics beside a fused kernel's context, on a CUDA device."""

from glasshead.engines.triton.engine import TRITON, Triton

__all__ = ["TRITON", "Triton"]
