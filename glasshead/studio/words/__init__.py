"""Words: all that the page says, by name, in one of five languages."""

from glasshead.explanation.language import Say
from glasshead.studio.words import alignment, atlas, heads, report, shell, steps, training

_PARTS = (shell, steps, heads, alignment, atlas, training, report)


def words(lang: str) -> dict[str, str]:
    """Each word or sentence of the page by its name.

    Errors: a ValueError where the language is not there.

    >>> words("es")["shell.language"]
    'Idioma'
    """
    say = Say(lang).translate
    return {name: say(sentence) for part in _PARTS for name, sentence in part.WORDS.items()}
