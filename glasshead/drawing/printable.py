"""Text from users, made harmless, and wrapped where each script allows."""

import re
import shlex
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from math import ceil

from rich.cells import cell_len, split_graphemes

_LONGEST = 500
# Comparing a word with every token of a large vocabulary, letter by letter, would take seconds.
_COMPARED = 20_000
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
    # A combining mark without a letter would combine with the drawing's own.
    alone = seen and (unicodedata.category(seen[0]).startswith("M") or cell_len(seen[0]) == 0)
    return f"◌{seen}" if alone else seen


def as_command(words: Iterable[str]) -> str:
    """Join the words of a command as the shells of this system read them.

    >>> as_command(["glasshead", "write", "runs/first", "--prompt", "One"])
    'glasshead write runs/first --prompt One'
    """
    if sys.platform == "win32":
        from subprocess import list2cmdline

        # Of Windows' shells, one takes no single quotes.
        return list2cmdline(words)
    return shlex.join(words)


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
        width: The most terminal cells that it may take, at least 1. A Chinese character takes
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


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the closest match of `word` in `words`, ignoring case, if there is one.

    >>> nearest("shinny", ["Hello", "shiny", "sun"]), nearest("sUN", ["sun"])
    ('shiny', 'sun')
    >>> nearest("moon", ["Hello", "shiny"]) is None
    True
    """
    by_spelling: dict[str, str] = {}
    for known in words:
        by_spelling.setdefault(known.casefold(), known)
    if word.casefold() in by_spelling:
        return by_spelling[word.casefold()]
    if len(by_spelling) > _COMPARED:
        return None
    close = get_close_matches(word.casefold(), by_spelling, n=1)
    return by_spelling[close[0]] if close else None


def _seen(character: str) -> str:
    """Return a character, or what stands for one that is not seen."""
    category = unicodedata.category(character)
    hidden = category in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in _JOINERS
    return _escape(character) if hidden else character


def _escape(character: str) -> str:
    """Write a character as a Python string does."""
    return character.encode("unicode_escape").decode("ascii")


MEASURE = 84
"""The most cells in a line of running text: longer lines lose the eye on its way back."""

# Chinese text breaks between any two characters, but no line begins with the first or ends with
# the second.
_CLOSING = frozenset(",.;:!?)]}%…·，。、；：？！）】」』》〉”’ー～")
_OPENING = frozenset("([{（【「『《〈“‘")


def wrap(text: str, width: int, hang: int = 0) -> list[str]:
    """Break a text into lines.

    Lines break at spaces and between Chinese, Japanese and Korean characters, not before a comma
    or after an opening bracket. What is still too long is cut. Spaces inside a line stay as they
    are.

    Args:
        text: A printable text without line breaks.
        width: The most cells in a line, at least 4.
        hang: How far all lines but the first are moved in, less than `width` - 2.

    Returns:
        At least one line.

    Example:
        >>> wrap("score = query · key / 2", 14, hang=2)
        ['score = query', '  · key / 2']
        >>> wrap("注意力，就是加權。", 8)
        ['注意力，', '就是加', '權。']
    """
    lines, current, space = [], "", ""
    for piece in _pieces(text):
        if not piece.strip(" "):
            space = piece
            continue
        if current.strip(" ") and cell_len(current + space + piece) > width:
            lines.append(current)
            current, space = " " * hang, ""
        current += space + piece
        space = ""
        while cell_len(current) > width:
            head, current = _cut(current, width)
            lines.append(head)
            current = " " * hang + current
    return [*lines, current]


def collapse(text: str) -> str:
    r"""Return a text whose line breaks, tabs and runs of spaces are single spaces, as in HTML.

    Example:
        >>> collapse(" one\n  two ")
        'one two'
    """
    return re.sub("[ \t\n\r\f]+", " ", text).strip(" ")


def folded(text: str, width: int) -> list[str]:
    """Return the lines of a paragraph: collapsed, made printable and wrapped."""
    return wrap(printable(collapse(text)), width)


def chunks(text: str, width: int, most: int) -> list[str]:
    """Cut a label into short lines, about equally long, for the head of a narrow column.

    Args:
        text: A printable text.
        width: The cells of a line; one character that is wider has a line of its own.
        most: The most lines; the last one is "…" where more would be needed.

    Returns:
        At most `most` lines, none for an empty text.

    Example:
        >>> chunks("translator", 4, 3), chunks("shiny", 1, 3)
        (['tran', 'slat', 'or'], ['s', 'h', '…'])
    """
    needed = max(1, ceil(cell_len(text) / width))
    lines = _chopped(text, ceil(cell_len(text) / needed))
    if len(lines) > needed:
        lines = _chopped(text, width)
    return lines if len(lines) <= most else [*_chopped(text, width)[: most - 1], "…"]


def _chopped(text: str, width: int) -> list[str]:
    """Cut a text into lines that are full."""
    lines: list[str] = []
    size = width
    for start, end, cells in split_graphemes(text)[0]:
        if size + cells > width:
            lines.append("")
            size = 0
        lines[-1] += text[start:end]
        size += cells
    return lines


def _pieces(text: str) -> Iterator[str]:
    """Split a text into what stays together: words, runs of spaces, single wide characters."""
    piece, last, last_cells = "", "", 0
    for start, end, cells in split_graphemes(text)[0]:
        character = text[start:end]
        if piece and _may_break(last, last_cells, character, cells):
            yield piece
            piece = ""
        piece += character
        last, last_cells = character, cells
    if piece:
        yield piece


def _may_break(before: str, before_cells: int, after: str, after_cells: int) -> bool:
    """Say whether a line may end between two characters."""
    if (before == " ") != (after == " "):
        return True
    if before == " " or after in _CLOSING or before in _OPENING:
        return False
    return before_cells == 2 or after_cells == 2


def _cut(text: str, width: int) -> tuple[str, str]:
    """Cut a line that has no place to break."""
    kept, size = 0, 0
    for _, end, cells in split_graphemes(text)[0]:
        if size + cells > width:
            break
        kept, size = end, size + cells
    return text[:kept], text[kept:]
