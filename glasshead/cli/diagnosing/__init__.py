"""Diagnosing: what `glasshead diagnose` does."""
