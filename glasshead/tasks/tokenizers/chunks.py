"""Chunked parallel encoding of long texts, and panics of `tokenizers` as errors."""

import faulthandler
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

from tokenizers import Tokenizer as Inner

from glasshead.tasks.tokenizers.bounds import parts_of, rules_of
from glasshead.tasks.tokenizers.words_and_letters import ALONE, FINAL_SIGMA

_STDERR = 2
_PANIC = "PanicException"


class _StderrCapture:
    """Captures the standard error descriptor while any thread is inside a block.

    Attributes:
        dropped: Whether to discard the captured output.
    """

    def __init__(self) -> None:
        self._lock, self._within = threading.Lock(), 0
        self._real = self._file = -1
        self._reports = self.dropped = False

    def begin(self) -> None:
        """Redirect standard error to a file."""
        with self._lock:
            self._within += 1
            if self._within == 1:
                self.dropped = False
                # Without standard error, or room for a file, nothing is captured.
                with suppress(OSError):
                    self._real = os.dup(_STDERR)
                    self._file = _in_memory()
                    # An abort is reported where the captured output would be lost.
                    if not faulthandler.is_enabled():
                        faulthandler.enable(self._real)
                        self._reports = True
                    os.dup2(self._file, _STDERR)

    def end(self) -> None:
        """Restore standard error and write the captured output to it."""
        with self._lock:
            self._within -= 1
            if self._within or self._real < 0:
                return
            with suppress(OSError):
                os.dup2(self._real, _STDERR)
            if self._reports:
                faulthandler.disable()
                self._reports = False
            if not self.dropped and self._file >= 0:
                os.lseek(self._file, 0, os.SEEK_SET)
                while some := os.read(self._file, 2**16):
                    with suppress(OSError):
                        os.write(_STDERR, some)
            for descriptor in (self._real, self._file):
                with suppress(OSError):
                    os.close(descriptor)
            self._real = self._file = -1


