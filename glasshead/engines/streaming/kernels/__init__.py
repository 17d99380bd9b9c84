"""Compiled kernels over one block of scores; each does one thing and releases the GIL."""
