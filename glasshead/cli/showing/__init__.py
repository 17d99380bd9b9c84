"""Showing: what stands behind `glasshead studio` and `glasshead report`."""
