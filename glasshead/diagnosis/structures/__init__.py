"""Structures: masks that a rule says in a few numbers, recognised in one that is written out."""

from glasshead.diagnosis.structures.recognizing import Structure, reads_as_a_rule, recognize

__all__ = ["Structure", "reads_as_a_rule", "recognize"]
