"""Language: the one that is asked for, or that of the environment."""

from collections.abc import Mapping

from glasshead.explanation.language import LANGUAGES, language_of

_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")


def chosen_language(asked: str | None, environment: Mapping[str, str]) -> str:
    """One of en, tr, es, zh-Hant, zh-Hans.

    Without a choice, the first of LC_ALL, LC_MESSAGES and LANG that is set decides, as for other
    programs; a language that is not here is English.

    Errors: a ValueError where the choice is none of them.

    >>> chosen_language(None, {"LANG": "tr_TR.UTF-8"}), chosen_language("es", {})
    ('tr', 'es')
    """
    if asked is None:
        named = next(filter(None, map(environment.get, _VARIABLES)), "en")
        try:
            return language_of(named)
        except ValueError:
            return "en"
    try:
        return language_of(asked)
    except ValueError:
        raise ValueError(
            f"--lang takes one of {', '.join(LANGUAGES)}, and got {asked!r}: take one of the list."
        ) from None
