"""Demonstrating: what stands behind `glasshead demo`."""
