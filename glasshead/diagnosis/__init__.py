"""Diagnosis of attention masks: what a mask means, and what is wrong with it."""

from glasshead.diagnosis.diagnose import diagnose
from glasshead.diagnosis.diagnosis import Diagnosis
from glasshead.diagnosis.mask_input import Finding

__all__ = ["Diagnosis", "Finding", "diagnose"]
