"""About: what a page is told first: what is open, and which views there are of it."""

from dataclasses import asdict
from typing import Any

from glasshead import __version__
from glasshead.drawing.colors import LEVELS, hexadecimal, paint
from glasshead.studio.studio import Studio
from glasshead.studio.views.names import VIEWS, samples, why_not

LANGUAGES = {
    "en": "English",
    "tr": "Türkçe",
    "es": "Español",
    "zh-Hant": "繁體中文",
    "zh-Hans": "简体中文",
}


def about(studio: Studio) -> dict[str, Any]:
    """What is open, the views with why there is none of them, limits, languages and colours.

    A folder that is none, or has vanished, is told in `problem`.

    >>> told = about(Studio())
    >>> told["subject"], told["views"]["steps"], told["views"]["training"]
    ({'name': None, 'kind': None, 'problem': None}, None, 'training.none')
    """
    subject, kind, problem = studio.subject, None, None
    try:
        kind = subject.kind
    except (ValueError, OSError) as error:
        problem = str(error)
    return {
        "version": __version__,
        "id": studio.id,
        "subject": {"name": subject.name, "kind": kind, "problem": problem},
        "views": {view: why_not(view, kind) for view in VIEWS},
        "samples": samples(kind),
        "limits": asdict(studio.limits),
        "languages": LANGUAGES,
        "palette": palette(),
    }


def palette() -> dict[str, list[str]]:
    """The colour map of weights, from none to the largest, on light and on dark paper."""
    return {
        paper: [hexadecimal(paint(place, dark=paper == "dark")) for place in range(LEVELS + 1)]
        for paper in ("light", "dark")
    }
