"""Embeddings of a text's tokens, and their projection to queries, keys and values."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.ladder.worked_example import WorkedExample

# The class of each character, as one letter: `h` stands alone as Chinese and kana do, `w`
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
    """Split a text into words and punctuation marks; Chinese characters are tokens one by one.

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
    """Return whether a token has a letter or a digit, and is not just punctuation.

    >>> is_word("sun"), is_word("!")
    (True, False)
    """
    return any(unicodedata.category(character)[0] in "LN" for character in token)


def last_word(tokens: Sequence[str]) -> int:
    """Return the index of the last token that is a word; of the last token where there is none.

    >>> last_word(["A", "sun", "!"])
    1
    """
    words = (place for place in reversed(range(len(tokens))) if is_word(tokens[place]))
    return next(words, len(tokens) - 1)


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Yield the end and text of each token, with repeated marks such as "..." joined."""
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


@lru_cache(maxsize=4096)
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


GENERATED_DIM = 4
"""Small enough to follow by hand, and divisible into 1, 2 or 4 heads."""
GENERATED_SEED = 123


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Tokens in order, and the vector of each; a token may occur more than once.

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
            raise TypeError(f"tokens must be a sequence of strings, got {self.tokens!r}.")
        if not isinstance(self.vectors, Tensor) or not self.vectors.is_floating_point():
            got = getattr(self.vectors, "dtype", type(self.vectors).__name__)
            raise TypeError(
                f"vectors must be a tensor of floating-point numbers, got {got}. Convert it with "
                ".float()."
            )
        object.__setattr__(self, "tokens", tuple(self.tokens))
        if self.vectors.ndim != 2 or len(self.vectors) != len(self.tokens):
            raise ValueError(
                f"vectors must have one row for each of the {len(self.tokens)} tokens, got shape "
                f"{list(self.vectors.shape)}."
            )
        if not self.vectors.isfinite().all():
            row = int((~self.vectors.isfinite().all(-1)).nonzero()[0])
            raise ValueError(f"vectors must be finite, got NaN or infinity in row {row}.")

    @classmethod
    def of_the_texts(cls, example: WorkedExample) -> "Embeddings":
        """Return the words of a worked example with its printed vectors.

        >>> from glasshead.ladder.worked_example import HELLO_SHINY_SUN
        >>> Embeddings.of_the_texts(HELLO_SHINY_SUN).vectors.shape
        torch.Size([3, 3])
        """
        return cls(example.tokens, torch.tensor(example.embeddings, dtype=torch.float64))

    @classmethod
    def generated(
        cls, tokens: Iterable[str], *, dim: int = GENERATED_DIM, seed: int = GENERATED_SEED
    ) -> "Embeddings":
        """Make up meaningless vectors from the tokens' spelling and a seed.

        A token has the same vector in every sentence, on every machine; the first numbers of a
        wider vector are those of a narrower one. The numbers are of variance 1, with two decimals,
        so that a reader can follow them by hand.

        Args:
            tokens: The tokens.
            dim: Width of a vector, at least 1.
            seed: Random seed.

        Errors: a ValueError where `dim` is below 1.

        >>> Embeddings.generated(["sun", "moon", "sun"], dim=2).vectors
        tensor([[ 0.6400, -0.0600],
                [-1.4800,  0.7700],
                [ 0.6400, -0.0600]], dtype=torch.float64)
        """
        if dim < 1:
            raise ValueError(f"dim must be a whole number of at least 1, got {dim}.")
        tokens = tuple(tokens)
        known = {token: _generated(token, dim, seed) for token in dict.fromkeys(tokens)}
        rows = [known[token] for token in tokens]
        return cls(tokens, torch.tensor(rows, dtype=torch.float64).reshape(len(tokens), dim))

    def look_up(self, words: Iterable[str]) -> "Embeddings":
        """Look up the words of another sentence.

        Errors: a ValueError that names missing words, or one that occurs twice with different
        vectors.
        """
        words, places = tuple(words), self._places()
        missing = [word for word in dict.fromkeys(words) if word not in places]
        if missing:
            named = ", ".join(map(repr, missing))
            raise ValueError(
                f"there is no vector for {named} among {len(self.tokens)} tokens. Add a row for it."
            )
        for word in dict.fromkeys(words):
            first, *others = places[word]
            if any(not torch.equal(self.vectors[first], self.vectors[place]) for place in others):
                raise ValueError(
                    f"{word!r} must have one vector, got {len(others) + 1} rows with different "
                    "ones. Keep one of them, or take the rows as the sentence."
                )
        return Embeddings(words, self.vectors[[places[word][0] for word in words]])

    def _places(self) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for place, token in enumerate(self.tokens):
            places.setdefault(token, []).append(place)
        return places


def composed(text: str) -> str:
    r"""Normalize a text to NFC, so that equal-looking words are equal: "é" is one character.

    >>> composed("e\u0301") == "\u00e9"
    True
    """
    return unicodedata.normalize("NFC", text)


def _generated(token: str, dim: int, seed: int) -> list[float]:
    """Draw numbers by a hash, which unlike a generator is stable across releases."""
    drawn = hashlib.shake_256(f"{seed}:{token}".encode(errors="surrogatepass")).digest(8 * dim)
    places = (int.from_bytes(drawn[start : start + 8]) >> 12 for start in range(0, 8 * dim, 8))
    normal = NormalDist()
    # Half a step inside the open interval from 0 to 1; adding 0.0 turns -0.0 into 0.0.
    return [round(normal.inv_cdf((place + 0.5) / 2**52), 2) + 0.0 for place in places]


def head_counts(width: int) -> list[int]:
    """Return the numbers of heads into which a vector can be split evenly.

    >>> head_counts(6)
    [1, 2, 3, 6]
    """
    return [count for count in range(1, width + 1) if width % count == 0]


def in_heads(vectors: Float[Tensor, "tokens dim"], heads: int) -> Float[Tensor, "..."]:
    """Split vectors to `[tokens, dim]` for one head, else `[1, heads, tokens, dim / heads]`.

    >>> import torch
    >>> in_heads(torch.arange(12).reshape(3, 4), 2).shape
    torch.Size([1, 2, 3, 2])
    """
    if heads == 1:
        return vectors
    return vectors.unflatten(-1, (heads, -1)).transpose(0, 1).unsqueeze(0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Projection:
    """queries = x W_query + b_query, keys = x W_key + b_key, values = x W_value + b_value.

    Matrices have the layout in which they are applied, `[d_in, d_out]`, as in step 2 of the ladder;
    `nn.Linear` keeps the transpose.

    Attributes:
        inputs: The vectors x, one row a token.
        W_query, W_key, W_value: The matrices; queries and keys are of one width.
        b_query, b_key, b_value: The biases, or None.

    Errors: a TypeError where one of them is no floating-point tensor or not of the inputs' type, a
    ValueError where their shapes do not fit each other.

    Source: Vaswani et al. 2017, section 3.2.2.

    >>> import torch
    >>> swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> x = torch.tensor([[1.0, 2.0]])
    >>> Projection(inputs=x, W_query=swap, W_key=swap, W_value=2 * swap, b_key=x[0]).keys
    tensor([[3., 3.]])
    """

    inputs: Float[Tensor, "tokens d_in"]
    W_query: Float[Tensor, "d_in d_out"]
    W_key: Float[Tensor, "d_in d_out"]
    W_value: Float[Tensor, "d_in d_value"]
    b_query: Float[Tensor, " d_out"] | None = None
    b_key: Float[Tensor, " d_out"] | None = None
    b_value: Float[Tensor, " d_value"] | None = None

    def __post_init__(self) -> None:
        self._check("inputs", self.inputs, axes=2)
        for role in ("query", "key", "value"):
            self._check_matrix(f"W_{role}", getattr(self, f"W_{role}"))
            self._check_bias(f"b_{role}", getattr(self, f"b_{role}"), f"W_{role}")
        if self.W_query.shape[1] != self.W_key.shape[1]:
            raise ValueError(
                f"W_query and W_key must have one width of output, got {list(self.W_query.shape)} "
                f"and {list(self.W_key.shape)}."
            )

    @classmethod
    def of_the_texts(cls, example: WorkedExample) -> "Projection | None":
        """Draw the matrices of a worked example by its seed, as the text does; None without any.

        >>> from glasshead.ladder.worked_example import worked_example
        >>> Projection.of_the_texts(worked_example("journey", "E")).queries[1]
        tensor([0.3558, 0.5643], dtype=torch.float64)
        """
        from glasshead import ladder

        made = example.matrices
        if made is None:
            return None
        x = torch.tensor(example.embeddings, dtype=torch.float64)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(made.seed)
            modules = [getattr(ladder, name)(x.shape[1], made.d_out) for name in made.classes]
        parts = (getattr(modules[-1], f"W_{role}") for role in ("query", "key", "value"))
        W_query, W_key, W_value = (
            (part.weight.T if isinstance(part, torch.nn.Linear) else part).detach().double()
            for part in parts
        )
        return cls(inputs=x, W_query=W_query, W_key=W_key, W_value=W_value)

    @property
    def queries(self) -> Float[Tensor, "tokens d_out"]:
        """Query vector of each token."""
        return _applied(self.inputs, self.W_query, self.b_query)

    @property
    def keys(self) -> Float[Tensor, "tokens d_out"]:
        """Key vector of each token."""
        return _applied(self.inputs, self.W_key, self.b_key)

    @property
    def values(self) -> Float[Tensor, "tokens d_value"]:
        """Value vector of each token."""
        return _applied(self.inputs, self.W_value, self.b_value)

    def _check(self, name: str, tensor: object, axes: int) -> None:
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            got = getattr(tensor, "dtype", type(tensor).__name__)
            raise TypeError(
                f"{name} must be a tensor of floating-point numbers, got {got}. Convert it with "
                ".float()."
            )
        if tensor.dtype != self.inputs.dtype:
            raise TypeError(
                f"{name} must have the type of the inputs, {self.inputs.dtype}, got "
                f"{tensor.dtype}. Convert it with .to()."
            )
        if tensor.ndim != axes:
            shape = "[d_in, d_out]" if axes == 2 else "[d_out]"
            shape = "[tokens, d_in]" if name == "inputs" else shape
            raise ValueError(f"{name} must have the shape {shape}, got {list(tensor.shape)}.")

    def _check_matrix(self, name: str, matrix: Tensor) -> None:
        self._check(name, matrix, axes=2)
        width = self.inputs.shape[1]
        if matrix.shape[0] != width:
            turned = ": transpose it" if matrix.shape[1] == width else ""
            raise ValueError(
                f"{name} must be [{width}, d_out] for vectors of {width} numbers, got "
                f"{list(matrix.shape)}{turned}."
            )

    def _check_bias(self, name: str, bias: Tensor | None, matrix: str) -> None:
        if bias is None:
            return
        self._check(name, bias, axes=1)
        width = getattr(self, matrix).shape[1]
        if len(bias) != width:
            raise ValueError(
                f"{name} must have {width} numbers, one a column of {matrix}, got {len(bias)}."
            )


def _applied(inputs: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    outputs = inputs @ matrix
    return outputs if bias is None else outputs + bias
