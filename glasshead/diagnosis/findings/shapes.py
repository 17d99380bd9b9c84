"""Shapes: axes that libraries read in different ways."""

from collections.abc import Iterator

from glasshead.diagnosis.finding import Finding
from glasshead.diagnosis.laying import LaidOut


def shapes(laid: LaidOut) -> Iterator[Finding]:
    """What is wrong with the shape, or worth knowing of it."""
    yield from laid.findings
    shape = laid.layout.shape
    if len(shape) == 3 and shape[0] > 1:
        yield Finding(
            "layout",
            "note",
            f"The first of three axes, {shape[0]}, is the heads of inputs with heads, the batch of "
            "those without, and batch * heads in torch.nn.MultiheadAttention, whose mask goes to "
            "gh.from_torch_mha(mask, num_heads=…).",
        )
