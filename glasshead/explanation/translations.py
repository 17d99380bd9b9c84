"""Languages: the translations of explanations."""

import re
from functools import cache
from gettext import GNUTranslations, NullTranslations
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from glasshead.drawing import Words
from glasshead.message import Message

if TYPE_CHECKING:
    from glasshead.recipe.part import Description

LANGUAGES = ("en", "tr", "es", "zh-Hant", "zh-Hans")
_TRADITIONAL = {"hant", "tw", "hk", "mo"}


class Say:
    """A translator of sentences to one language, which fills in their placeholders.

    Sentences are English in the code, with named placeholders, so that a translation may move them:

    >>> Say("en")("The word “{word}” comes first.", word="shiny")
    'The word “shiny” comes first.'
    >>> Say("es").language
    'es'

    Args:
        lang: The language.
        always: What is filled in wherever a sentence has a place for it.
    """

    def __init__(self, lang: str, **always: object) -> None:
        self.language = language_of(lang)
        self.translate = catalogue(self.language).gettext
        self._always = always

    def __call__(self, sentence: str, /, **places: object) -> str:
        return self.translate(sentence).format(**self._always, **places)

    def described(self, description: "Description | str") -> str:
        """Translate what a part says of itself; a plain string is in the user's own words."""
        from glasshead.recipe.part import Description

        if isinstance(description, str):
            return description
        places = {
            name: self.described(place) if isinstance(place, Description) else place
            for name, place in description.places.items()
        }
        return self(description.sentence, **places)

    def translated(self, error: BaseException | str) -> str:
        """Translate an error, or a text, that is a `Message`; any other is returned as it is.

        >>> from glasshead.message import Message
        >>> Say("es").translated(ValueError(Message("{count} more", count=3)))
        '3 más'
        """
        if isinstance(error, BaseException):
            first = error.args[0] if len(error.args) == 1 else None
            return self.translated(first if isinstance(first, Message) else str(error))
        if not isinstance(error, Message):
            return error
        places = {
            name: self.translated(place) if isinstance(place, Message | BaseException) else place
            for name, place in error.places.items()
        }
        return self(error.sentence, **places)

    def after_each_other(self, *sentences: str) -> str:
        """Join sentences to one paragraph; Chinese has no spaces between them.

        >>> Say("en").after_each_other("One.", "Two."), Say("zh").after_each_other("一。", "二。")
        ('One. Two.', '一。二。')
        """
        return ("" if self.language.startswith("zh") else " ").join(sentences)

    def words(self) -> Words:
        """Return the phrases of drawings in this language."""
        return Words.translated(self.translate)


def language_of(lang: Any) -> str:
    """Parse a language code to one of en, tr, es, zh-Hant, zh-Hans.

    Codes are read as in a browser or an environment variable, whatever their case; Chinese by
    script, else by place, else simplified.

    Errors: a ValueError for a language that is not there, a TypeError for anything but a string.

    >>> [language_of(code) for code in ("tr", "es_ES.UTF-8", "zh-TW", "zh")]
    ['tr', 'es', 'zh-Hant', 'zh-Hans']
    """
    if not isinstance(lang, str):
        raise TypeError(_refusal(lang))
    language, *places = re.split("[-_]", re.split("[.@]", lang.lower())[0])
    if language == "zh":
        return "zh-Hant" if "hans" not in places and _TRADITIONAL & set(places) else "zh-Hans"
    if language not in LANGUAGES:
        raise ValueError(_refusal(lang))
    return language


@cache
def catalogue(language: str) -> NullTranslations:
    """Load the translations to one of `LANGUAGES`; what has none stays English."""
    folder = files("glasshead.explanation").joinpath("locales", language.replace("-", "_"))
    compiled = folder.joinpath("LC_MESSAGES", "glasshead.mo")
    # English has none, nor has a clone that was not built.
    if not compiled.is_file():
        return NullTranslations()
    with compiled.open("rb") as stream:
        return GNUTranslations(stream)


def _refusal(lang: object) -> str:
    return f"lang must be one of {', '.join(LANGUAGES)}, got {lang!r}."
