"""Translating: what stands behind `glasshead translate`."""
