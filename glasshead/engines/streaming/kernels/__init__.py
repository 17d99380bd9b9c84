"""Loops over one block of scores, compiled; each does one thing, and holds no lock meanwhile."""
