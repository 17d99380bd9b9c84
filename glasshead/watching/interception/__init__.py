"""Doors: the ways by which a model comes to its attention, and where it is met on each."""

from glasshead.watching.interception.session import ablated, opened
