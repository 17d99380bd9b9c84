"""Marking: what translators are to find."""


def _(sentence: str) -> str:
    """The sentence as it is; it is translated where it is said."""
    return sentence
