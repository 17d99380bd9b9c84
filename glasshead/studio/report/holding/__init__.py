"""Holding: which answers a report holds of each view."""
