"""Training: what stands behind `glasshead train`, and the commands that use its runs."""
