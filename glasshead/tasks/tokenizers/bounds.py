"""Bounds of foreign tokenizers: how far they lengthen a text, checked before they are built.

`tokenizers` aborts the process if memory runs out, so a tokenizer.json is refused by its rules.
"""

import base64
import binascii
import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Inner

from glasshead.files import TOKENIZER_BYTES, read_regular
from glasshead.tasks.tokenizers.words_and_letters import ALONE, FINAL_SIGMA

# The most characters that rules of replacement may make of one.
_GROWTH = 16
# Rules, beyond which they are not analyzed.
_RULES = 1000
# The longest replacement of a character by Unicode's compatibility forms has 33 bytes.
_BYTES = 64
# Each spells a byte as up to two, or puts a character before each part.
_LENGTHENING = 2
# WordPiece takes time in proportion to the square of a word, Unigram of a token.
_LONGEST = 200
_FIRST = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASES = r"[^\r\n\p{L}\p{N}]?%s%s(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
# Regular expressions of published tokenizers that read no character more than a few times.
LINEAR = {
    # GPT-2, Llama 3, Qwen 2, Qwen 3.5, GPT-4o and CLIP.
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    rf"{_FIRST}\p{{L}}+|\p{{N}}{{1,3}}|{_REST}",
    rf"{_FIRST}\p{{L}}+|\p{{N}}|{_REST}",
    rf"{_FIRST}[\p{{L}}\p{{M}}]+|\p{{N}}|{_REST}".replace(r"\s\p{L}\p{N}", r"\s\p{L}\p{M}\p{N}"),
    _CASES % (f"{_UPPER}*", f"{_LOWER}+")
    + _CASES % (f"{_UPPER}+", f"{_LOWER}*")
    + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    # Those of glasshead.
    ALONE,
    FINAL_SIGMA,
    # Spaces and line breaks.
    *(" {2,}", r"\s+", r"\s{2,}|[\n\r\t]", r"[\n\r\t]", r"\n"),
}
# The parts of a tokenizer that change texts.
PARTS = ("normalizer", "pre_tokenizer", "decoder")
# What stands in for the rest of a tokenizer.
EMPTY: dict[str, Any] = {
    "version": "1.0",
    "added_tokens": [],
    "model": {"type": "BPE", "vocab": {}, "merges": []},
    **dict.fromkeys((*PARTS, "post_processor", "truncation", "padding")),
}


def check_bounds(description: Any, where: str) -> dict[str, Any]:
    """Check the content of a tokenizer.json, and return its rules, as of `rules_of`.

    Args:
        description: Its content.
        where: Its name, for errors.

    Errors: a ValueError if a text could grow without bound, take too long, or has other tokens
    each time; any of `tokenizers` for rules that it does not take.
    """
    description = description if isinstance(description, dict) else {}
    model = description.get("model")
    model = model if isinstance(model, dict) else {}
    if dropout := model.get("dropout"):
        raise ValueError(
            f"dropout in {where} must be null, got {dropout!r}. With dropout, a text has other "
            "tokens each time."
        )
    if (longest := _longest_word(model)) > _LONGEST:
        raise ValueError(
            f"tokens and words in {where} must have at most {_LONGEST} characters, got "
            f"{longest:,}. Use a tokenizer with shorter ones."
        )
    # As `tokenizers` reads them, without its added tokens, which it normalizes.
    bare = Inner.from_str(json.dumps(EMPTY | {name: description.get(name) for name in PARTS}))
    rules = rules_of(bare)
    check_rules(rules, where)
    return rules


def rules_of(inner: Inner) -> dict[str, Any]:
    """Return the parts of a tokenizer that change texts, as in a tokenizer.json."""
    parts = {name: getattr(inner, name) for name in PARTS}
    return {
        name: None if part is None else json.loads(part.__getstate__())
        for name, part in parts.items()
    }


def check_rules(rules: dict[str, Any], where: str) -> None:
    """Raise a ValueError if rules lengthen a text without bound, or take any time to decode."""
    if not LINEAR.issuperset(patterns(rules["decoder"])):
        raise ValueError(
            f"{where} has a regular expression in its decoder, which may take any time. Use a "
            "tokenizer without it."
        )
    for names in (PARTS[:2], PARTS[2:]):
        if _grows([part for name in names for part in parts_of(rules[name])]):
            raise ValueError(
                f"{where} has rules that make more than {_GROWTH} characters of one. Use a "
                "tokenizer without them."
            )


