"""Tours of the studio's page: stops in a JSON file, each a place and a sentence about it."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from glasshead.drawing.printable import printable
from glasshead.files import read_object
from glasshead.message import Message


def built_in() -> dict[str, Any]:
    """Return the tour of the package, of ten stops, of which a page skips those that it lacks.

    >>> len(built_in()["stops"])
    10
    """
    return json.loads(files("glasshead.studio").joinpath("tour.json").read_text(encoding="utf-8"))


def read_tour(file: Path) -> dict[str, Any]:
    """Read a tour from a file.

    Errors: a ValueError in one sentence if it is not a tour; an OSError if it cannot be read.
    """
    tour = read_object(file, "omit --tour")
    part = fault_of(tour)
    if part is None:
        return tour
    raise ValueError(
        Message(
            "{file} must be a tour, a JSON file of stops with a place and a sentence each, but "
            "{part} is missing or wrong.",
            file=printable(str(file)),
            part=part,
        )
    )


def fault_of(tour: Any) -> str | None:
    """Return the first part that is missing or wrong, or None.

    >>> fault_of({"stops": [{"place": "#steps", "says": {"en": ""}}]})
    'stops[0].says'
    """
    stops = tour.get("stops") if isinstance(tour, dict) else None
    if not isinstance(stops, list) or not stops:
        return "stops"
    for at, stop in enumerate(stops):
        known = stop if isinstance(stop, dict) else {}
        place, says = known.get("place"), known.get("says")
        if not isinstance(place, str) or not place.startswith("#"):
            return f"stops[{at}].place"
        panel = known.get("panel", 1)
        if type(panel) is not int or panel < 1:
            return f"stops[{at}].panel"
        said = list(says.values()) if isinstance(says, dict) else [says]
        if not said or not all(isinstance(each, str) and each.strip() for each in said):
            return f"stops[{at}].says"
    return None
