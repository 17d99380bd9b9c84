"""Settings that pydantic validates: a decorator of dataclasses, and its findings as sentences."""

import operator
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, dataclass_transform

from glasshead.extras import missing_for
from glasshead.message import Message, _
from glasshead.models.config import closest
from glasshead.recipe.validation import shown

try:
    from pydantic import BeforeValidator, ConfigDict, Field, ValidationError
    from pydantic.dataclasses import dataclass
except ModuleNotFoundError as error:
    raise missing_for("reading the settings of a run", error) from error


def _plain(value: Any) -> Any:
    """Convert whole numbers of other types, such as NumPy's, to those that JSON can hold."""
    try:
        return value if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return value


def _name(value: Any) -> Any:
    """Convert the number of a column to its name."""
    return str(value) if type(value) is int else value


Whole = Annotated[int, BeforeValidator(_plain)]
"""A whole number; True, "3" and 3.0 are none."""

Vocabulary = Annotated[Whole, Field(ge=1, le=2**20)]
"""Maximum vocabulary size; tokenizers allocate memory for all of it."""
Generated = Annotated[Whole, Field(ge=1, le=10**6)]
"""Number of generated examples, which are held in memory."""
BatchTokens = Annotated[Whole, Field(ge=1, le=2**24)]
"""Maximum tokens of a batch, including padding."""
Column = Annotated[str, BeforeValidator(_name), Field(description="the name of a column")]
Share = Annotated[float, Field(gt=0, lt=1, description="a share between 0 and 1, as in 0.1")]
Texts = Annotated[tuple[str, ...], Field(strict=False, description="a list of texts")]

_CONFIG = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")
T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True)
def validated(kind: type[T]) -> type[T]:
    """Make a class a frozen dataclass whose fields are validated whenever one is created.

    Errors give the `description` of a field as what it must be; without one they give its bounds.

    Errors: creating one raises a TypeError or ValueError in one sentence for the first field that
    is invalid.

    >>> @validated
    ... class Sizes:
    ...     width: Annotated[Whole, Field(ge=1)] = 8
    >>> Sizes(width=0)
    Traceback (most recent call last):
    ValueError: width must be a whole number of at least 1, got 0.
    """
    made: Any = dataclass(kind, frozen=True, kw_only=True, config=_CONFIG)
    validate = made.__init__

    def create(self: Any, **values: Any) -> None:
        try:
            validate(self, **values)
        except ValidationError as error:
            raise _refusal(made, values, error.errors()[0]) from None

    made.__init__ = create
    return made


def _refusal(kind: Any, values: Mapping[str, Any], finding: Mapping[str, Any]) -> Exception:
    """Return the error for a finding: of `__post_init__` its own, of a field a sentence."""
    if "error" in finding.get("ctx", {}):
        return finding["ctx"]["error"]
    name = str(finding["loc"][0])
    fields = kind.__pydantic_fields__
    if name not in fields:
        return TypeError(f"{kind.__name__} has no {name!r}{closest(name, fields)}")
    raised = TypeError if finding["type"].endswith("_type") else ValueError
    got = shown(values[name]).removeprefix(f"{type(values[name]).__name__} ")
    if fields[name].description:
        return raised(f"{name} must be {fields[name].description}, got {got}.")
    least = next((each.ge for each in fields[name].metadata if hasattr(each, "ge")), None)
    if finding["type"] == "int_type" and least is not None:
        finding = {"type": "greater_than_equal", "input": 0, "ctx": {"ge": least}}
    return raised(sentence(finding, name, got))


def sentence(finding: Mapping[str, Any], name: str, got: str) -> Message:
    """Say what is expected, by the kind of a finding of pydantic's.

    Args:
        finding: One of `ValidationError.errors()`.
        name: Name of the value.
        got: The value, as text.

    >>> finding = {"type": "less_than", "input": 3, "ctx": {"lt": 1.0}}
    >>> sentence(finding, "share", "3")
    'share must be a number below 1.0, got 3.'
    """
    of = finding.get("ctx", {})
    kind = finding.get("type", "")
    table = _OF_WHOLE if isinstance(finding.get("input"), int) and kind in _OF_WHOLE else _FINDINGS
    return Message(
        table.get(kind, _OTHER),
        name=name,
        got=got,
        bound=next((of[bound] for bound in ("ge", "le", "lt", "max_length") if bound in of), ""),
        choices=of.get("expected", "").replace(" or ", ", ").replace("'", ""),
    )


_WHOLE = _("{name} must be a whole number, got {got}.")
_OTHER = _("{name} cannot be {got}.")
_NUMBER = _("{name} must be a number, got {got}.")
_FINDINGS = {
    "json_invalid": _("the request must be JSON."),
    "missing": _("{name} is missing."),
    "string_type": _("{name} must be a text, got {got}."),
    "bool_type": _("{name} must be true or false, got {got}."),
    "greater_than_equal": _("{name} must be a number of at least {bound}, got {got}."),
    "less_than_equal": _("{name} must be a number of at most {bound}, got {got}."),
    "less_than": _("{name} must be a number below {bound}, got {got}."),
    "literal_error": _("{name} must be one of {choices}, got {got}."),
    "string_too_long": _("{name} must have at most {bound} characters."),
    "int_parsing": _WHOLE,
    "int_type": _WHOLE,
    "int_from_float": _WHOLE,
    "int_parsing_size": _WHOLE,
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "finite_number": _NUMBER,
}
_OF_WHOLE = {
    "greater_than_equal": _("{name} must be a whole number of at least {bound}, got {got}."),
    "less_than_equal": _("{name} must be a whole number of at most {bound}, got {got}."),
}
