"""Loading tokenizers of published models: GPT-2, Hugging Face folders and llama2.c."""

import json
import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Inner

from glasshead.files import TOKENIZER_BYTES, read_object, read_regular
from glasshead.models.pretrained.folder import AGAIN
from glasshead.tasks.data.files import FileName, existing, read_text, shown
from glasshead.tasks.tokenizers.chunks import affixes, panics_as_errors
from glasshead.tasks.tokenizers.tokenizer import (
    END_OF_TEXT,
    LEAST,
    SpecialTokens,
    Tokenizer,
    read_inner,
)


def gpt2(encoder_json: FileName, vocab_bpe: FileName) -> Tokenizer:
    """Load the tokenizer of GPT-2 from its two published files.

    Its only special token, <|endoftext|>, serves as start, end, padding and unknown token.

    Args:
        encoder_json: JSON of token ids by token.
        vocab_bpe: The merges, one pair per line, in order of priority.

    Errors: an OSError if a file does not exist or cannot be read; a ValueError that names the
    file where it is malformed, or the two do not fit each other.

    Source: Radford et al. 2019, section 2.2.
    """
    vocabulary, merges = _vocabulary(encoder_json), _merges(vocab_bpe)
    try:
        inner = Inner(models.BPE(vocab=vocabulary, merges=merges))
    except Exception as error:
        raise ValueError(
            f"{shown(existing(vocab_bpe))} does not fit {shown(existing(encoder_json))} "
            f"({error}). Get both from one place."
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
        raise ValueError(f"{expected}, got invalid JSON ({error}). Get it again.") from error
    if not _is_vocabulary(vocabulary):
        raise ValueError(f"{expected}, got another. Name GPT-2's encoder.json.")
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
                f"{shown(path)}, line {line}: expected two tokens with a space between, got "
                f"{pair[:40]!r}. Name GPT-2's vocab.bpe."
            )
        merges.append((parts[0], parts[1]))
    return merges


_SAVE = "Save one there, with AutoTokenizer.from_pretrained(…).save_pretrained(folder)"


def huggingface_tokenizer(folder: FileName) -> Tokenizer:
    """Load the tokenizer of a folder: tokenizer.json, or GPT-2's vocab.json and merges.txt.

    Special tokens are given as ids in generation_config.json and config.json, and as strings in
    tokenizer_config.json and special_tokens_map.json. For end tokens the ids take precedence, as in
    generation by transformers; for the others the strings do.

    Errors: an OSError if there is no tokenizer, or it cannot be read; a ValueError if a file
    is malformed, or there is neither a start nor an end token.
    """
    path = Path(folder)
    inner = _inner(path)
    where = shown(path / "tokenizer.json")
    with panics_as_errors(where):
        return Tokenizer(inner, _SpecialTokenFiles(path, inner).special(), where)


def _inner(folder: Path) -> Inner:
    if (folder / "tokenizer.json").exists():
        return read_inner(folder / "tokenizer.json")
    files = folder / "vocab.json", folder / "merges.txt"
    if all(file.exists() for file in files):
        return gpt2(*files).inner
    raise FileNotFoundError(
        f"{shown(folder)} has no tokenizer: there is neither a tokenizer.json in it, nor GPT-2's "
        f"vocab.json with merges.txt. {_SAVE}."
    )


class _SpecialTokenFiles:
    """The special tokens in the config files of a folder."""

    def __init__(self, folder: Path, inner: Inner) -> None:
        self._inner = inner
        self._numbered = [_read(folder / x) for x in ("generation_config.json", "config.json")]
        self._named = [
            _read(folder / x) for x in ("tokenizer_config.json", "special_tokens_map.json")
        ]
        self._folder = folder

    def special(self) -> SpecialTokens:
        """Return all special tokens."""
        start, ends = self._token("bos"), self._numbers("eos")
        if not ends and (end := self._token("eos")) is not None:
            ends = (end,)
        known = [*ends, *([] if start is None else [start])]
        if not known:
            raise ValueError(
                f"{shown(self._folder)} names no token that begins or ends a text. Add "
                "eos_token_id to its generation_config.json."
            )
        end = known[0]
        pad, unknown = self._token("pad"), self._token("unk")
        start = end if start is None else start
        return SpecialTokens(
            pad=end if pad is None else pad,
            # With byte fallback, another special token often doubles as the unknown one.
            unknown=end if unknown is None or unknown in known else unknown,
            start=start,
            end=end,
            ends=ends,
            before=_before(self._inner),
        )

    def _token(self, kind: str) -> int | None:
        """Return the id of a special token, given as string or else as id."""
        for config in self._named:
            value = config.get(f"{kind}_token")
            # An added token's settings, or its content alone.
            content = value.get("content") if isinstance(value, dict) else value
            if (
                isinstance(content, str)
                and (number := self._inner.token_to_id(content)) is not None
            ):
                return number
        return next(iter(self._numbers(kind)), None)

    def _numbers(self, kind: str) -> tuple[int, ...]:
        name = f"{kind}_token_id"
        for config in self._numbered:
            value = config.get(name)
            if value is None:
                continue
            numbers = value if isinstance(value, list) else [value]
            if kind == "pad" and numbers == [-1]:  # no padding, as in the first Llama
                return ()
            for number in numbers:
                if not self._is_token(number):
                    raise ValueError(
                        f"{name} in {shown(self._folder)} must be numbers of the tokenizer's "
                        f"tokens, got {value!r}. Use the tokenizer that belongs to the model."
                    )
            return tuple(numbers)
        return ()

    def _is_token(self, number: Any) -> bool:
        # `tokenizers` counts in 32 bits.
        known = type(number) is int and 0 <= number < 2**32
        return known and self._inner.id_to_token(number) is not None


def _before(inner: Inner) -> tuple[int, ...]:
    """Return the special tokens that the tokenizer prepends to a text."""
    inner.no_padding()
    inner.no_truncation()
    bare, whole = (inner.encode(LEAST, add_special_tokens=added).ids for added in (False, True))
    return affixes(bare, whole)[0]


def _read(file: Path) -> dict[str, Any]:
    return read_object(file, AGAIN) if file.exists() else {}


UNKNOWN, START, END = _NAMES = ("<unk>", "<s>", "</s>")
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
# Special tokens and bytes come first, and are never the result of merges.
_FIRST = len(_NAMES) + len(_BYTES)


class Piece(NamedTuple):
    """A token of the file; merges that result in a higher score come first."""

    score: float
    text: str


def llama2c_tokenizer(name: FileName) -> Tokenizer:
    """Load a tokenizer file of llama2.c: SentencePiece BPE with byte fallback.

    <s> and a space are prepended to a text. Both </s> and <s> end generation, as in llama2.c's own
    `run`.

    Args:
        name: The file: an unused int32; then for each token a float32 score, an int32 length, and
            its bytes.

    Errors: an OSError if the file cannot be read; a ValueError if it has another format.

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
    """Reconstruct the merges: pairs of pieces that form a third, by its descending score.

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
            f"{shown(path)} cannot be read ({error.strerror}). Name another."
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
        f"{shown(path)} is not a llama2.c tokenizer: {why}. Name one such as tok512.bin."
    )
