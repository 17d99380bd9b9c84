r"""Parameters: what several routes take, described as exactly as it is checked.

What a schema can say of a text stands in the description of the API; whoever sends another gets the
library's own sentence, and not that of the framework.
"""

from typing import Annotated, Any

from fastapi import Path, Query

from glasshead.explanation.language import LANGUAGES
from glasshead.studio.limits import Limits

# What Python takes for space: some of it `\s` leaves out elsewhere.
_SPACE = r"\s\x1c-\x1f\x85"
# What a text has that is to be read.
HAS_A_WORD = f"[^{_SPACE}]"
# What a sentence has that is split into words and marks, which no blank of width 0 is.
HAS_A_SIGN = f"[^{_SPACE}\u200b\ufeff]"

NAME = r"^[0-9A-Za-z]{1,64}$"
"""How a text is named."""

_NAMED = "The name of a text, as it was given when the text was sent."
TextName = Annotated[str, Query(pattern=NAME, description=_NAMED)]
TextInPath = Annotated[str, Path(pattern=NAME, description=_NAMED)]


def _language_codes() -> str:
    """The pattern of the codes that are read as one of the languages, whatever their case.

    >>> _language_codes()[:26]
    '^([eE][nN]|[tT][rR]|[eE][s'
    """
    languages = dict.fromkeys(code.partition("-")[0] for code in LANGUAGES)
    codes = ("".join(f"[{c}{c.upper()}]" for c in code) for code in languages)
    return rf"^({'|'.join(codes)})([-_.@][\s\S]*)?$"


Language = Annotated[
    str,
    Query(
        max_length=35,
        json_schema_extra={"pattern": _language_codes()},
        description="A code of a language, such as en, tr, es, zh-Hant or zh-Hans.",
    ),
]


def words_of(limits: Limits) -> str:
    """The pattern of a sentence that has a word, and no more than are taken."""
    word, space = f"[^{_SPACE}]+", f"[{_SPACE}]"
    return rf"^{space}*({word}{space}+){{0,{limits.words - 1}}}{word}{space}*$"


def has_a_word(pattern: str) -> dict[str, Any]:
    """What a schema says of a sentence; without a word it is refused in the library's own words."""
    return {"minLength": 1, "pattern": pattern}
