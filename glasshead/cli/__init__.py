"""The command line."""

from glasshead.cli.program import main

__all__ = ["main"]
