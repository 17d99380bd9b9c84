"""Explaining: what stands behind `glasshead explain`."""
