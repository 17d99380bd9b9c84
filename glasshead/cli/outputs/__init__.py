"""Outputs: what commands print and write."""
