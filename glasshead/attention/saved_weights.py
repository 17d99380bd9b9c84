"""A lazy matrix of weights in a file: what it is computed from."""

import os

from torch import Tensor

from glasshead.attention.files import read, understood, write
from glasshead.attention.known import KnownRows
from glasshead.attention.saving import described, restored
from glasshead.recipe.masks import Mask
from glasshead.recipe.normalizers import Normalizer
from glasshead.recipe.problem import Problem
from glasshead.recipe.scores import Score
from glasshead.recipe.validation import check_inputs

_KIND = "weights"
_TENSORS = ("query", "key")
_ROWS = ("largest_score", "largest_weight")
_RECIPE = ("score", "softcap", "biases", "mask", "normalizer", "offset", "axes")


def save(
    file: str | os.PathLike[str], problem: Problem, logsumexp: Tensor, rows: KnownRows | None
) -> None:
    """Write a problem, less its values, and what is known of its rows."""
    tensors = {name: getattr(problem, name) for name in _TENSORS}
    tensors["logsumexp"] = logsumexp
    if rows is not None and rows.weight is not None:
        tensors |= dict(zip(_ROWS, rows, strict=True))
    told = {name: described(getattr(problem, name), name, tensors) for name in _RECIPE}
    write(file, _KIND, {"recipe": told}, tensors)


def load(file: str | os.PathLike[str]) -> tuple[Problem, Tensor, KnownRows | None]:
    """The problem, with its keys for values, the logsumexp, and what else is known of its rows.

    Files of earlier versions have the logsumexp alone.
    """
    description, tensors = read(file, _KIND)
    with understood(file, _KIND):
        told = description["recipe"]
        recipe = {name: restored(told[name], name, tensors) for name in _RECIPE}
        query, key = (tensors[name] for name in _TENSORS)
        problem = Problem(query=query, key=key, value=key, dropout=0.0, **recipe)
        rows = KnownRows(*(tensors[name] for name in _ROWS)) if _ROWS[0] in tensors else None
        _check(problem, tensors["logsumexp"], *(rows or ()))
        return problem, tensors["logsumexp"], rows


def _check(problem: Problem, *of_rows: Tensor | None) -> None:
    """Raise where the parts do not fit each other."""
    parts = (problem.score, Score), (problem.normalizer, Normalizer), (problem.mask, Mask | None)
    for part, kind in parts:
        if not isinstance(part, kind):
            raise TypeError(f"a {type(part).__name__} is not a {kind}")
    check_inputs(problem.query, problem.key, problem.value)
    problem.check()
    for numbers in of_rows:
        if numbers is None or numbers.shape != problem.query.shape[:-1]:
            raise ValueError("what is known of rows is not one number a query")
