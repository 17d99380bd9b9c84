"""Explanation: a trace told in words, in five languages."""

from glasshead.explanation.explain import explain
from glasshead.explanation.explanation import Explanation
from glasshead.explanation.step import Step

__all__ = ["Explanation", "Step", "explain"]
