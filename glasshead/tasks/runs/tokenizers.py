"""Tokenizers: those that a run makes of its texts, by name."""

from collections.abc import Callable, Iterable

from glasshead.tasks.tokenizing import Tokenizer, train_bpe, train_wordpiece, words

_MAKE: dict[str, Callable[..., Tokenizer]] = {
    "bpe": train_bpe,
    "wordpiece": train_wordpiece,
    "words": words,
}


def made_tokenizer(
    kind: str, texts: Iterable[str], vocabulary: int, *, lowercase: bool = False
) -> Tokenizer:
    """A tokenizer that knows these texts.

    Args:
        kind: "bpe", "wordpiece" or "words".
        texts: What it learns from.
        vocabulary: How many tokens it has at most.
        lowercase: Whether texts are put into small letters.

    Errors: a ValueError where there is no text, or the vocabulary is too small.

    >>> made_tokenizer("words", ["The sun and the sea"], 7).vocab_size
    7
    """
    try:
        return _MAKE[kind](texts, vocabulary, lowercase=lowercase)
    except ValueError as error:
        # By the name that it has among the settings.
        raise ValueError(str(error).replace("vocab_size", "vocabulary")) from error
