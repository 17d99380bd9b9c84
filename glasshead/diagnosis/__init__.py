"""Diagnosis: what an attention mask that somebody wrote looks like, and what is wrong with it."""

from glasshead.diagnosis.diagnosing import diagnose
from glasshead.diagnosis.diagnosis import Diagnosis
from glasshead.diagnosis.finding import Finding

__all__ = ["Diagnosis", "Finding", "diagnose"]
