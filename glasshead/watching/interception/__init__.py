"""Interception: the functions, operators and interfaces at which attention calls are captured."""
