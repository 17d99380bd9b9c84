"""Batching: which examples are trained on together, in each epoch anew."""

from glasshead.tasks.batching.by_length import by_length
from glasshead.tasks.batching.in_order import in_order
from glasshead.tasks.batching.pad import pad
from glasshead.tasks.batching.shuffled import shuffled
