"""Bounds of foreign tokenizers: how far they lengthen a text, checked before they are built.

`tokenizers` aborts the process if memory runs out, so a tokenizer.json is refused by its rules.
"""

import base64
import binascii
from collections import Counter
from collections.abc import Iterator
from typing import Any

# The most characters that rules of replacement may make of one.
_GROWTH = 16
# Rules, beyond which they are not analysed.
_RULES = 1000
# The longest replacement of a character by Unicode's compatibility forms has 33 bytes.
_BYTES = 64
# Each spells a byte as up to two.
_BYTE_LEVELS = 2


def check_bounds(told: Any, where: str) -> None:
    """Check the rules of a tokenizer.json.

    Args:
        told: Its content.
        where: Its name, for errors.

    Errors: a ValueError where a text could grow without bound, or has other tokens each time.
    """
    if not isinstance(told, dict):
        return
    model = told.get("model")
    dropout = model.get("dropout") if isinstance(model, dict) else None
    if dropout:
        raise ValueError(
            f"{where} has dropout={dropout!r}, so that a text has other tokens each time: set it "
            "to null."
        )
    before = [*_parts(told.get("normalizer")), *_parts(told.get("pre_tokenizer"))]
    for rules in (before, [*_parts(told.get("decoder"))]):
        if _grows(rules):
            raise ValueError(
                f"{where} has rules that make more than {_GROWTH} characters of one: take a "
                "tokenizer without them."
            )


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the parts of a component, in their order; sequences may be nested."""
    if not isinstance(value, dict):
        return
    inner = next((value[name] for name in _LISTS if isinstance(value.get(name), list)), None)
    if inner is None:
        yield value
    else:
        for part in inner:
            yield from _parts(part)


_LISTS = ("normalizers", "pretokenizers", "decoders")


def _grows(parts: list[dict[str, Any]]) -> bool:
    kinds = Counter(str(part.get("type")) for part in parts)
    if kinds["ByteLevel"] > _BYTE_LEVELS or kinds["Replace"] > _RULES:
        return True
    if any(_longest(part) > _BYTES for part in parts if part.get("type") == "Precompiled"):
        return True
    rules = [_rule(part) for part in parts if part.get("type") == "Replace"]
    letters = {letter for pattern, content in rules for letter in (pattern or "") + content}
    if len(letters) * len(rules) > _RULES**2:
        return True
    # Any other letter is replaced by regular expressions alone.
    return any(_length_of(letter, rules) > _GROWTH for letter in (*letters, "\0"))


def _rule(part: dict[str, Any]) -> tuple[str | None, str]:
    """Return the text that is replaced, None for a regular expression, and the replacement."""
    pattern, content = part.get("pattern"), part.get("content")
    found = pattern.get("String") if isinstance(pattern, dict) else None
    return found if isinstance(found, str) and found else None, str(content)


def _length_of(letter: str, rules: list[tuple[str | None, str]]) -> int:
    """Bound the number of letters that rules make of one, each applied everywhere in turn."""
    count = Counter({letter: 1})
    for pattern, content in rules:
        # A longer pattern is found at most once for each of its first letter.
        times = count.total() + 1 if pattern is None else count[pattern[0]]
        if pattern is not None and len(pattern) == 1:
            del count[pattern]
        for each, number in Counter(content).items():
            count[each] += times * number
        if count.total() > _GROWTH:
            break
    return count.total()


def _longest(part: dict[str, Any]) -> int:
    """Return the bytes of the longest replacement of a precompiled map of SentencePiece."""
    try:
        content = base64.b64decode(str(part.get("precompiled_charsmap")))
    except (binascii.Error, ValueError):
        return 0
    size = int.from_bytes(content[:4], "little")
    return max(map(len, content[4 + size :].split(b"\0")), default=0)
