"""Inputs: the files that commands read, and how errors name what is in them."""
