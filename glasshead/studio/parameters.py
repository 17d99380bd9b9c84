"""Parameters of several routes: texts by name, heads, languages, prompts; each with limits."""

from dataclasses import dataclass
from typing import Annotated, Any

from glasshead.explanation.translations import LANGUAGES
from glasshead.studio.studio import Limits

# Characters that Python's `str.strip` removes; some are not in the `\s` of JSON Schema.
_SPACE = r"\s\x1c-\x1f\x85"
# A text needs a character that is not white space.
HAS_A_WORD = f"[^{_SPACE}]"
# A sentence needs a word or punctuation mark, and zero-width blanks are neither.
HAS_A_SIGN = f"[^{_SPACE}\u200b\ufeff]"

LONGEST_PROMPT = 2000

TEXT_NAME = {
    "pattern": r"^[0-9A-Za-z]{1,64}$",
    "description": "The name of a text, as it was given when the text was sent.",
}
TextName = Annotated[str, TEXT_NAME]


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
    {
        "max_length": 35,
        "json_schema_extra": {"pattern": _language_codes()},
        "description": "A code of a language, such as en, tr, es, zh-Hant or zh-Hans.",
    },
]


def words_of(limits: Limits) -> str:
    """Return the pattern of a sentence with at least one word, and at most `limits.words`."""
    word, space = f"[^{_SPACE}]+", f"[{_SPACE}]"
    return rf"^{space}*({word}{space}+){{0,{limits.words - 1}}}{word}{space}*$"


def text_limits(pattern: str, longest: int) -> dict[str, Any]:
    """Return the limits of a text with a word; the library itself refuses those without."""
    return {
        "max_length": longest,
        "json_schema_extra": {"minLength": 1, "pattern": pattern},
    }


Prompt = Annotated[str, text_limits(HAS_A_SIGN, LONGEST_PROMPT)]

PLACE = {"ge": 0, "le": 2**31 - 1, "description": "Counted from 0."}
Place = Annotated[int, PLACE]


@dataclass(frozen=True)
class HeadPlace:
    """A head of a layer."""

    layer: Place
    head: Place
