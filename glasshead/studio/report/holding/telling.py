"""Telling: what a page says of what it leaves out, in its language."""

from glasshead.explanation.language import Say
from glasshead.studio.report.holding.asked import Asked
from glasshead.studio.words.report import WORDS


def told(asked: Asked, name: str, **places: int) -> list[str]:
    """A sentence of the report's own words.

    Args:
        asked: What the report is of.
        name: Of the sentence.
        places: What its places are filled with.
    """
    return [Say(asked.lang)(WORDS[f"report.{name}"], **places)]
