"""Printable: text from users, made harmless before it is drawn."""

import re
import unicodedata

from rich.cells import cell_len, split_graphemes

_LONGEST = 500
_JOINERS = frozenset("\u200c\u200d")
_JOINER_OUT_OF_PLACE = re.compile("(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])")


def printable(text: str) -> str:
    r"""Make visible what cannot be seen, so that text neither steers a terminal nor hides.

    Control characters, marks that turn the direction of writing, zero-width ones and lone
    surrogates are written as in a Python string, such as "\n" and "\u202e". Joiners inside Persian,
    Indian and emoji sequences stay.

    Args:
        text: Any text.

    Returns:
        The same text, every character of which is seen.

    Example:
        >>> printable("a\x1b[31mb\n")
        'a\\x1b[31mb\\n'
        >>> printable("abc\u202edef")
        'abc\\u202edef'
    """
    if text.isascii() and text.isprintable():
        return text
    seen = "".join(map(_seen, text))
    seen = _JOINER_OUT_OF_PLACE.sub(lambda joiner: _escape(joiner.group()), seen)
    # A mark that stands on no letter would stand on the drawing's own.
    alone = seen and (unicodedata.category(seen[0]).startswith("M") or cell_len(seen[0]) == 0)
    return f"◌{seen}" if alone else seen


def visible(token: str) -> str:
    """Make a token printable, and its outer spaces seen: " the" and "the" are two tokens.

    Args:
        token: Any text.

    Returns:
        The token with "␣" for each space at its ends.

    Example:
        >>> visible(" the")
        '␣the'
    """
    inner = token.strip(" ")
    before = len(token) - len(token.lstrip(" "))
    after = len(token) - before - len(inner)
    return "␣" * before + printable(inner) + "␣" * after


def one_line(text: str) -> str:
    r"""Make one printable line of a text, of 500 characters at most: what a file holds may be long.

    Args:
        text: Any text.

    Returns:
        The line; of a longer one its two ends.

    Example:
        >>> one_line("not\n  a\x1b[31mb")
        'not a\\x1b[31mb'
    """
    line = printable(" ".join(text.split()))
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 2 :]}"


def shorten(text: str, width: int) -> str:
    """Cut a text to a width, with "…" where something is gone.

    Args:
        text: A printable text.
        width: How many cells of the terminal it may take, at least 1. A Chinese character takes
            two.

    Returns:
        The text, at most `width` cells wide.

    Example:
        >>> shorten("attention", 6), shorten("注意力機制", 6)
        ('atten…', '注意…')
    """
    if cell_len(text) <= width:
        return text
    kept, size = 0, 0
    for _, end, cells in split_graphemes(text)[0]:
        if size + cells > width - 1:
            break
        kept, size = end, size + cells
    return text[:kept] + "…"


def _seen(character: str) -> str:
    """Return a character, or what stands for one that is not seen."""
    category = unicodedata.category(character)
    hidden = category in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in _JOINERS
    return _escape(character) if hidden else character


def _escape(character: str) -> str:
    """Write a character as a Python string does."""
    return character.encode("unicode_escape").decode("ascii")
