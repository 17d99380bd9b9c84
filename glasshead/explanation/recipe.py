"""The recipe of an attention, as plain data."""

from typing import Any

from torch import Tensor, nn

from glasshead.explanation.subject import Subject


def recipe_of(subject: Subject) -> dict[str, Any]:
    """The choices that make the attention of a trace, each as a name, a formula or a number."""
    problem = subject.problem
    return {
        "score": type(problem.score).__name__,
        "score_formula": formula_of(problem.score),
        "beta": subject.beta,
        "softcap": problem.softcap,
        "biases": [part_name(bias) for bias in problem.biases],
        "mask": None if problem.mask is None else repr(problem.mask),
        "normalizer": type(problem.normalizer).__name__,
        "normalizer_formula": formula_of(problem.normalizer),
        "dropout": problem.dropout,
        "offset": problem.offset,
        "heads": subject.heads,
        "key_heads": problem.key.shape[-3],
        "width": problem.query.shape[-1],
        "value_width": problem.value.shape[-1],
        "dtype": str(problem.query.dtype).removeprefix("torch."),
    }


def formula_of(part: nn.Module) -> str:
    """The formula that a score or normalizer gives itself; its name where it gives none."""
    formula = getattr(part, "formula", None)
    return formula if isinstance(formula, str) else type(part).__name__


def part_name(bias: nn.Module | Tensor) -> str:
    """A bias in a word: its class, or the shape of its tensor.

    >>> import torch
    >>> part_name(torch.zeros(3, 5))
    'tensor[3, 5]'
    """
    if isinstance(bias, Tensor):
        return f"tensor{list(bias.shape)}"
    return repr(bias)
