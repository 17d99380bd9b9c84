"""Panels, the parts of a view of the page: each has its strings and the routes of its data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glasshead.studio.stored_answers import ReportContent, StoredAnswers
from glasshead.studio.subject import Kind

if TYPE_CHECKING:
    from glasshead.studio.routes import Routes


def _no_routes(_routes: "Routes") -> None:
    """Add no route."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A part of a view.

    Attributes:
        words: Its strings by name, in English and marked by `_` for translation. The page shows
            them by `t("name")`.
        routes: Adds the routes of its data to those of the view.
    """

    words: Mapping[str, str]
    routes: Callable[["Routes"], None] = _no_routes


@dataclass(frozen=True)
class View:
    """A view of the page.

    Its script is `static/views/NAME.js`, which `static/views/table.js` lists, its style sheet is
    `static/views/NAME.css`, and the string `NAME.none` says why it is unavailable.

    Attributes:
        name: Its name in the address and under `/api/`.
        kinds: The subjects of a studio that it can show; None: no model.
        panels: Its parts.
        export: Adds what a report holds of it, and returns notes on what that leaves out; None
            if a report has no such view.
    """

    name: str
    kinds: tuple[Kind | None, ...]
    panels: tuple[Panel, ...]
    export: Callable[[StoredAnswers, ReportContent], list[str]] | None = None
