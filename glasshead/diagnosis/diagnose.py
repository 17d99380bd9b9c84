"""Diagnose a mask: read it, infer its axes and convention, and collect the findings."""

from math import prod
from typing import Any

from glasshead.diagnosis.axes import AxisHints, Case, InferredAxes, infer_axes
from glasshead.diagnosis.conventions import STATED, meaning
from glasshead.diagnosis.conversion import Conversion, conversion, recognize
from glasshead.diagnosis.diagnosis import Diagnosis, preview
from glasshead.diagnosis.findings import alignment, empty_rows, future, numbers, padding, shapes
from glasshead.diagnosis.mask_input import (
    SEVERITIES,
    Finding,
    Layout,
    MaskInput,
    Meaning,
    marks_of,
    read,
)
from glasshead.recipe.masks import Mask
from glasshead.recipe.tile import Tile
from glasshead.recipe.validation import whole_number

_MOST_PAIRS = 2**30


def diagnose(
    mask: Any,
    *,
    queries: int | None = None,
    keys: int | None = None,
    convention: str | None = None,
    offset: int | None = None,
) -> Diagnosis:
    """Diagnose an attention mask written for any library, and report what is wrong with it.

    Every cell is examined, in the memory of a few copies of the mask.

    Args:
        mask: A tensor, an array or nested lists: `[keys]`, `[batch, keys]`, `[queries, keys]`,
            `[batch * heads, queries, keys]` or `[batch, heads, queries, keys]`; or a glasshead
            mask, which needs `queries` and `keys`.
        queries: The number of queries of the attention; those of the mask if not given.
        keys: The number of keys of the attention; those of the mask if not given.
        convention: The meaning of the numbers, where known, to be checked instead of guessed:
            "attend" (True = may attend: SDPA, ONNX, Keras, glasshead), "hidden" (True = hidden:
            torch.nn.MultiheadAttention), "additive" (floats to be added, -inf hides) or
            "tokenizer" (`[batch, keys]` of 1 = real and 0 = padding).
        offset: The position of query 0 among the keys; keys - queries if not given.

    Returns:
        Its meaning, the findings, and the equivalent glasshead mask.

    Errors: a TypeError for what is no mask, or numbers that are not whole; a ValueError for an
    unknown convention, ragged lists, a mask without cells, one that is spread over more than 2^30
    pairs, or a glasshead mask without its size.

    >>> import torch
    >>> import glasshead as gh
    >>> mask = torch.ones(5, 5, dtype=torch.bool).tril()
    >>> mask[1, 3] = True
    >>> print(gh.diagnose(mask).findings[0].sentence)
    The mask is causal but for 1 cell after the diagonal, where a query sees a later key:
    query 1, key 3; hide them, or use gh.causal().
    """
    hints = _hints(queries, keys, convention, offset)
    if isinstance(mask, Mask):
        inferred = _of_mask(mask, hints)
        reading = Meaning("attend", inferred.given.values)
    else:
        inferred = infer_axes(read(mask), hints)
        _check_size(inferred.layout)
        reading = meaning(inferred, hints.convention)
    findings = [*shapes(inferred), *reading.findings, *numbers(inferred, reading)]
    converted = None
    if reading.visible is not None:
        case = Case(inferred, reading, inferred.layout.pairs(reading.visible))
        structure = recognize(case)
        kinds = frozenset() if structure is None else structure.kinds
        for examine in (empty_rows, future, alignment, padding):
            findings += examine(case, kinds)
        converted = conversion(case, structure) if inferred.fits else None
    if isinstance(mask, Mask) and converted is not None and "dense(" in converted.line:
        converted = Conversion(mask, None, "mask = mask")
    return _diagnosis(inferred, reading, findings, converted)


def _diagnosis(
    inferred: InferredAxes, reading: Meaning, findings: list[Finding], found: Conversion | None
) -> Diagnosis:
    ordered = tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))
    cells = marks_of(inferred.given.values) if reading.visible is None else reading.visible
    seen = preview(inferred, cells, ordered, decided=reading.visible is not None)
    if found is None:
        return Diagnosis(reading.convention, ordered, None, None, None, None, seen)
    parts = found.mask, found.bias, found.line, found.sdpa
    return Diagnosis(reading.convention, ordered, *parts, seen)


def _check_size(layout: Layout) -> None:
    """Raise a ValueError where a mask has too many pairs to be examined."""
    spread = (*layout.leading, 1 if layout.by_key else layout.queries or 1, layout.keys)
    if prod(spread) > max(_MOST_PAIRS, prod(layout.shape)):
        raise ValueError(
            f"diagnose(mask) looks at every pair, at most {_MOST_PAIRS:,} where a mask is spread "
            f"over more than it has, and a mask of shape {list(layout.shape)} would be spread over "
            f"{prod(spread):,}: give fewer queries= or keys=, or leave them out."
        )


def _hints(queries: Any, keys: Any, convention: Any, offset: Any) -> AxisHints:
    if convention is not None and convention not in STATED:
        raise ValueError(
            f"diagnose(convention=…) takes one of {', '.join(STATED)}, and got {convention!r}: "
            "leave it out to have it guessed."
        )
    return AxisHints(
        queries=None if queries is None else whole_number(queries, "diagnose(queries=…)", least=1),
        keys=None if keys is None else whole_number(keys, "diagnose(keys=…)", least=1),
        convention=convention,
        offset=None if offset is None else whole_number(offset, "diagnose(offset=…)", least=None),
    )


def _of_mask(mask: Mask, hints: AxisHints) -> InferredAxes:
    """Evaluate a glasshead mask to a dense one."""
    if hints.queries is None or hints.keys is None:
        raise ValueError(
            f"diagnose(mask) takes queries= and keys= beside a glasshead mask such as {mask!r}, "
            "and got none: say how many there will be."
        )
    position = hints.keys - hints.queries if hints.offset is None else hints.offset
    tile = Tile(range(hints.queries), range(hints.keys), position)
    try:
        cells = mask.visible(tile)
        leading = cells.shape[:-2] or (1,)
        mask.check(tile, (*leading, *tile.shape))
        cells = cells.expand(*cells.shape[:-2], *tile.shape)
    except (RuntimeError, ValueError):
        raise ValueError(
            f"diagnose(mask) takes the size that the mask was made for, and {mask!r} does not fit "
            f"{hints.queries} queries and {hints.keys} keys."
        ) from None
    # Its axes are known: two are [queries, keys].
    shape = tuple(cells.shape)
    layout = Layout(shape, False, hints.queries, hints.keys, hints.offset)
    return InferredAxes(MaskInput(cells, "mask", typed=True), layout)
