"""Conversion: a mask as one of glasshead's, and the lines that make it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.diagnosis.axes import Case
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
    sdpa = _sdpa(case, structure, bias)
    if bias is not None:
        line = f"mask, bias = gh.from_additive({_with_infinities(case)})"
        return Conversion(dense(_axes(case, visible)), _axes(case, bias), line, sdpa)
    if structure is not None:
        return Conversion(structure.mask, None, f"mask = {structure.line}", sdpa)
    if not case.layout.by_key:
        return Conversion(dense(visible), None, _line(case), sdpa)
    rows = visible if visible.ndim > 1 else visible[None]
    mask, _ = from_huggingface(rows.expand(-1, case.keys))
    if mask is None:
        raise ValueError("a mask by key has no conversion.")
    return Conversion(mask, None, _line_by_key(case), sdpa)


def _bias(case: Case) -> Tensor | None:
    """What is added where nothing hides, in the mask's own axes; None where it is 0."""
    hiding, values = case.meaning.hiding, case.laid.given.values
    if hiding is None:
        return None
    values = values if values.is_floating_point() else values.float()
    bias = values.masked_fill(hiding.cells, 0.0)
    return bias if bool(bias.any()) else None


def _axes(case: Case, values: Tensor) -> Tensor:
    """Values of a mask by key, with the axes at which they broadcast to the scores."""
    if not case.layout.by_key:
        return values
    return values[:, None, None, :] if values.ndim > 1 else values[None, :]


def _with_axes(case: Case, line: str) -> str:
    """The same in Python."""
    if not case.layout.by_key:
        return line
    line = f"({line})" if line[0] == "~" or line.endswith("== 0") else line
    return f"{line}[:, None, None, :]" if len(case.layout.shape) > 1 else f"{line}[None, :]"


def _line(case: Case) -> str:
    """Where the last two axes are queries and keys."""
    source, values, hiding = case.laid.given.source, case.laid.given.values, case.meaning.hiding
    if hiding is not None:
        if values.ndim == 4 and hiding.large is None:
            return f"mask, _ = gh.from_huggingface({source})"
        return f"mask = gh.dense({source} == 0)"
    return f"mask = gh.dense({_shown(case)})"


def _line_by_key(case: Case) -> str:
    source, values = case.laid.given.source, case.laid.given.values
    rows = source if values.ndim > 1 else f"{source}[None]"
    if values.shape[-1] < case.keys:
        rows = f"{rows}.expand(-1, {case.keys})"
    if case.meaning.hiding is not None:
        return f"mask, _ = gh.from_huggingface({rows} == 0)"
    if case.meaning.shows:
        return f"mask, _ = gh.from_huggingface({rows})"
    hidden = rows if values.dtype == torch.bool else f"{rows}.bool()"
    return f"mask, _ = gh.from_torch_mha(key_padding_mask={hidden})"


def _shown(case: Case) -> str:
    """Python for which cells are visible, of a mask of two values."""
    source, boolean = case.laid.given.source, case.laid.given.values.dtype == torch.bool
    if case.meaning.shows:
        return source if boolean else f"{source}.bool()"
    return f"~{source}" if boolean else f"{source} == 0"


def _with_infinities(case: Case) -> str:
    """Python for an additive mask that hides by -inf alone."""
    source, hiding = case.laid.given.source, case.meaning.hiding
    floats = source if case.laid.given.values.is_floating_point() else f"{source}.float()"
    if hiding is None or not (hiding.lowest or hiding.large is not None):
        return _with_axes(case, floats)
    low = f"{source} == torch.finfo({source}.dtype).min"
    if hiding.large is not None:
        low = f"{source} <= {hiding.large!r}"
    return _with_axes(case, f"{floats}.masked_fill({low}, -torch.inf)")


def _sdpa(case: Case, structure: Structure | None, bias: Tensor | None) -> str | None:
    hiding = case.meaning.hiding
    if bias is None and _is_causal(case, structure):
        return _called("is_causal=True")
    if hiding is not None and hiding.large is None:
        # SDPA takes floats of the inputs' type, and those that somebody chose are likely these.
        as_it_is = case.laid.given.source == "mask" and not case.layout.by_key
        given = _with_axes(case, case.laid.given.source)
        return None if as_it_is else _called(f"attn_mask={given}.to(query.dtype)")
    if bias is not None:
        return _called(f"attn_mask={_with_infinities(case)}.to(query.dtype)")
    shown = _shown(case) if hiding is None else f"{case.laid.given.source} == 0"
    shown = _with_axes(case, shown)
    return None if shown == "mask" else _called(f"attn_mask={shown}")


def _is_causal(case: Case, structure: Structure | None) -> bool:
    """Whether it is the mask that torch calls causal, which begins at the top left."""
    square = case.queries == case.keys and case.layout.position == 0
    return square and structure is not None and structure.line == "gh.causal()"


def _called(argument: str) -> str:
    return f"F.scaled_dot_product_attention(query, key, value, {argument})"
