"""Classifying: what stands behind `glasshead classify`."""
