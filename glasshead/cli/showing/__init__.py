"""Showing: what stands behind `glasshead studio`."""
