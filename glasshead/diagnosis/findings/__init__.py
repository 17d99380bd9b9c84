"""Findings: one file a family of what can be wrong with a mask."""

from glasshead.diagnosis.findings.alignment import alignment
from glasshead.diagnosis.findings.emptiness import emptiness
from glasshead.diagnosis.findings.future import future
from glasshead.diagnosis.findings.numbers import numbers
from glasshead.diagnosis.findings.padding import padding
from glasshead.diagnosis.findings.shapes import shapes

__all__ = ["alignment", "emptiness", "future", "numbers", "padding", "shapes"]
