"""Conversion: a mask as one of glasshead's, and the lines that make it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.diagnosis.case import Case
from glasshead.diagnosis.structures import Structure
from glasshead.recipe.masks import Mask, dense, from_huggingface


@dataclass(frozen=True, eq=False)
class Conversion:
    """A mask as one of glasshead's.

    Attributes:
        mask: The mask.
        bias: The finite numbers that are added to the scores, or None where all are 0.
        line: Python that makes it of `mask`.
        sdpa: Python that gives it to torch's `scaled_dot_product_attention`, where that takes it in
            another form than it was given, or None.
    """

    mask: Mask
    bias: Float[Tensor, "..."] | None
    line: str
    sdpa: str | None = None


def conversion(case: Case, structure: Structure | None) -> Conversion:
    """A mask whose meaning is known, by the rule that it equals, or cell by cell."""
    visible, bias = case.meaning.visible, _bias(case)
    if visible is None:
        raise ValueError("a mask without a meaning has no conversion.")
    if structure is not None and bias is None:
        return Conversion(structure.mask, None, f"mask = {structure.line}", _sdpa(case, structure))
    if case.layout.by_key:
        rows = visible if visible.ndim > 1 else visible[None]
        mask, _ = from_huggingface(rows)
        if mask is None:
            raise ValueError("a mask by key has no conversion.")
    else:
        mask = dense(visible)
    return Conversion(mask, bias, _line(case, bias), _sdpa(case, structure))


def _bias(case: Case) -> Tensor | None:
    """What is added where nothing hides; None where it is 0."""
    hiding = case.meaning.hiding
    if hiding is None:
        return None
    bias = case.laid.given.values.masked_fill(hiding.cells, 0.0)
    return bias if bool(bias.any()) else None


def _line(case: Case, bias: Tensor | None) -> str:
    source, values = case.laid.given.source, case.laid.given.values
    if bias is not None:
        return f"mask, bias = {_with_bias(case)}"
    boolean, hiding = values.dtype == torch.bool, case.meaning.hiding
    if case.layout.by_key:
        return _line_by_key(case)
    if hiding is not None or values.min() < 0:
        if values.ndim == 4 and hiding is not None and hiding.large is None:
            return f"mask, _ = gh.from_huggingface({source})"
        return f"mask = gh.dense({source} == 0)"
    if case.meaning.shows:
        return f"mask = gh.dense({source})" if boolean else f"mask = gh.dense({source}.bool())"
    return f"mask = gh.dense(~{source})" if boolean else f"mask = gh.dense({source} == 0)"


def _line_by_key(case: Case) -> str:
    source, values = case.laid.given.source, case.laid.given.values
    rows = source if values.ndim > 1 else f"{source}[None]"
    if case.meaning.hiding is not None:
        return f"mask, _ = gh.from_huggingface({rows} == 0)"
    if case.meaning.shows:
        return f"mask, _ = gh.from_huggingface({rows})"
    hidden = rows if values.dtype == torch.bool else f"{rows}.bool()"
    return f"mask, _ = gh.from_torch_mha(key_padding_mask={hidden})"


def _with_bias(case: Case) -> str:
    source, hiding = case.laid.given.source, case.meaning.hiding
    if hiding is None or not (hiding.lowest or hiding.large is not None):
        return f"gh.from_additive({source})"
    if hiding.large is not None:
        low = f"{source} <= {hiding.large!r}"
        return f"gh.from_additive({source}.masked_fill({low}, -torch.inf))"
    if case.laid.given.values.ndim == 4:
        return f"gh.from_huggingface({source})"
    low = f"{source} == torch.finfo({source}.dtype).min"
    return f"gh.from_additive({source}.masked_fill({low}, -torch.inf))"


def _sdpa(case: Case, structure: Structure | None) -> str | None:
    source, values = case.laid.given.source, case.laid.given.values
    if structure is not None and structure.line == "gh.causal()" and case.queries == case.keys:
        return _called("is_causal=True")
    if case.meaning.hiding is not None:
        return _called(f"attn_mask={source} == 0") if case.meaning.hiding.large else None
    shown = source if values.dtype == torch.bool else f"{source}.bool()"
    shown = shown if case.meaning.shows else f"~{shown}"
    if case.layout.by_key and values.ndim == 2:
        shown = f"({shown})[:, None, None, :]" if shown[0] == "~" else f"{shown}[:, None, None, :]"
    return None if shown == "mask" else _called(f"attn_mask={shown}")


def _called(argument: str) -> str:
    return f"F.scaled_dot_product_attention(query, key, value, {argument})"