def _in_memory() -> int:
    """Open an anonymous file and return its descriptor."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stderr")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


_CAPTURE = _StderrCapture()


@contextmanager
def panics_as_errors(where: str) -> Iterator[None]:
    """Turn a panic of `tokenizers` into a ValueError, without its backtrace on standard error.

    A panic is a BaseException, and the library writes it to the standard error descriptor before
    raising it. The descriptor is captured, with the output of other threads, which is written
    afterwards if there was no panic.

    Args:
        where: The tokenizer's file, for the error message.

    Errors: a ValueError that names the file.
    """
    _CAPTURE.begin()
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        _CAPTURE.dropped = True
        message = " ".join(str(error).split())[:200].removesuffix(".")
        raise ValueError(
            f"{where} has a tokenizer that fails on this text ({message}). Use one whose regular "
            "expressions are simpler, or another text."
        ) from None
    finally:
        _CAPTURE.end()


_LENGTH = 2**14
# Number of chunks encoded at once, to limit the memory of their offsets.
_AT_ONCE = 256
# Maximum characters of one encoding: beyond, its offsets take gigabytes.
_MOST = 2**24
# Places where no token spans the cut: after a single line break between words, which is a token of
# its own or none, and before a space between words, which belongs to the next word or to none.
_SEAM = re.compile(r"(?<=\S\n)(?=\S)|(?<=\w)(?= \w)")
_SETTING = "TOKENIZERS_PARALLELISM"
# A forked process must not use parallelism, as it would wait for its parent's threads.
_OURS, _PROCESS = _SETTING not in os.environ, os.getpid()


def chunks_of_text(text: str, length: int = _LENGTH) -> list[str]:
    r"""Split a text into chunks of a minimum length, at line breaks and spaces between words.

    >>> chunks_of_text("one\ntwo\n\nthree\nfour", length=2)
    ['one\n', 'two\n\nthree\n', 'four']
    >>> chunks_of_text("one, two  three four", length=2)
    ['one, two  three', ' four']
    """
    cut, begin = [], 0
    while seam := _SEAM.search(text, begin + length):
        cut.append(text[begin : seam.start()])
        begin = seam.start()
    return [*cut, text[begin:]]


def cutting(inner: Inner) -> Callable[[str], list[str]]:
    """Return the function that splits long texts for a tokenizer, where no token spans a cut.

    Otherwise texts stay whole. The function raises a ValueError for a text too long to encode.
    """
    rules, before = rules_of(inner), inner.pre_tokenizer
    # Other normalizers may prepend something.
    letters_alone = all(map(_changes_letters_alone, parts_of(rules["normalizer"])))
    seams = before is not None and all(map(_splits_at_seams, parts_of(rules["pre_tokenizer"])))
    alone = before is None and '"merges":[]' in inner.to_str()
    # An added token that contains a space, or strips those beside it, may span a cut.
    apart = not any(
        token.lstrip or token.rstrip or len(token.content.split()) != 1
        for token in inner.get_added_tokens_decoder().values()
    )
    safe = letters_alone and (seams or alone) and apart
    return lambda text: check_length(chunks_of_text(text) if safe else [text])


_LETTERS_ALONE = ("Sequence", "NFC", "Lowercase", "BertNormalizer")


def _changes_letters_alone(part: dict[str, Any]) -> bool:
    if part["type"] != "Replace":
        return part["type"] in _LETTERS_ALONE
    pattern, content = part["pattern"], part["content"]
    letter = pattern.get("String", "") or "σ" * (pattern.get("Regex") == FINAL_SIGMA)
    return len(letter) == 1 and (letter + content).isalpha()


def _splits_at_seams(part: dict[str, Any]) -> bool:
    match part["type"]:
        case "Sequence" | "BertPreTokenizer":
            return True
        case "Split":
            return part["pattern"] == {"Regex": ALONE}
        case "ByteLevel":
            # Without its pattern, tokens span line breaks.
            return part["use_regex"] and not part["add_prefix_space"]
    return False


def encode_in_chunks(
    texts: Sequence[Sequence[str]], encode: Callable[[list[str]], list[list[int]]]
) -> list[list[int]]:
    """Encode texts given as chunks, some chunks of them at once, to the tokens of each text.

    >>> encode_in_chunks([["a", "bc"], [], ["d"]], lambda some: [[*map(ord, x)] for x in some])
    [[97, 98, 99], [], [100]]
    """
    chunks, encoded = (chunk for text in texts for chunk in text), []
    while some := list(islice(chunks, _AT_ONCE)):
        encoded += encode(some)
    each = iter(encoded)
    return [[token for tokens in islice(each, len(text)) for token in tokens] for text in texts]


def affixes(bare: Sequence[int], whole: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the tokens before and after the bare ones of a text; none where these are changed.

    >>> affixes([5, 6], [1, 5, 6, 2])
    ((1,), (2,))
    """
    for begin in range(len(whole) - len(bare) + 1):
        if bare and list(whole[begin : begin + len(bare)]) == list(bare):
            return tuple(whole[:begin]), tuple(whole[begin + len(bare) :])
    return (), ()


def check_length(pieces: list[str]) -> list[str]:
    """Check the length of the pieces and return them unchanged.

    Errors: a ValueError if one is too long to encode.
    """
    longest = max(map(len, pieces))
    if longest > _MOST:
        raise ValueError(
            f"a text must have at most {_MOST:,} characters without a place to cut it, such as a "
            f"line break between words, got {longest:,}. Break it into lines, or into several "
            "texts."
        )
    return pieces


@contextmanager
def in_parallel() -> Iterator[None]:
    """Enable the parallelism of `tokenizers` in a block, unless its variable was set at import.

    It is disabled afterwards, as the library warns when a process that used it forks.
    """
    if not _OURS or os.getpid() != _PROCESS:
        yield
        return
    os.environ[_SETTING] = "true"
    try:
        yield
    finally:
        os.environ[_SETTING] = "false"
