"""Numbers: what a mask is written in, and the traps of each type."""

from collections.abc import Iterator

import torch
from torch import Tensor

from glasshead.diagnosis.finding import Finding
from glasshead.diagnosis.findings.words import counted, listed
from glasshead.diagnosis.hiding import Hiding
from glasshead.diagnosis.laying import LaidOut
from glasshead.diagnosis.meaning import Meaning
from glasshead.diagnosis.reading import FLOATS
from glasshead.diagnosis.rows import places, total


def numbers(laid: LaidOut, meaning: Meaning) -> Iterator[Finding]:
    """What is wrong with the numbers of a mask."""
    values = laid.given.values
    if not values.is_floating_point():
        yield from _whole(laid, meaning)
        return
    yield from _not_finite(laid)
    if meaning.hiding is None:
        yield _multiplied(values)
        return
    if meaning.hiding.large is not None:
        yield from _almost(laid, meaning.hiding)
    yield from _doubled(values, meaning.hiding)
    if not meaning.hiding.cells.any():
        yield from _harmless(values)


def _whole(laid: LaidOut, meaning: Meaning) -> Iterator[Finding]:
    values = laid.given.values
    if values.dtype == torch.uint8:
        yield Finding(
            "bytes",
            "warning",
            "The mask has bytes (uint8), of which ~mask makes 255 and 254 instead of False and "
            "True, and which SDPA refuses: convert it with .bool().",
        )
    # Of a list nobody chose the type; a tokenizer's numbers are whole.
    elif (
        values.dtype != torch.bool
        and laid.given.typed
        and meaning.convention in ("attend", "hidden")
    ):
        yield Finding(
            "integers",
            "warning",
            f"The mask has whole numbers ({_name(values)}): SDPA refuses them, and added to the "
            "scores they raise what they mark by 1 and hide nothing: convert it with .bool().",
        )


def _not_finite(laid: LaidOut) -> Iterator[Finding]:
    values = laid.given.values
    for kind, cells, sentence in (
        (
            "nan",
            values.isnan(),
            "NaN: 0 times -inf is NaN, so write it by torch.where(hidden, -torch.inf, 0.0)",
        ),
        (
            "infinity",
            values == torch.inf,
            "+inf, which makes a row of weights NaN: what hides is -inf",
        ),
    ):
        count = total(cells)
        if count:
            first = places(cells)
            told = listed(first, laid.layout.told, count)
            yield Finding(
                kind,
                "error",
                f"{counted(count, 'cell')} of the mask {_has(count)} {sentence}; at {told}.",
                first,
            )


def _has(count: int) -> str:
    return "has" if count == 1 else "have"


def _multiplied(values: Tensor) -> Finding:
    return Finding(
        "multiplicative",
        "error",
        f"The mask has the floats 0.0 and 1.0 ({_name(values)}), and libraries add a float mask to "
        "the scores: it would raise some by 1 and hide nothing: convert it with .bool().",
    )


def _almost(laid: LaidOut, hiding: Hiding) -> Iterator[Finding]:
    values, large = laid.given.values, hiding.large
    other = next((d for d in FLOATS if d != values.dtype and large == _lowest_in(d, values)), None)
    if other is not None and not laid.given.typed:
        return
    if other is not None and large is not None and large < -1e30:
        sentence = (
            f"The mask hides by {large:.4g}, the lowest number of {_short(other)}, and has "
            f"{_name(values)}: converted to half precision it may become -inf, and a query that "
            "sees nothing NaN: make it with torch.finfo(mask.dtype).min, or -inf."
        )
        yield Finding("other-lowest", "warning", sentence)
        return
    whose = f", the lowest number of {_short(other)}," if other is not None else ""
    sentence = (
        f"The mask hides by the finite number {large:.6g}{whose} in {_name(values)}, which hides "
        "only almost: a query that should see nothing sees every key, and two such masks add up: "
        "write -inf."
    )
    hidden = hiding.cells & (values == large)
    yield Finding("almost-hidden", "warning", sentence, places(hidden, 1))


def _lowest_in(dtype: torch.dtype, values: Tensor) -> float:
    """The lowest number of a dtype, as the mask's own dtype writes it."""
    return float(torch.tensor(torch.finfo(dtype).min, dtype=torch.float64).to(values.dtype))


def _doubled(values: Tensor, hiding: Hiding) -> Iterator[Finding]:
    """Two masks that were added to each other."""
    added = None
    if hiding.lowest and hiding.infinite:
        added = f"both {torch.finfo(values.dtype).min:.4g} and -inf, their sum"
    elif hiding.large and hiding.largest and hiding.largest < 1.5 * hiding.large:
        added = f"{hiding.large:.6g} and {hiding.largest:.6g}"
    if added is not None:
        cells = values < (hiding.large if hiding.large is not None else -torch.inf) * 1.5
        cells = values.isneginf() if hiding.infinite else cells
        yield Finding(
            "doubled",
            "warning",
            f"The mask has {added}, as where two masks were added that hide the same pair: join "
            "them before they become numbers, hidden = first | second.",
            places(cells),
        )


def _harmless(values: Tensor) -> Iterator[Finding]:
    """Numbers that hide nothing, though they may be meant to."""
    if bool(values.any()) and bool(((values == 0) | (values == -1)).all()):
        yield Finding(
            "unscaled",
            "error",
            "The mask has 0 and -1, which lowers some scores by 1 and hides nothing: "
            "(mask - 1) was to be multiplied by a large number; write -inf where it hides.",
        )


def _name(values: Tensor) -> str:
    return _short(values.dtype)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
