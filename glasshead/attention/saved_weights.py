"""A lazy matrix of weights in a file: what it is computed from."""

import os

from torch import Tensor

from glasshead.attention.files import read, understood, write
from glasshead.attention.saving import described, restored
from glasshead.recipe.checks import check_inputs
from glasshead.recipe.masks import Mask
from glasshead.recipe.normalizers import Normalizer
from glasshead.recipe.problem import Problem
from glasshead.recipe.scores import Score

_KIND = "weights"
_TENSORS = ("query", "key")
_RECIPE = ("score", "softcap", "biases", "mask", "normalizer", "offset", "axes")


def save(file: str | os.PathLike[str], problem: Problem, logsumexp: Tensor) -> None:
    """Write a problem, less its values, and the logsumexp of its rows."""
    tensors = {name: getattr(problem, name) for name in _TENSORS}
    tensors["logsumexp"] = logsumexp
    told = {name: described(getattr(problem, name), name, tensors) for name in _RECIPE}
    write(file, _KIND, {"recipe": told}, tensors)


def load(file: str | os.PathLike[str]) -> tuple[Problem, Tensor]:
    """The problem, with its keys for values, and the logsumexp."""
    description, tensors = read(file, _KIND)
    with understood(file, _KIND):
        told = description["recipe"]
        recipe = {name: restored(told[name], name, tensors) for name in _RECIPE}
        query, key = (tensors[name] for name in _TENSORS)
        problem = Problem(query=query, key=key, value=key, dropout=0.0, **recipe)
        _check(problem, tensors["logsumexp"])
        return problem, tensors["logsumexp"]


def _check(problem: Problem, logsumexp: Tensor) -> None:
    """Raise where the parts do not fit each other."""
    parts = (problem.score, Score), (problem.normalizer, Normalizer), (problem.mask, Mask | None)
    for part, kind in parts:
        if not isinstance(part, kind):
            raise TypeError(f"a {type(part).__name__} is not a {kind}")
    check_inputs(problem.query, problem.key, problem.value)
    problem.check()
    if logsumexp.shape != problem.query.shape[:-1]:
        raise ValueError("logsumexp is not one number a query")
