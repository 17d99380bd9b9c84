"""Masks: which pairs of a query and a key may see each other."""

from glasshead.recipe.masks.band import Band, causal, window
from glasshead.recipe.masks.converters import from_additive, from_huggingface, from_torch_mha
from glasshead.recipe.masks.dense import as_mask, dense
from glasshead.recipe.masks.documents import documents
from glasshead.recipe.masks.mask import Mask, combined
from glasshead.recipe.masks.padding import padding, prefix

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
