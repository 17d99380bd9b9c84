"""How far back a rule looks."""

from glasshead.attention import Attention
from glasshead.recipe.biases import Bias
from glasshead.recipe.masks import Band, Mask
from glasshead.recipe.masks.base import AllOf


def reach_of(rule: Attention) -> int | None:
    """How many keys before its own a query of this rule sees at most; None: all, or unknown.

    What lies further back can be forgotten where the rule asks of a pair for its distance alone.

    >>> import glasshead as gh
    >>> reach_of(gh.Attention(mask=gh.causal() & gh.window(before=255)))
    255
    """
    if rule.mask is None or not asks_for_distances(rule):
        return None
    return min((b.before for b in bands_of(rule.mask) or () if b.before is not None), default=None)


def asks_for_distances(rule: Attention) -> bool:
    """Whether mask and bias of the rule read of a pair no more than its distance."""
    by_distance = rule.bias is None or (isinstance(rule.bias, Bias) and rule.bias.by_distance)
    return by_distance and (rule.mask is None or bands_of(rule.mask) is not None)


def bands_of(mask: Mask) -> tuple[Band, ...] | None:
    """The bands that a mask is the and of, each at the offset of the call; None: it is not."""
    if isinstance(mask, Band):
        return (mask,) if mask.offset is None else None
    if not isinstance(mask, AllOf):
        return None
    parts = [bands_of(part) for part in mask.masks]
    return None if None in parts else tuple(band for part in parts if part for band in part)
