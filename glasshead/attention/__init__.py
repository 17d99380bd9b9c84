"""Attention, and the plan of it."""

from glasshead.attention.attention import Attention
from glasshead.attention.plan import Plan

__all__ = ["Attention", "Plan"]
