"""Vocabulary: what a reader says of the tokens of a run of ours."""

from glasshead.tasks.tokenizing import Tokenizer


def ordinary(tokenizer: Tokenizer) -> list[int]:
    """All tokens but those that are put in by number."""
    special = tokenizer.special
    put_in = {special.pad, special.unknown, special.start, *special.ends, *special.before}
    return sorted(set(tokenizer.inner.get_vocab().values()) - put_in)


def unknown(tokenizer: Tokenizer) -> int | None:
    """What stands for all that is unknown; None where all is known and another token stands in."""
    return None if tokenizer.unknown_id == tokenizer.end_id else tokenizer.unknown_id
