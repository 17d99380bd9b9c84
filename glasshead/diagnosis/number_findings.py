"""Checks of the numbers and the dtype of a mask."""

from collections.abc import Iterator

import torch
from torch import Tensor

from glasshead.diagnosis.axes import InferredAxes
from glasshead.diagnosis.findings import listed
from glasshead.diagnosis.mask_input import (
    FLOATS,
    Finding,
    Hiding,
    Meaning,
    places,
    total,
)
from glasshead.message import Message


def numbers(inferred: InferredAxes, meaning: Meaning) -> Iterator[Finding]:
    """Find faults of a mask's numbers and dtype."""
    values = inferred.given.values
    if not values.is_floating_point():
        yield from _whole(inferred, meaning)
        return
    yield from _not_finite(inferred)
    if meaning.hiding is None:
        yield _multiplied(values)
        return
    if meaning.hiding.large is not None:
        yield from _almost(inferred, meaning.hiding)
    yield from _doubled(values, meaning.hiding)
    if not meaning.hiding.cells.any():
        yield from _harmless(values)


def _whole(inferred: InferredAxes, meaning: Meaning) -> Iterator[Finding]:
    values = inferred.given.values
    if values.dtype == torch.uint8:
        yield Finding(
            "bytes",
            "warning",
            Message(
                "The mask has bytes (uint8), which SDPA refuses, and ~mask makes 255 and 254 of "
                "them instead of False and True. Convert it with .bool()."
            ),
        )
    # A list has no chosen dtype; a tokenizer's numbers are whole.
    elif (
        values.dtype != torch.bool
        and inferred.given.typed
        and meaning.convention in ("attend", "hidden")
    ):
        yield Finding(
            "integers",
            "warning",
            Message(
                "The mask has whole numbers ({dtype}), which SDPA refuses; added to the scores, "
                "they raise what they mark by 1 and hide nothing. Convert it with .bool().",
                dtype=_name(values),
            ),
        )


def _not_finite(inferred: InferredAxes) -> Iterator[Finding]:
    values = inferred.given.values
    for kind, cells, sentence in (
        (
            "nan",
            values.isnan(),
            Message("NaN, as 0 times -inf is NaN, so use torch.where(hidden, -torch.inf, 0.0)"),
        ),
        (
            "infinity",
            values == torch.inf,
            Message("+inf, which makes a row of weights NaN, so hide with -inf"),
        ),
    ):
        count = total(cells)
        if count:
            first = places(cells)
            where = listed(first, inferred.layout.describe, count)
            cells_have = Message("cells of the mask have")
            if count == 1:
                cells_have = Message("cell of the mask has")
            yield Finding(
                kind,
                "error",
                Message(
                    "{count:,} {cells_have} {sentence}; at {where}.",
                    count=count,
                    cells_have=cells_have,
                    sentence=sentence,
                    where=where,
                ),
                first,
            )


def _multiplied(values: Tensor) -> Finding:
    return Finding(
        "multiplicative",
        "error",
        Message(
            "The mask has the floats 0.0 and 1.0 ({dtype}), and libraries add a float mask to the "
            "scores: it would raise some by 1 and hide nothing. Convert it with .bool().",
            dtype=_name(values),
        ),
    )


def _almost(inferred: InferredAxes, hiding: Hiding) -> Iterator[Finding]:
    values, large = inferred.given.values, hiding.large
    other = next((d for d in FLOATS if d != values.dtype and large == _lowest_in(d, values)), None)
    if other is not None and not inferred.given.typed:
        return
    if other is not None and large is not None and large < -1e30:
        sentence = Message(
            "The mask hides by {large:.4g}, the lowest number of {dtype}, and has {dtype2}: in "
            "half precision that may become -inf, and a query that sees nothing NaN. Use "
            "torch.finfo(mask.dtype).min, or -inf.",
            large=large,
            dtype=_short(other),
            dtype2=_name(values),
        )
        yield Finding("other-lowest", "warning", sentence)
        return
    whose = (
        Message(", the lowest number of {dtype},", dtype=_short(other)) if other is not None else ""
    )
    sentence = Message(
        "The mask hides by the finite number {large:.6g}{whose} in {dtype}, which only almost "
        "hides: a query that should see nothing sees every key, and two such masks add up. Write "
        "-inf.",
        large=large,
        whose=whose,
        dtype=_name(values),
    )
    hidden = hiding.cells & (values == large)
    yield Finding("almost-hidden", "warning", sentence, places(hidden, 1))


def _lowest_in(dtype: torch.dtype, values: Tensor) -> float:
    """Return the lowest number of a dtype, as the mask's own dtype represents it."""
    return float(torch.tensor(torch.finfo(dtype).min, dtype=torch.float64).to(values.dtype))


def _doubled(values: Tensor, hiding: Hiding) -> Iterator[Finding]:
    """Find two masks that were added to each other."""
    added = None
    if hiding.lowest and hiding.infinite:
        added = Message("both {min:.4g} and -inf, their sum", min=torch.finfo(values.dtype).min)
    elif hiding.large and hiding.largest and hiding.largest < 1.5 * hiding.large:
        added = Message("{large:.6g} and {largest:.6g}", large=hiding.large, largest=hiding.largest)
    if added is not None:
        cells = values < (hiding.large if hiding.large is not None else -torch.inf) * 1.5
        cells = values.isneginf() if hiding.infinite else cells
        yield Finding(
            "doubled",
            "warning",
            Message(
                "The mask has {added}, as if two masks were added that hide the same pair. Join "
                "them before they become numbers: hidden = first | second.",
                added=added,
            ),
            places(cells),
        )


def _harmless(values: Tensor) -> Iterator[Finding]:
    """Find numbers that hide nothing, though they may be meant to."""
    if bool(values.any()) and bool(((values == 0) | (values == -1)).all()):
        yield Finding(
            "unscaled",
            "error",
            Message(
                "The mask has 0 and -1, which lowers some scores by 1 and hides nothing. Multiply "
                "(mask - 1) by a large number, or write -inf where it hides."
            ),
        )


def _name(values: Tensor) -> str:
    return _short(values.dtype)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
