"""Attention masks: which query-key pairs are visible."""

from glasshead.recipe.masks.base import Mask, combined
from glasshead.recipe.masks.convert import from_additive, from_huggingface, from_torch_mha
from glasshead.recipe.masks.documents import documents
from glasshead.recipe.masks.kinds import (
    Band,
    as_mask,
    causal,
    dense,
    padding,
    prefix,
    window,
)

__all__ = [
    "Band",
    "Mask",
    "as_mask",
    "causal",
    "combined",
    "dense",
    "documents",
    "from_additive",
    "from_huggingface",
    "from_torch_mha",
    "padding",
    "prefix",
    "window",
]
