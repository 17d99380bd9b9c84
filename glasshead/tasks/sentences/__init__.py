"""Sentences: German ones with their English, made up, for a small translator to learn from."""

from glasshead.tasks.sentences.pair import Pair
from glasshead.tasks.sentences.telling import HELD_OUT, held_out, pairs
