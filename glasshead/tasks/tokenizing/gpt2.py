"""GPT-2: its published vocabulary."""

import json
from typing import Any

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Inner

from glasshead.guarded_file import TOKENIZER_BYTES
from glasshead.tasks.reading.files import FileName, existing, read_text, shown
from glasshead.tasks.tokenizing.tokenizer import END_OF_TEXT, Tokenizer


def gpt2(encoder_json: FileName, vocab_bpe: FileName) -> Tokenizer:
    """The tokenizer of GPT-2, from the two files that it was published in.

    Its one special token, <|endoftext|>, is its start, its end, its padding and its unknown.

    Args:
        encoder_json: The number of each token.
        vocab_bpe: The merges, a pair a line, the first ones first.

    Errors: an OSError where a file is not there or cannot be read; a ValueError that names the file
    where it is not what was published, or the two do not fit each other.

    Source: Radford et al. 2019, section 2.2.
    """
    vocabulary, merges = _vocabulary(encoder_json), _merges(vocab_bpe)
    try:
        inner = Inner(models.BPE(vocab=vocabulary, merges=merges))
    except Exception as error:
        raise ValueError(
            f"{shown(existing(vocab_bpe))} does not fit {shown(existing(encoder_json))} ({error}): "
            f"take both from one place."
        ) from error
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    inner.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    inner.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    return Tokenizer(inner)


def _vocabulary(name: FileName) -> dict[str, int]:
    path = existing(name)
    expected = f"{shown(path)}: expected JSON of tokens and their numbers, with {END_OF_TEXT}"
    try:
        vocabulary = json.loads(read_text(path, most=TOKENIZER_BYTES))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{expected}, and got what is no JSON ({error}): get it again.") from error
    if not _is_vocabulary(vocabulary):
        raise ValueError(f"{expected}, and got another: name GPT-2's encoder.json.")
    return vocabulary


def _is_vocabulary(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and END_OF_TEXT in value
        and all(type(number) is int for number in value.values())
        and sorted(value.values()) == list(range(len(value)))
    )


def _merges(name: FileName) -> list[tuple[str, str]]:
    path = existing(name)
    merges = []
    for line, pair in enumerate(read_text(path, most=TOKENIZER_BYTES).split("\n"), start=1):
        if not pair or (line == 1 and pair.startswith("#version")):
            continue
        parts = pair.split(" ")
        if len(parts) != 2 or not all(parts):
            raise ValueError(
                f"{shown(path)}, line {line}: expected two tokens with a space between, and got "
                f"{pair[:40]!r}: name GPT-2's vocab.bpe."
            )
        merges.append((parts[0], parts[1]))
    return merges
