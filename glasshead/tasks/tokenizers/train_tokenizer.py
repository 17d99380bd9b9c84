"""Training tokenizers: characters, words, BPE and WordPiece, deterministically."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from tokenizers import Tokenizer as Inner
from tokenizers import decoders, models, pre_tokenizers, trainers

from glasshead.recipe.validation import whole_number
from glasshead.tasks.tokenizers.chunks import chunks_of_text, in_parallel
from glasshead.tasks.tokenizers.tokenizer import SPECIAL, UNKNOWN, Tokenizer
from glasshead.tasks.tokenizers.words_and_letters import same_letters, words_of_texts

# Merging the pairs of a word takes quadratic time, so longer words are split into parts of so many
# characters. For BPE a word is a run of one kind of characters; for WordPiece, the text between
# spaces and punctuation.
_LONGEST = 1024
_KINDS = (r"[^\W\d_]", r"\d", r"\s", r"(?:[^\w\s]|_)")
_BETWEEN = (r"[^\s!-/:-@\[-`{-~]",)


def characters(texts: Iterable[str]) -> Tokenizer:
    """Create a character tokenizer; tokens are sorted by code point, after the special ones.

    Errors: a ValueError if there is no character.

    >>> tokenizer = characters(["hello"])
    >>> tokenizer.vocab_size, tokenizer.encode("hole!")
    (8, [5, 7, 6, 4, 1])
    """
    known = sorted(set().union(*_checked(texts)))
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *known])}
    # BPE without merges is faster than a word-level model.
    inner = Inner(models.BPE(vocab=vocabulary, merges=[], unk_token=UNKNOWN))
    return _complete(inner, decoders.Fuse())


def train_bpe(
    texts: Iterable[str], vocab_size: int, *, lowercase: bool = False, composed: bool = False
) -> Tokenizer:
    """Train byte-level byte pair encoding (BPE), which encodes any text losslessly.

    Args:
        texts: Training texts.
        vocab_size: Maximum vocabulary size, at least 260: the bytes and the special tokens.
        lowercase: Whether texts are lowercased, as their language does it.
        composed: Whether a letter and its marks are composed to one character (NFC), as they are
            where texts are lowercased. Then a text comes back composed.

    Errors: a ValueError if there is no text, or vocab_size is too small.

    Source: Sennrich et al. 2016, section 3.2; over bytes, Radford et al. 2019, section 2.2.

    >>> tokenizer = train_bpe(["the sun, the sea, the sand"], vocab_size=264)
    >>> [tokenizer.token(number) for number in tokenizer.encode("the bath")]
    ['the', ' ', 'b', 'a', 't', 'h']
    """
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    vocab_size = whole_number(vocab_size, "vocab_size", least=len(alphabet) + len(SPECIAL))
    inner = Inner(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    texts = list(_checked(texts))
    if lowercase or composed:
        inner.normalizer = same_letters(texts, lowercase=lowercase)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    return _trained(inner, trainer, decoders.ByteLevel(), _in_parts(texts, _KINDS))


def train_wordpiece(texts: Iterable[str], vocab_size: int, *, lowercase: bool = False) -> Tokenizer:
    """Train WordPiece; pieces that continue a word begin with "##".

    Spaces are not preserved: `decode` puts one between words, and none before a full stop.

    Args:
        texts: Training texts.
        vocab_size: Maximum vocabulary size; every character of the texts takes one or two tokens.
        lowercase: Whether texts are lowercased, as their language does it.

    Errors: a ValueError if there is no text, or vocab_size is too small.

    Source: Wu et al. 2016, section 4.1; "##" as in Devlin et al. 2019, section 3.

    >>> tokenizer = train_wordpiece(["the sun and the moon are under the sea"], vocab_size=38)
    >>> [tokenizer.token(number) for number in tokenizer.encode("the sunder sea")]
    ['the', 'sun', '##d', '##er', 'sea']
    """
    texts = list(_checked(texts))
    vocab_size = whole_number(vocab_size, "vocab_size", least=len(SPECIAL) + 1)
    inner = Inner(models.WordPiece(vocab={}, unk_token=UNKNOWN))
    inner.normalizer = same_letters(texts, lowercase=lowercase)
    inner.pre_tokenizer = words_of_texts()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        # The trainer itself would order the "##" characters nondeterministically.
        special_tokens=[*SPECIAL, *_continuations(inner, texts)],
        limit_alphabet=vocab_size,
        show_progress=False,
    )
    tokenizer = _trained(inner, trainer, decoders.WordPiece(), _in_parts(texts, _BETWEEN))
    if tokenizer.vocab_size > vocab_size:
        raise ValueError(
            f"vocab_size must be at least {tokenizer.vocab_size}, the characters of these texts "
            f"and the special tokens, got {vocab_size}. Raise it, or use train_bpe."
        )
    return tokenizer


def words(texts: Iterable[str], vocab_size: int, *, lowercase: bool = True) -> Tokenizer:
    """Create a word tokenizer from the most frequent words, punctuation marks and emoji.

    In scripts without spaces, such as Chinese, Japanese and Thai, each letter is a word.

    Args:
        texts: Texts in which words are counted.
        vocab_size: Maximum vocabulary size, including the special tokens.
        lowercase: Whether texts are lowercased, as their language does it.

    Errors: a ValueError if there is no text, or vocab_size is too small.

    >>> tokenizer = words(["The sun, the sea, the sand."], vocab_size=6)
    >>> tokenizer.decode(tokenizer.encode("The sea, the sun"))
    'the <unk> , the <unk>'
    """
    inner = Inner(models.WordLevel(vocab={}, unk_token=UNKNOWN))
    texts = list(_checked(texts))
    inner.pre_tokenizer = words_of_texts()
    inner.normalizer = same_letters(texts, lowercase=lowercase)
    trainer = trainers.WordLevelTrainer(
        vocab_size=whole_number(vocab_size, "vocab_size", least=len(SPECIAL) + 1),
        special_tokens=list(SPECIAL),
        show_progress=False,
    )
    return _trained(inner, trainer, None, texts)


def _continuations(inner: Inner, texts: Iterable[str]) -> list[str]:
    """Return "##" with each character that continues a word, from all adjacent pairs."""
    letters = set()
    for pair in set().union(*(pairwise(text) for text in texts)):
        written = inner.normalizer.normalize_str("".join(pair))  # type: ignore[union-attr]
        parts = inner.pre_tokenizer.pre_tokenize_str(written)  # type: ignore[union-attr]
        letters.update(*(word[1:] for word, _ in parts))
    return [f"##{letter}" for letter in sorted(letters)]


def _in_parts(texts: Iterable[str], kinds: Sequence[str]) -> Iterator[str]:
    """Split texts within words that are too long to train on.

    >>> [len(part) for part in _in_parts(["a day", "x" * 1500 + " y"], _KINDS)]
    [5, 1024, 478]
    """
    if isinstance(texts, str):
        yield from _checked(texts)
    long = re.compile("|".join(f"{kind}{{{_LONGEST}}}" for kind in kinds))
    for text in texts:
        begin = 0
        for part in long.finditer(text):
            if part.end() < len(text):
                yield text[begin : part.end()]
                begin = part.end()
        yield text[begin:]


def _trained(inner: Inner, trainer: Any, decoder: Any, texts: Iterable[str]) -> Tokenizer:
    with in_parallel():
        inner.train_from_iterator(
            (piece for text in _checked(texts) for piece in chunks_of_text(text)), trainer
        )
    return _complete(inner, decoder)


def _complete(inner: Inner, decoder: Any) -> Tokenizer:
    inner.decoder = decoder
    inner.add_special_tokens(list(SPECIAL))
    described = json.loads(inner.to_str())
    # The unknown token stays visible in decoded text.
    hidden = {*SPECIAL} - {UNKNOWN}
    described["added_tokens"] = [
        token for token in described["added_tokens"] if token["content"] in hidden
    ]
    return Tokenizer(Inner.from_str(json.dumps(described)))


def _checked(texts: Iterable[str]) -> Iterator[str]:
    """Iterate over texts; raise a ValueError at the end where none has a word."""
    if isinstance(texts, str):
        raise TypeError("texts must be several texts, got one. Put it into a list.")
    empty = True
    for text in texts:
        empty = empty and not text.strip()
        yield text
    if empty:
        raise ValueError("texts must have at least one text with a word in it, got none.")
