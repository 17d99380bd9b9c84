"""What several routes take: texts by name, heads, languages, prompts."""

from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, Field

from glasshead.explanation.translations import LANGUAGES
from glasshead.studio.studio import Limits
from glasshead.studio.views.prompt import LONGEST_PROMPT

# Characters that Python's `str.strip` removes; some are not in the `\s` of JSON Schema.
_SPACE = r"\s\x1c-\x1f\x85"
# A text needs a character that is not white space.
HAS_A_WORD = f"[^{_SPACE}]"
# A sentence needs a word or punctuation mark, and zero-width blanks are neither.
HAS_A_SIGN = f"[^{_SPACE}\u200b\ufeff]"

NAME = r"^[0-9A-Za-z]{1,64}$"
"""Pattern of text names."""

NAMED = "The name of a text, as it was given when the text was sent."
TextName = Annotated[str, Query(pattern=NAME, description=NAMED)]
TextInPath = Annotated[str, Path(pattern=NAME, description=NAMED)]


def _language_codes() -> str:
    """Return the pattern of language codes, in any case and with any region.

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
    """Return the pattern of a sentence with at least one word, and at most `limits.words`."""
    word, space = f"[^{_SPACE}]+", f"[{_SPACE}]"
    return rf"^{space}*({word}{space}+){{0,{limits.words - 1}}}{word}{space}*$"


def has_a_word(pattern: str) -> dict[str, Any]:
    """Return the JSON Schema of a text with a word; the library itself refuses the others."""
    return {"minLength": 1, "pattern": pattern}


Prompt = Annotated[str, Query(max_length=LONGEST_PROMPT, json_schema_extra=has_a_word(HAS_A_SIGN))]

Place = Annotated[int, Field(ge=0, le=2**31 - 1, description="Counted from 0.")]


class HeadQuery(BaseModel):
    """A head of a layer."""

    layer: Place
    head: Place
