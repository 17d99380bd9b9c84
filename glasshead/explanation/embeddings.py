"""Embeddings: a text split into tokens, and a vector for each."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.ladder.worked_example import WorkedExample

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


MADE_UP_DIM = 4
"""Few enough to follow by hand, and 1, 2 or 4 heads can share them."""
MADE_UP_SEED = 123


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Tokens in order, and the vector of each; a token may stand more than once.

    Attributes:
        tokens: The tokens.
        vectors: Their vectors, one row a token, finite.

    Errors: a TypeError where the vectors are no floating-point tensor, a ValueError where there is
    not one of them for each token, or one of their numbers is not finite.

    >>> embeddings = Embeddings(("Hello", "sun"), torch.tensor([[0.34, 0.22], [0.29, 0.54]]))
    >>> embeddings.look_up(["sun"]).vectors
    tensor([[0.2900, 0.5400]])
    """

    tokens: tuple[str, ...]
    vectors: Float[Tensor, "tokens dim"]

    def __post_init__(self) -> None:
        if isinstance(self.tokens, str):
            raise TypeError(f"tokens takes a sequence of strings, and got {self.tokens!r}.")
        if not isinstance(self.vectors, Tensor) or not self.vectors.is_floating_point():
            got = getattr(self.vectors, "dtype", type(self.vectors).__name__)
            raise TypeError(
                f"vectors takes a tensor of floating-point numbers, and got {got}: convert it with "
                f".float()."
            )
        object.__setattr__(self, "tokens", tuple(self.tokens))
        if self.vectors.ndim != 2 or len(self.vectors) != len(self.tokens):
            raise ValueError(
                f"vectors takes one row for each of the {len(self.tokens)} tokens, and got shape "
                f"{list(self.vectors.shape)}."
            )
        if not self.vectors.isfinite().all():
            row = int((~self.vectors.isfinite().all(-1)).nonzero()[0])
            raise ValueError(f"vectors takes finite numbers, and got others for row {row}.")

    @classmethod
    def of_the_texts(cls, example: WorkedExample) -> "Embeddings":
        """The words of a worked example, with the vectors that its text gives them.

        >>> from glasshead.ladder.worked_example import HELLO_SHINY_SUN
        >>> Embeddings.of_the_texts(HELLO_SHINY_SUN).vectors.shape
        torch.Size([3, 3])
        """
        return cls(example.tokens, torch.tensor(example.embeddings, dtype=torch.float64))

    @classmethod
    def made_up(
        cls, tokens: Iterable[str], *, dim: int = MADE_UP_DIM, seed: int = MADE_UP_SEED
    ) -> "Embeddings":
        """Vectors that mean nothing, from the tokens' spelling and a seed.

        A token has the same vector in every sentence, on every machine; the first numbers of a
        wider vector are those of a narrower one. The numbers are of variance 1, with two decimals,
        so that a reader can follow them by hand.

        Args:
            tokens: The tokens.
            dim: How many numbers a vector has, at least 1.
            seed: Another seed gives other vectors.

        Errors: a ValueError where `dim` is below 1.

        >>> Embeddings.made_up(["sun", "moon", "sun"], dim=2).vectors
        tensor([[ 0.6400, -0.0600],
                [-1.4800,  0.7700],
                [ 0.6400, -0.0600]], dtype=torch.float64)
        """
        if dim < 1:
            raise ValueError(f"dim takes a whole number of at least 1, and got {dim}.")
        tokens = tuple(tokens)
        known = {token: _made_up(token, dim, seed) for token in dict.fromkeys(tokens)}
        rows = [known[token] for token in tokens]
        return cls(tokens, torch.tensor(rows, dtype=torch.float64).reshape(len(tokens), dim))

    def look_up(self, words: Iterable[str]) -> "Embeddings":
        """The words of another sentence, each with the vector that it has here.

        Errors: a ValueError that names the words which are not here, or one that stands here twice
        with different vectors.
        """
        words, places = tuple(words), self._places()
        missing = [word for word in dict.fromkeys(words) if word not in places]
        if missing:
            named = ", ".join(map(repr, missing))
            raise ValueError(
                f"there is no vector for {named} among {len(self.tokens)} tokens: add a row for it."
            )
        for word in dict.fromkeys(words):
            first, *others = places[word]
            if any(not torch.equal(self.vectors[first], self.vectors[place]) for place in others):
                raise ValueError(
                    f"{word!r} has {len(others) + 1} rows with different vectors: keep one of "
                    f"them, or take the rows as the sentence."
                )
        return Embeddings(words, self.vectors[[places[word][0] for word in words]])

    def _places(self) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for place, token in enumerate(self.tokens):
            places.setdefault(token, []).append(place)
        return places


def composed(text: str) -> str:
    r"""A text in the form in which equal-looking words are equal: "é" is one character, not two.

    >>> composed("e\u0301") == "\u00e9"
    True
    """
    return unicodedata.normalize("NFC", text)


def _made_up(token: str, dim: int, seed: int) -> list[float]:
    """Numbers drawn by a hash, which unlike a generator stays the same in every release."""
    drawn = hashlib.shake_256(f"{seed}:{token}".encode(errors="surrogatepass")).digest(8 * dim)
    places = (int.from_bytes(drawn[start : start + 8]) >> 12 for start in range(0, 8 * dim, 8))
    normal = NormalDist()
    # Half a step inside the open interval from 0 to 1; adding 0.0 turns -0.0 into 0.0.
    return [round(normal.inv_cdf((place + 0.5) / 2**52), 2) + 0.0 for place in places]
