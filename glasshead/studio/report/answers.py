"""Answers: what a report holds, by what its views ask for."""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from jaxtyping import Float
from torch import Tensor

from glasshead.studio.page import float32
from glasshead.studio.work import Work

_STRONGEST = 9
# JavaScript writes other numbers with an exponent, and in its own way.
_PLAIN = (1e-6, 1e15)


class Answers:
    """Answers by path and parameters, as `stored` in source.js finds them.

    Plain answers say much the same again and again, and are packed together; tensors, which are
    unpacked one by one when they are looked at, apart, each content once.

    >>> answers = Answers()
    >>> answers.hold("words", {"lang": "en"}, {"shell.views": "Views"})
    >>> answers.told
    {'words|lang=en': {'shell.views': 'Views'}}
    """

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}
        self.numbers: dict[str, dict[str, Any]] = {}
        self._keys: dict[str, str] = {}

    def hold(self, path: str, given: Mapping[str, Any], answer: Any) -> None:
        """Hold an answer.

        Args:
            path: Of the studio's API, without its `api/`.
            given: The parameters by name; those that are None are not given.
            answer: Plain data, or a tensor as `numbers` gives it.
        """
        key = key_of(path, given)
        if isinstance(answer, Tensor):
            self.numbers[key] = self._held_once(key, answer)
        else:
            self.told[key] = answer

    def hold_all(self, given: Iterable[tuple[str, Mapping[str, Any], Any]], work: Work) -> None:
        """Hold answers one by one, as long as somebody waits.

        Args:
            given: The path, the parameters and the answer of each.
            work: Is asked before each.

        Errors: `Cancelled` where nobody waits any more.
        """
        for path, parameters, answer in given:
            work.check()
            self.hold(path, parameters, answer)

    def json(self, missing: str) -> str:
        """All of them as JSON that may stand in a script element.

        Args:
            missing: What is said where something else is asked for.

        Errors: a ValueError where a plain number is not finite, which JSON cannot hold.
        """
        try:
            told = json.dumps(self.told, separators=(",", ":"), allow_nan=False).encode()
        except ValueError as error:
            raise ValueError(
                "the numbers of this model grow beyond all bounds: train it again, or name another."
            ) from error
        return in_a_script({"missing": missing, "told": packed(told), "numbers": self.numbers})

    def _held_once(self, key: str, values: Float[Tensor, "*shape"]) -> dict[str, Any]:
        data, shape = packed(float32(values)), list(values.shape)
        first = self._keys.setdefault(data, key)
        return {"shape": shape, "data": data} if first == key else {"shape": shape, "as": first}


def key_of(path: str, given: Mapping[str, Any]) -> str:
    """What was asked, as `keyOf` in source.js names it.

    Errors: a ValueError for a number that JavaScript writes in another way.

    >>> key_of("steps/trace", {"mask": "causal", "beta": 1.0, "soft": True, "head": None})
    'steps/trace|beta=1|mask=causal|soft=true'
    """
    named = {name: _written(value) for name, value in sorted(given.items()) if value is not None}
    return "|".join([path, *(f"{name}={value}" for name, value in named.items())])


def packed(content: bytes) -> str:
    """Bytes as text, compressed.

    >>> packed(bytes(1000))
    'eNpjYBgFo2AUDHcAAAPoAAE='
    """
    return base64.b64encode(zlib.compress(content, _STRONGEST)).decode()


def in_a_script(value: Any) -> str:
    r"""JSON in ASCII, in which no text can end a script element, or begin another.

    Errors: a ValueError where a number is not finite, which JSON cannot hold.

    >>> in_a_script("<!-- \u2028")
    '"\\u003c!-- \\u2028"'
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _written(value: Any) -> str:
    """A parameter as JavaScript writes it into a text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, float):
        return str(value)
    if value and not _PLAIN[0] <= abs(value) < _PLAIN[1]:
        raise ValueError(f"a report names answers by plain numbers, and got {value}: give a text.")
    return str(int(value)) if value.is_integer() else f"{Decimal(repr(value)):f}"
