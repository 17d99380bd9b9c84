"""Diagnosis of attention masks: what a mask means, and what is wrong with it."""

from glasshead.diagnosis.diagnosis import Diagnoses, Diagnosis, diagnose
from glasshead.diagnosis.mask_input import Finding

__all__ = ["Diagnoses", "Diagnosis", "Finding", "diagnose"]
