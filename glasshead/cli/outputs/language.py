"""Language: the one that is asked for, or that of the environment."""

from collections.abc import Mapping

from glasshead.cli.inputs.wording import quoted

_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")


def check_language(asked: str | None) -> None:
    """Raise a ValueError where a language is asked for that is not here.

    >>> check_language("zh_TW.UTF-8")
    """
    from glasshead.explanation.language import LANGUAGES, language_of

    if asked is None:
        return
    try:
        language_of(asked)
    except ValueError:
        raise ValueError(
            f"--lang takes one of {', '.join(LANGUAGES)}, and got {quoted(asked)}: take one of the "
            f"list."
        ) from None


def chosen_language(asked: str | None, environment: Mapping[str, str]) -> str:
    """One of en, tr, es, zh-Hant, zh-Hans.

    Without a choice, the first of LC_ALL, LC_MESSAGES and LANG that is set decides, as for other
    programs; a language that is not here is English.

    Errors: a ValueError where the choice is none of them.

    >>> chosen_language(None, {"LANG": "tr_TR.UTF-8"}), chosen_language("es", {})
    ('tr', 'es')
    """
    from glasshead.explanation.language import language_of

    check_language(asked)
    if asked is not None:
        return language_of(asked)
    named = next(filter(None, map(environment.get, _VARIABLES)), "en")
    try:
        return language_of(named)
    except ValueError:
        return "en"
