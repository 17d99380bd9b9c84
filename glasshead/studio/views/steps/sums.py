"""Sums: how the numbers of each matrix are made, as lines with places for them."""

import math
from typing import Any

from glasshead.explanation.choices import NORMALIZERS
from glasshead.studio.views.steps.asked import Normalizer, StepsAsked

# What stands in a place such as {score}, the page knows by that name (steps-sums.js).
_OWN = "{letter}{number}({word}) = {x}({word}) = {value}"
_SOFTMAX = (
    "Σ = {powers} = {total}",
    "p = {power} / Σ = {share} / {total} = {value}",
)
_WEIGHTS: dict[Normalizer, tuple[str, ...]] = {
    "softmax": _SOFTMAX,
    "softmax-one": _SOFTMAX,
    "hardmax": (
        "max s = max({seen}) = {largest}",
        "s = {score},   p = {value}",
    ),
    "sparsemax": (
        "τ = ({above} − 1) / {count} = {threshold}",
        "p = max({score} − {subtracted}, 0) = {value}",
    ),
    "entmax15": ("τ = {threshold}", "p = max({score}/2 − {subtracted}, 0)² = {value}"),
    "sigmoid": ("p = 1 / (1 + {inverse}) = {value}",),
}
_TOLD: dict[Normalizer, str] = {
    "softmax-one": "steps.sink",
    "sparsemax": "steps.sparse",
    "entmax15": "steps.sparse",
}


def decimal(number: float) -> str:
    """A number with at most four decimals.

    >>> decimal(1.0), decimal(3**-0.5)
    ('1', '0.5774')
    """
    return f"{number:.4f}".rstrip("0").rstrip(".")


def sums(asked: StepsAsked, beta: float, normalizer: Normalizer) -> dict[str, dict[str, Any]]:
    """For each matrix its formula, the lines of the sum behind a cell, and the name of its note.

    What is hidden has lines of its own. A formula is a text, or the name of one.

    >>> made = sums(StepsAsked(mask="causal"), 1.0, "softmax")
    >>> made["scores"]["lines"], made["masked.hidden"]["note"]
    (['s = q·k = {products} = {value}'], 'steps.hides.causal')
    """
    mask = asked.mask
    hard = "steps.hard" if asked.chosen_beta == "inf" else None
    return {
        "queries": _sum("Q", _OWN, note="steps.embedding"),
        "keys": _sum("Kᵀ", _OWN, note="steps.embedding"),
        "values": _sum("V", _OWN, note="steps.embedding"),
        "scores": _sum("Q·Kᵀ", "s = q·k = {products} = {value}"),
        "scaled": _sum(f"× β = {decimal(beta)}", "β·s = {beta}·{unscaled} = {value}", note=hard),
        "masked": _sum(
            f"steps.mask.{mask}",
            "s = {scaled}",
            note="steps.seen.none" if mask == "none" else "steps.seen",
        ),
        "masked.hidden": _sum("", "s = {scaled} → −∞", note=f"steps.hides.{mask}"),
        "weights": _sum(NORMALIZERS[normalizer], *_WEIGHTS[normalizer], note=_TOLD.get(normalizer)),
        "weights.hidden": _sum("", "s → {score},   p = {value}", note="steps.nothing"),
        "context": _sum("P·V", "c{number} = Σ p·v{number} = {shares} = {value}"),
    }


def scales(matrices: dict[str, list[list[float]]]) -> list[dict[str, Any]]:
    """Which matrices share a scale of colours, and what has its last colour.

    >>> scales({"queries": [[0.5, -2.0]], "scores": [[4.25]]})[0]["top"]
    2.0
    """
    vectors, scores = (_largest(matrices[name]) for name in ("queries", "scores"))
    return [
        {"names": ["queries", "keys", "values", "context"], "top": vectors},
        {"names": ["scores", "scaled", "masked"], "top": scores},
        {"names": ["weights"], "top": 1},
    ]


def thresholds(matrices: dict[str, Any], normalizer: Normalizer) -> list[float] | None:
    """What sparsemax and 1.5-entmax subtract in each row, from its scores and its weights."""
    if normalizer not in _THRESHOLDS:
        return None
    rows = zip(matrices["masked"], matrices["weights"], strict=True)
    return [_THRESHOLDS[normalizer](scores, weights) for scores, weights in rows]


def _sum(formula: str, *lines: str, note: str | None = None) -> dict[str, Any]:
    given = {"formula": formula, "lines": list(lines), "note": note}
    return {name: value for name, value in given.items() if value}


def _largest(rows: list[list[float]]) -> float:
    return max(abs(number) for row in rows for number in row)


def _of_sparsemax(scores: list[float], weights: list[float]) -> float:
    above = [score for score, weight in zip(scores, weights, strict=True) if weight > 0]
    return (math.fsum(above) - 1) / len(above)


def _of_entmax15(scores: list[float], weights: list[float]) -> float:
    best = max(range(len(weights)), key=lambda place: weights[place])
    return scores[best] / 2 - math.sqrt(weights[best])


_THRESHOLDS = {"sparsemax": _of_sparsemax, "entmax15": _of_entmax15}
