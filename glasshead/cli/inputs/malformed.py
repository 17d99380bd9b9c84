"""Malformed: what is wrong with the content of a file, before the file is named."""


class Malformed(ValueError):  # noqa: N818 - it is told as a sentence that the file's name opens
    """What is wrong with a content; whoever knows the file puts its name before the words."""
