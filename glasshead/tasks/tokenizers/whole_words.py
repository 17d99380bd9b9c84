"""Which tokens make which words of a text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.tasks.tokenizers.tokenizer import Tokenizer

# A word with its apostrophes and hyphens, or a mark.
_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")


@dataclass(frozen=True, eq=False)
class WholeWords:
    """The words that tokens make.

    Attributes:
        words: In order.
        sum: 1 where a token belongs to a word: times what the tokens have, what the words have.
    """

    words: tuple[str, ...]
    sum: Float[Tensor, "words tokens"]

    @property
    def mean(self) -> Float[Tensor, "words tokens"]:
        """The same for a mean over the tokens of each word."""
        return self.sum / self.sum.sum(1, keepdim=True)


def whole_words(tokenizer: Tokenizer, tokens: Sequence[int]) -> WholeWords:
    """The words of tokens: a token belongs to the word that it has most of.

    >>> from glasshead.tasks.tokenizers import characters
    >>> tokenizer = characters(["a day!"])
    >>> whole_words(tokenizer, tokenizer.encode("a day!")).words
    ('a', 'day', '!')
    """
    text = tokenizer.decode(tokens)
    ends = [len(tokenizer.decode(tokens[: place + 1])) for place in range(len(tokens))]
    found = [match.span() for match in _WORD.finditer(text)] or [(0, len(text))]
    sums = torch.zeros(len(found), len(tokens))
    for place, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
        shared = [min(end, last) - max(begin, first) for first, last in found]
        sums[max(range(len(found)), key=shared.__getitem__), place] = 1
    # A word within a token whose larger part is another word has none.
    own = sums.any(1)
    words = [text[first:last] for first, last in found]
    return WholeWords(tuple(w for w, o in zip(words, own.tolist(), strict=True) if o), sums[own])
