"""The story model, a small language model that comes with the package, as a run folder."""

from pathlib import Path

FOLDER = Path(__file__).parent
"""A run of `glasshead train write --preset story`, its weights in float16."""
