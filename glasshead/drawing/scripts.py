"""Scripts: indices and powers of a formula, set below and above the line in HTML."""

import re
from collections.abc import Iterator
from html import escape

from glasshead.drawing.printable import printable

_LETTER = "[A-Za-zΑ-Ωα-ω∂]"
_INDEX = f"_(?:{_LETTER}|[ijk]+|[0-9]+)"
_POWER = rf"[-+−]?(?:\d+(?:\.\d+)?|{_LETTER}+|∞)"
_SCRIPT = re.compile(
    rf"(?<![\w^])(?P<base>{_LETTER})(?:(?P<index>{_INDEX})|"
    rf"\^(?:\((?P<group>[^()\n]+)\)|(?P<power>{_POWER})(?P<inner>{_INDEX})?))(?![\w^])"
)
# What stands in the brackets of one letter is a name, as in s(the_cat), and a name is not read.
_NAMED = re.compile(r"(?<!\w)\w\([^()\n]*\)")


def scripted(text: str) -> str:
    """Return a formula as HTML, its indices as `sub` and its powers as `sup`.

    Only one letter that stands alone carries them, so W_query and the_cat stay as they are, and so
    does what is named in brackets. Brackets around a power fall away.

    Args:
        text: Any text; it is escaped, and never read as markup.

    Example:
        >>> scripted("p_j = e^s_j / Σ")
        'p<sub>j</sub> = e<sup>s<sub>j</sub></sup> / Σ'
        >>> scripted("s(a_b) = W_query < e^0.7842")
        's(a_b) = W_query &lt; e<sup>0.7842</sup>'
    """
    return "".join(_pieces(printable(text)))


def _pieces(text: str) -> Iterator[str]:
    """Escape names, and set the scripts of what lies between them."""
    done = 0
    for name in _NAMED.finditer(text):
        yield from _set(text[done : name.start()])
        yield escape(name.group())
        done = name.end()
    yield from _set(text[done:])


def _set(text: str) -> Iterator[str]:
    """Set the scripts of a text without names, escaping all that stays."""
    done = 0
    for found in _SCRIPT.finditer(text):
        yield escape(text[done : found.start()]) + escape(found["base"])
        if found["index"]:
            yield _sub(found["index"])
        else:
            power = "".join(_set(found["group"])) if found["group"] else escape(found["power"])
            yield f"<sup>{power}{_sub(found['inner'])}</sup>"
        done = found.end()
    yield escape(text[done:])


def _sub(index: str | None) -> str:
    """Return an index without its sign."""
    return f"<sub>{escape(index[1:])}</sub>" if index else ""
