"""Runs: what stands behind `glasshead observe RUN --text FILE`."""
