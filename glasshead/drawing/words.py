"""Words: the few phrases that drawings say themselves."""

import string
from collections.abc import Callable
from dataclasses import dataclass, fields

_ = str  # marks a phrase for the collectors of translations


@dataclass(frozen=True, kw_only=True)
class Words:
    """The phrases that blocks add to what they are given, English unless told otherwise.

    A phrase with braces is a template; a translation keeps the names in the braces. They are
    worded so that no word has to agree with a number, which differs from language to language.

    Raises:
        TypeError: a phrase is not a string.
        ValueError: a template has other names in its braces than the English one.

    Example:
        >>> Words().columns_left_out.format(count=12)
        'Columns left out: 12.'
        >>> Words(hidden="oculto").hidden
        'oculto'
        >>> catalogue = {"hidden": "gizli"}
        >>> Words.translated(lambda phrase: catalogue.get(phrase, phrase)).hidden
        'gizli'
    """

    columns_left_out: str = _("Columns left out: {count}.")
    rows_left_out: str = _("Rows left out: {count}.")
    pooled_columns: str = _("Each cell is the sum over {columns} columns.")
    pooled_rows: str = _("Each cell is the mean over {rows} rows.")
    pooled_both: str = _("Each cell is the sum over {columns} columns, averaged over {rows} rows.")
    counted_from_zero: str = _("Places are counted from 0.")
    hidden: str = _("hidden")
    scale: str = _("Colours from {low} to {high}")
    count_of_numbers: str = _("{count} numbers")
    table: str = _("Table")
    heat_map: str = _("Heat map")
    formula: str = _("Formula")

    def __post_init__(self) -> None:
        for field in fields(self):
            phrase = getattr(self, field.name)
            if not isinstance(phrase, str):
                raise TypeError(
                    f"Words({field.name}=...) expects a string, got {type(phrase).__name__}; "
                    "pass the translated phrase."
                )
            expected, found = _names(str(field.default)), _names(phrase)
            if expected != found:
                raise ValueError(
                    f"Words({field.name}=...) expects the names {sorted(expected)} in braces, "
                    f"got {phrase!r}; keep the names in braces untranslated."
                )

    @classmethod
    def translated(cls, translate: Callable[[str], str]) -> "Words":
        """Return the words with each English phrase passed through `translate`, as of gettext."""
        return cls(**{field.name: translate(str(field.default)) for field in fields(cls)})


def _names(template: str) -> set[str]:
    """Return the names in the braces of a template; a broken one has an impossible name."""
    try:
        return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    except ValueError:
        return {"a brace that is not closed"}


ENGLISH = Words()
