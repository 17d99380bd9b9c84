"""Interception: the functions, operators and interfaces at which attention calls are captured."""

from glasshead.watching.interception.session import ablated, opened
