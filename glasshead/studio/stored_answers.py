"""Answers to the page's requests as a report holds them, and what a report is given of a text."""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from jaxtyping import Float
from torch import Tensor

from glasshead.explanation.translations import Say
from glasshead.message import _
from glasshead.studio.background_jobs import Work
from glasshead.studio.studio import Studio

WORDS = {
    "report.missing": _(
        "This report does not contain that. Start the studio with the model to see it."
    ),
    "report.noscript": _("This page needs JavaScript. The file contains all of it."),
    "report.sentence": _(
        "This is the beginning of the text (words and marks: {count}). The studio accepts "
        "any sentence."
    ),
    "report.heads": _(
        "To keep the file small, it contains the full maps of {kept} of the {of} heads. The "
        "studio shows all of them."
    ),
    "live.words": _(
        "On your machine, glasshead studio explains each step of this sentence in words."
    ),
    "live.lengths": _("A difference needs two texts with the same number of tokens."),
    "report.sentences": _(
        "This is the beginning of the text (sentences: {count}). The studio accepts any sentence."
    ),
}


# JavaScript writes numbers outside this range with an exponent, in its own format.
_PLAIN = (1e-6, 1e15)


class StoredAnswers:
    """Answers to the page's requests, keyed by path and parameters as `stored` in source.js is.

    Plain answers repeat each other and are compressed together; tensors, which the page unpacks
    one by one, are compressed apart, equal ones once.

    >>> answers = StoredAnswers()
    >>> answers.hold("words", {"lang": "en"}, {"shell.views": "Views"})
    >>> answers.by_key
    {'words|lang=en': {'shell.views': 'Views'}}
    """

    def __init__(self) -> None:
        self.by_key: dict[str, Any] = {}
        self.numbers: dict[str, dict[str, Any]] = {}
        self._keys: dict[str, str] = {}

    def hold(self, path: str, given: Mapping[str, Any], answer: Any) -> None:
        """Add an answer.

        Args:
            path: Path in the studio's API, without `api/`.
            given: Parameters by name; those that are None are left out.
            answer: Plain data, or a tensor.
        """
        key = key_of(path, given)
        if isinstance(answer, Tensor):
            self.numbers[key] = self._deduplicated(key, answer)
        else:
            self.by_key[key] = answer

    def hold_all(self, given: Iterable[tuple[str, Mapping[str, Any], Any]], work: Work) -> None:
        """Add answers one by one until the work is cancelled.

        Args:
            given: Path, parameters and answer of each.
            work: Checked for cancellation before each.

        Errors: `Cancelled` if the work was cancelled.
        """
        for path, parameters, answer in given:
            work.check()
            self.hold(path, parameters, answer)

    def json(self, missing: str, **more: Any) -> str:
        """Serialize all answers to JSON that may stand in a script element.

        Args:
            missing: The page's message for a request without an answer.
            more: What the page needs besides, by name.

        Errors: a ValueError if a number in a plain answer is not finite.
        """
        try:
            answers = json.dumps(self.by_key, separators=(",", ":"), allow_nan=False).encode()
        except ValueError as error:
            raise ValueError(
                "this model computes numbers that overflow to infinity. Open another model, or "
                "train this one again."
            ) from error
        told = {"missing": missing, "told": packed(answers), "numbers": self.numbers}
        return in_a_script(told | more)

    def _deduplicated(self, key: str, values: Float[Tensor, "*shape"]) -> dict[str, Any]:
        data, shape = packed(float32(values)), list(values.shape)
        first = self._keys.setdefault(data, key)
        return {"shape": shape, "data": data} if first == key else {"shape": shape, "as": first}


def key_of(path: str, given: Mapping[str, Any]) -> str:
    """Return the key of a request, as `keyOf` in source.js computes it.

    Errors: a ValueError for a number that JavaScript formats in another way.

    >>> key_of("steps/trace", {"mask": "causal", "beta": 1.0, "soft": True, "head": None})
    'steps/trace|beta=1|mask=causal|soft=true'
    """
    named = {name: _written(value) for name, value in sorted(given.items()) if value is not None}
    return "|".join([path, *(f"{name}={value}" for name, value in named.items())])


def packed(content: bytes) -> str:
    """Compress bytes and encode them as base64.

    >>> packed(bytes(1000))
    'eNpjYBgFo2AUDHcAAAPoAAE='
    """
    return base64.b64encode(zlib.compress(content, 9)).decode()


def in_a_script(value: Any) -> str:
    r"""Serialize a value to ASCII JSON that is safe inside a script element.

    Errors: a ValueError if a number is not finite.

    >>> in_a_script("<!-- \u2028")
    '"\\u003c!-- \\u2028"'
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _written(value: Any) -> str:
    """Format a parameter as JavaScript's `String` does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, float):
        return str(value)
    if value and not _PLAIN[0] <= abs(value) < _PLAIN[1]:
        raise ValueError(f"a report names answers by plain numbers, got {value}. Give a text.")
    return str(int(value)) if value.is_integer() else f"{Decimal(repr(value)):f}"


@dataclass(frozen=True, kw_only=True)
class ReportContent:
    """The subject of a report, given to each view's export.

    Attributes:
        studio: The studio that holds the model.
        text: The text.
        name: The studio's name of the text.
        lang: Language code.
        work: Receives progress.
    """

    studio: Studio
    text: str
    name: str
    lang: str
    work: Work


def report_note(content: ReportContent, name: str, **places: int) -> list[str]:
    """Return a note of the report, as a list of one sentence.

    Args:
        content: The report's content.
        name: Name of the sentence in `WORDS`, without its prefix.
        places: Values of its placeholders.
    """
    return [Say(content.lang)(WORDS[f"report.{name}"], **places)]


def float32(values: Float[Tensor, "*shape"]) -> bytes:
    """Serialize a tensor to little-endian float32, in row-major order.

    >>> import torch
    >>> float32(torch.tensor([[1.0, -2.0]])).hex(" ", 4)
    '0000803f 000000c0'
    """
    return values.detach().float().cpu().contiguous().numpy().astype("<f4").tobytes()
