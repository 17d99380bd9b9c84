"""Told: the roles and all scores as JSON."""

import json
import math
from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor

from glasshead.cli.finding_roles.reading import Found
from glasshead.tasks.readers.base import Reader


def told(reader: Reader, tests: list[Found]) -> str:
    """JSON with an entry for each text: layers, roles, scores, and what an even look would score.

    A score that no query counts for is null, and so is the role of a head that has none.
    """
    entries = [
        {
            "text": test.name,
            "tokens": test.tokens,
            "layers": test.roles.names,
            "roles": test.roles.roles,
            "scores": _numbers(test.roles.scores),
            "even": _numbers(test.roles.even),
            "thresholds": dict(test.roles.thresholds),
        }
        for test in tests
    ]
    return json.dumps({reader.kind: reader.name, "tests": entries}, indent=1) + "\n"


def _numbers(values: Mapping[str, Float[Tensor, "layers heads"]]) -> dict[str, Any]:
    return {
        role: [[None if math.isnan(x) else x for x in row] for row in rows.tolist()]
        for role, rows in values.items()
    }
