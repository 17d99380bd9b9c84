"""Masks as text, such as causal+window:2:1, in options, URLs and saved settings.

Reading a text takes no torch; building its mask does.
"""

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from glasshead.drawing.printable import nearest
from glasshead.message import Message, _

if TYPE_CHECKING:
    from glasshead.recipe.masks import Mask

HELP = (
    "none; causal; window:3: each query's own key and 3 before; window:3:1: and 1 after; "
    "causal+window:3:1: the keys that both show."
)
"""Meaning of the texts, for the help of an option."""

# The constructors that a text may name, each with the numbers that it takes.
_NUMBER = r":[0-9]{1,9}"
_FORMS = MappingProxyType({"causal": "", "window": f"{_NUMBER}(?:{_NUMBER})?"})
_NAMED = _("none, causal, window:BEFORE or window:BEFORE:AFTER, or several with + between them")


def check_mask_text(text: str, name: str = "mask") -> str:
    """Return a text that names a mask; `name` is what an error calls it.

    Errors: a ValueError if it names none.

    >>> check_mask_text("causal+window:2:2")
    'causal+window:2:2'
    """
    for part in () if text == "none" else text.split("+"):
        form, colon, numbers = part.partition(":")
        if form not in _FORMS or not re.fullmatch(_FORMS[form], f"{colon}{numbers}"):
            raise ValueError(
                Message(
                    "{name} must be {forms}, got {written}. {remedy}",
                    name=name,
                    forms=Message(_NAMED),
                    written=repr(text if len(text) < 60 else f"{text[:59]}…"),
                    remedy=_remedy(part),
                )
            )
    return text


def parse_mask(text: str) -> "Mask | None":
    """Build the mask that a text names; None if it hides nothing. `mask.text` is its inverse.

    Errors: a ValueError if it names none.

    >>> parse_mask("causal+window:2:2"), parse_mask("none")
    (causal() & window(before=2, after=2), None)
    >>> parse_mask("causal+window:2:2").text
    'causal+window:2:2'
    """
    from glasshead.recipe import masks

    parts = [] if check_mask_text(text) == "none" else text.split("+")
    split = [part.split(":") for part in parts]
    return masks.combined([getattr(masks, form)(*map(int, numbers)) for form, *numbers in split])


def _remedy(part: str) -> str:
    if part.startswith("window"):
        return Message("Write how many tokens before its own a word sees, as in window:3.")
    if part == "none":
        return Message("Write none alone.")
    alike = nearest(part, ["none", *_FORMS])
    return Message("Did you mean {name}?", name=alike) if alike else Message("Try causal.")
