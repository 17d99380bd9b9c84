"""Of llama2.c: the tokenizer that lies beside its models, tok512.bin or tokenizer.bin."""

import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, decoders, models, normalizers
from tokenizers import Tokenizer as Inner

from glasshead.guarded_file import TOKENIZER_BYTES, read_regular
from glasshead.tasks.reading.files import FileName, existing, shown
from glasshead.tasks.tokenizing.special import SpecialTokens
from glasshead.tasks.tokenizing.tokenizer import Tokenizer

UNKNOWN, START, END = _NAMES = ("<unk>", "<s>", "</s>")
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
# The special tokens and the bytes come first, and are never made of others.
_FIRST = len(_NAMES) + len(_BYTES)


class Piece(NamedTuple):
    """A token as the file has it: the higher the score, the sooner it is made of two others."""

    score: float
    text: str


def llama2c_tokenizer(name: FileName) -> Tokenizer:
    """The tokenizer of a file of llama2.c: SentencePiece's byte pair encoding, bytes for the rest.

    A text is read after <s>, and with a space before its first word. Both </s> and <s> end what is
    written, as in llama2.c's own `run`.

    Args:
        name: An int32 that nobody needs; then for each token a float32 score, an int32 length, and
            as many bytes.

    Errors: an OSError where the file cannot be read; a ValueError where it is something else.

    Source: Sennrich et al. 2016, section 3.2; Kudo and Richardson 2018 (SentencePiece).
    """
    path = existing(name)
    pieces = _checked(path, _pieces(path))
    vocabulary = {piece.text: number for number, piece in enumerate(pieces)}
    inner = Inner(
        models.BPE(
            vocab=vocabulary,
            merges=merges(pieces[_FIRST:]),
            unk_token=UNKNOWN,
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    inner.normalizer = normalizers.Prepend(" ")  # type: ignore[assignment]
    steps: list[Any] = [decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    inner.decoder = decoders.Sequence(steps)  # type: ignore[assignment]
    inner.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in (START, END)])
    unknown, start, end = range(len(_NAMES))
    return Tokenizer(inner, SpecialTokens(end, unknown, start, end, (end, start), (start,)))


def merges(pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    """Every two pieces that make a third, those first that make the one of the highest score.

    >>> merges([Piece(-1.0, "abc"), Piece(0.0, "ab"), *(Piece(-9.0, x) for x in "abc")])
    [('a', 'b'), ('ab', 'c')]
    """
    known = {piece.text for piece in pieces}
    return [
        (text[:cut], text[cut:])
        for _, text in sorted(pieces, key=lambda piece: -piece.score)
        for cut in range(1, len(text))
        if text[:cut] in known and text[cut:] in known
    ]


def _pieces(path: Path) -> list[Piece]:
    try:
        content = read_regular(path, TOKENIZER_BYTES)
    except OSError as error:
        raise type(error)(
            f"{shown(path)} cannot be read ({error.strerror}): name another."
        ) from error
    pieces, at = [], 4
    while at < len(content):
        try:
            score, length = struct.unpack_from("<fi", content, at)
            at += 8
            text = content[at : at + length].decode()
        except (struct.error, UnicodeDecodeError) as error:
            raise _no_tokenizer(path, f"token {len(pieces)} is broken") from error
        if not 0 < length <= len(content) - at or not math.isfinite(score):
            raise _no_tokenizer(path, f"token {len(pieces)} is broken")
        pieces.append(Piece(score, text))
        at += length
    return pieces


def _checked(path: Path, pieces: list[Piece]) -> list[Piece]:
    # llama2.c writes "\n<s>\n" where a text begins.
    first = [Piece(score, text.strip("\n")) for score, text in pieces[: len(_NAMES)]]
    pieces = [*first, *pieces[len(_NAMES) :]]
    if [text for _, text in pieces[:_FIRST]] != [*_NAMES, *_BYTES]:
        raise _no_tokenizer(path, f"it does not begin with {', '.join(_NAMES)} and the bytes")
    texts = [text for _, text in pieces]
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise _no_tokenizer(path, f"it has {twice!r} twice")
    return pieces


def _no_tokenizer(path: Path, why: str) -> ValueError:
    return ValueError(
        f"{shown(path)} is no tokenizer of llama2.c, as {why}: name one such as tok512.bin."
    )
