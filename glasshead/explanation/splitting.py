"""Splitting: a text into the words and marks that a reader sees in it."""

import re
import unicodedata
from collections.abc import Iterator, Sequence

# What each character is to a word, as one letter: `h` stands alone as Chinese and kana do, `w`
# and `d` make words and numbers, `j` joins two parts of a word and `n` two digits, `m` belongs to
# the character before it, `z` glues what stands around it, `r` makes flags in pairs.
_PIECE = re.compile(
    r"[wd][wdmz]*(?:(?:j|(?<=d)n(?=d))[wd][wdmz]*)*"  # a word: don't, İstanbul'da, 3.14
    r"|hm*"
    r"|rr"
    r"|[^ ]m*(?:z[^ ]m*)*"
)
_JOINERS = "'’-\u2010\u2011·"
_IN_NUMBERS = ".,:"
_GLUE = "\u200c\u200d"
_BLANK = "\u200b\ufeff"
_STANDING_ALONE = (
    (0x3005, 0x3007),  # 々 and 〇
    (0x3040, 0x30FF),  # kana
    (0x3100, 0x312F),  # bopomofo
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_REGIONAL = range(0x1F1E6, 0x1F200)


def split(text: str) -> list[str]:
    """The words and punctuation marks of a text, in order; Chinese characters one by one.

    Apostrophes and hyphens inside a word and points inside a number belong to it. A mark that is
    repeated is one token.

    >>> split("İstanbul'da 3.14'ten söz ettik, değil mi?")
    ["İstanbul'da", "3.14'ten", 'söz', 'ettik', ',', 'değil', 'mi', '?']
    >>> split("¡Hola, sol brillante!")
    ['¡', 'Hola', ',', 'sol', 'brillante', '!']
    >>> split("注意力就是一切。")
    ['注', '意', '力', '就', '是', '一', '切', '。']
    """
    return [token for _, token in _joined(text)]


def is_word(token: str) -> bool:
    """Whether a token has a letter or a digit, and so is more than a mark.

    >>> is_word("sun"), is_word("!")
    (True, False)
    """
    return any(unicodedata.category(character)[0] in "LN" for character in token)


def last_word(tokens: Sequence[str]) -> int:
    """The place of the last token that is a word; where none is, of the last.

    >>> last_word(["A", "sun", "!"])
    1
    """
    words = (place for place in reversed(range(len(tokens))) if is_word(tokens[place]))
    return next(words, len(tokens) - 1)


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """The end and text of each token, with "..." made one of its three."""
    kinds = "".join(map(_kind, text))
    end, token = -1, ""
    for match in _PIECE.finditer(kinds):
        piece = text[match.start() : match.end()]
        if match.start() == end and _repeats(token, piece):
            token += piece
        else:
            if token:
                yield end, token
            token = piece
        end = match.end()
    if token:
        yield end, token


def _repeats(token: str, piece: str) -> bool:
    return unicodedata.category(piece[0]) in ("Po", "Pd") and set(token) == set(piece) == {piece[0]}


def _kind(character: str) -> str:
    category, place = unicodedata.category(character), ord(character)
    kinds = {
        " ": character.isspace() or character in _BLANK,
        "m": category[0] == "M" or place in _SKIN_TONES or character == "\u00ad",
        "j": character in _JOINERS,
        "n": character in _IN_NUMBERS,
        "z": character in _GLUE,
        "r": place in _REGIONAL,
        "d": category == "Nd",
        "p": category[0] not in "LN" and character != "_",
        "h": any(low <= place <= high for low, high in _STANDING_ALONE),
    }
    return next((kind for kind, fits in kinds.items() if fits), "w")
