"""Evaluating: what stands behind `glasshead evaluate`, a file for each task."""