def parts_of(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the parts of a component, in their order; sequences may be nested."""
    if not isinstance(value, dict):
        return
    yield value
    for name in _LISTS:
        for part in value.get(name, ()):
            yield from parts_of(part)


_LISTS = ("normalizers", "pretokenizers", "decoders")


def patterns(value: Any) -> Iterator[str]:
    """Yield the regular expressions of rules."""
    if isinstance(value, dict):
        if isinstance(pattern := value.get("Regex"), str):
            yield pattern
        value = list(value.values())
    for one in value if isinstance(value, list) else ():
        yield from patterns(one)


def _longest_word(model: dict[str, Any]) -> int:
    """Return the longest word of WordPiece, or token of Unigram."""
    most, vocabulary = model.get("max_input_chars_per_word"), model.get("vocab")
    pieces = vocabulary if isinstance(vocabulary, list) else []
    texts = (one[0] for one in pieces if isinstance(one, list) and one)
    lengths = [len(text) for text in texts if isinstance(text, str)]
    return max([*lengths, most if type(most) is int else 0])


def _grows(parts: list[dict[str, Any]]) -> bool:
    kinds = Counter(str(part.get("type")) for part in parts)
    if kinds["ByteLevel"] + kinds["Metaspace"] > _LENGTHENING or kinds["Precompiled"] > 1:
        return True
    if any(_longest(part) > _BYTES for part in parts if part.get("type") == "Precompiled"):
        return True
    if sum(len(str(part["prepend"])) for part in parts if "prepend" in part) > _GROWTH:
        return True
    rules = [rule for part in parts if (rule := _rule(part)) is not None]
    letters = {letter for rule in rules for letter in rule.letters}
    if len(rules) > _RULES or len(letters) * len(rules) > _RULES**2:
        return True
    # Any other letter is replaced by regular expressions alone.
    return any(_length_of(letter, rules) > _GROWTH for letter in (*letters, "\0"))


class _Replace:
    """A rule that replaces a text, or, with None, a regular expression."""

    def __init__(self, pattern: str | None, content: str) -> None:
        self.pattern, self.content = pattern, content
        self.letters = (pattern or "") + content

    def __call__(self, count: Counter[str]) -> None:
        """Add the most letters that the rule makes of others."""
        pattern = self.pattern
        # A longer pattern is found at most once for each of its first letter.
        times = count.total() + 1 if pattern is None else count[pattern[0]]
        if pattern is not None and len(pattern) == 1:
            del count[pattern]
        for each, number in Counter(self.content).items():
            count[each] += times * number


class _Rewrite:
    """A rule of Unicode, which makes some letters of each."""

    letters = ""

    def __init__(self, of: Callable[[str], str]) -> None:
        self._of = of

    def __call__(self, count: Counter[str]) -> None:
        """Replace the letters by what the rule makes of them."""
        before = dict(count)
        count.clear()
        for letter, number in before.items():
            for each in self._of(letter):
                count[each] += number


def _decomposed(letter: str) -> str:
    return unicodedata.normalize("NFKD", letter)


# BertNormalizer puts a space at both sides of a Chinese character, the first of which is this.
_CHINESE = "\u3400"
_REWRITES: dict[str, Callable[[str], str]] = {
    **dict.fromkeys(("NFC", "NFD", "NFKC", "NFKD"), _decomposed),
    "Lowercase": str.lower,
    "BertNormalizer": lambda letter: (
        f" {letter} " if letter >= _CHINESE else _decomposed(letter).lower()
    ),
}


def _rule(part: dict[str, Any]) -> _Replace | _Rewrite | None:
    """Return a rule that may lengthen a text."""
    kind = str(part.get("type"))
    if kind in _REWRITES:
        return _Rewrite(_REWRITES[kind])
    if kind != "Replace":
        return None
    found = part["pattern"].get("String")
    return _Replace(found or None, part["content"])


def _length_of(letter: str, rules: list[_Replace | _Rewrite]) -> int:
    """Bound the number of letters that rules make of one, each applied everywhere in turn."""
    count = Counter({letter: 1})
    for rule in rules:
        rule(count)
        if count.total() > _GROWTH:
            break
    return count.total()


def _longest(part: dict[str, Any]) -> int:
    """Return the bytes of the longest replacement of a precompiled map of SentencePiece."""
    try:
        content = base64.b64decode(str(part.get("precompiled_charsmap")))
    except (binascii.Error, ValueError):
        return 0
    return _longest_of(content)


def _longest_of(charsmap: bytes) -> int:
    size = int.from_bytes(charsmap[:4], "little")
    return max(map(len, charsmap[4 + size :].split(b"\0")), default=0)


# Of SentencePiece's ModelProto: the rules before and after, and the map of characters in each.
_SPECS, _CHARSMAP = (3, 5), 2


def check_sentencepiece(path: Path, where: str) -> None:
    """Check the maps of characters in a file of SentencePiece, if it is one.

    Errors: a ValueError if a text could grow without bound; an OSError if it cannot be read.
    """
    content = read_regular(path, TOKENIZER_BYTES)
    for spec in _fields(content, _SPECS):
        for charsmap in _fields(spec, (_CHARSMAP,)):
            if _longest_of(charsmap) > _BYTES:
                raise ValueError(
                    f"{where} must have a map that makes at most {_BYTES} bytes of a character, "
                    f"got {_longest_of(charsmap):,}. Use a tokenizer without it."
                )


def _fields(message: bytes, wanted: tuple[int, ...]) -> list[bytes]:
    """Return the fields of some numbers that hold bytes, of a message of protocol buffers."""
    at, found = 0, []
    while at < len(message):
        key, at = _number(message, at)
        field, wire = key >> 3, key & 7
        if wire == _VARINT:
            _, at = _number(message, at)
        elif wire == _BYTES_OF:
            size, at = _number(message, at)
            if field in wanted:
                found.append(message[at : at + size])
            at += size
        elif wire in _FIXED:
            at += _FIXED[wire]
        else:
            return []
    # Another file, such as one of tiktoken, does not end with a field.
    return found if at == len(message) else []


_VARINT, _BYTES_OF = 0, 2
# The bytes of numbers of 64 and 32 bits, and of what begins and ends a group.
_FIXED = {1: 8, 5: 4, 3: 0, 4: 0}


def _number(message: bytes, at: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, the last without its eighth bit, and where it ends."""
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            break
    return value, at
