"""Observing: what stands behind `glasshead observe`."""
