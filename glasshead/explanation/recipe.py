"""Descriptions of a recipe, its masks and biases, in words and as plain data."""

from typing import Any

from torch import Tensor, nn

from glasshead.explanation.subject import Subject
from glasshead.explanation.translations import Say
from glasshead.recipe.biases import ALiBi, Bias, RelativeBias
from glasshead.recipe.masks import Band, Mask
from glasshead.recipe.masks.base import AllOf
from glasshead.recipe.masks.kinds import Dense, Documents, LengthMask


def recipe_of(subject: Subject) -> dict[str, Any]:
    """Return the recipe of a trace as names, formulas and numbers."""
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
    """Return the formula of a score or normalizer; its class name where it has none."""
    formula = getattr(part, "formula", None)
    return formula if isinstance(formula, str) else type(part).__name__


def part_name(bias: nn.Module | Tensor) -> str:
    """Return the name of a bias: its class, or the shape of its tensor.

    >>> import torch
    >>> part_name(torch.zeros(3, 5))
    'tensor[3, 5]'
    """
    if isinstance(bias, Tensor):
        return f"tensor{list(bias.shape)}"
    return repr(bias)


def mask_told(mask: Mask, say: Say) -> tuple[str, ...]:
    """Describe what a mask shows; masks combined by & are described one by one."""
    if isinstance(mask, AllOf):
        return tuple(sentence for part in mask.masks for sentence in mask_told(part, say))
    return (_mask_told(mask, say),)


def _mask_told(mask: Mask, say: Say) -> str:
    if type(mask) is Band and mask.before is None and mask.after == 0:
        return say(
            "The mask is causal: a word sees itself and the words before it, and none of those "
            "after it. A model that writes text word by word needs this: the later words do not "
            "exist yet, and in training it must not peek at them."
        )
    if type(mask) is Band:
        return say(
            "The mask is a window: a word sees itself and its neighbours (before it: {before}; "
            "after it: {after}). What matters is often near, and a long text then takes much less "
            "work.",
            before=say("all") if mask.before is None else mask.before,
            after=say("all") if mask.after is None else mask.after,
        )
    if type(mask) is LengthMask and mask.name == "prefix":
        return say(
            "The mask is a prefix: every word sees the first words, those of the prefix. They are "
            "known from the start, as a question is known before its answer."
        )
    if type(mask) is LengthMask:
        return say(
            "The mask hides padding: the sentences of one batch are filled up to the same length, "
            "and the filler must not be looked at."
        )
    if type(mask) in _SENTENCES:
        return say(_SENTENCES[type(mask)])
    return say("The mask {mask} says which words may see each other.", mask=repr(mask))


def bias_told(bias: Bias | Tensor, say: Say) -> str:
    """Describe the effect of a bias on the scores."""
    return say(_SENTENCES.get(type(bias), _ANY_BIAS))


_ = str  # marks a sentence for the collectors of translations

_SENTENCES = {
    Documents: _(
        "The mask keeps documents apart: several texts stand in one row, and a word sees only its "
        "own."
    ),
    Dense: _("The mask was given pair by pair: it says for each word which others it may see."),
    ALiBi: _(
        "The ALiBi bias lowers each score, and the more so the farther the key is from the query: "
        "nearby words are preferred, and word order counts."
    ),
    RelativeBias: _(
        "The relative bias adds to every score a learned number that depends only on how far the "
        "key stands before or after the query: word order counts."
    ),
}
_ANY_BIAS = _(
    "A bias is added to every score: a number for each pair of words that does not depend on their "
    "vectors."
)
