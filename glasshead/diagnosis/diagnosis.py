"""Diagnosis: what a mask looks like, what is wrong with it, and how it is converted."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from rich.console import Console, ConsoleOptions, RenderResult
from torch import Tensor

from glasshead.diagnosis.finding import Finding
from glasshead.diagnosis.portrait import Portrait
from glasshead.diagnosis.report import report
from glasshead.drawing import Document
from glasshead.recipe.masks import Mask


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """What a mask looks like, what is wrong with it, and how it is converted.

    Print it for a short report; a notebook shows it by itself, and `html()` is a page of its own.

    Attributes:
        convention: "attend", "hidden", "additive", "tokenizer" or "multiplicative", or None where
            it could not be decided.
        findings: What was found, errors first.
        mask: It as a glasshead mask, or None where that could not be decided.
        bias: The finite numbers to add to the scores, or None where there are none.
        conversion: The line of Python that makes `mask`, and `bias` if any, of what is called
            `mask`; None where there is no mask.
        sdpa: The line for torch's `scaled_dot_product_attention`, where it differs from giving the
            mask as it is.
        portrait: Its type, its shape, and what is drawn of it.

    >>> import torch
    >>> import glasshead as gh
    >>> hidden = torch.ones(3, 3, dtype=torch.bool).triu(1)
    >>> diagnosis = gh.diagnose(hidden)
    >>> diagnosis.convention, diagnosis.healthy, diagnosis.conversion
    ('hidden', True, 'mask = gh.causal()')
    """

    convention: str | None
    findings: tuple[Finding, ...]
    mask: Mask | None
    bias: Float[Tensor, "..."] | None
    conversion: str | None
    sdpa: str | None
    portrait: Portrait

    @property
    def healthy(self) -> bool:
        """Whether there is neither an error nor a warning."""
        return all(finding.severity == "note" for finding in self.findings)

    def document(self) -> Document:
        """The report as it is drawn."""
        return report(self)

    def text(self, width: int = 80) -> str:
        """The report as plain text, at most `width` cells wide but for code that cannot be broken.

        Errors: a ValueError where the width is below 20.
        """
        return self.document().text(width)

    def html(self) -> str:
        """A whole page in one file, with nothing from outside and no script."""
        return self.document().html()

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        kinds = ", ".join(finding.kind for finding in self.findings) or "none"
        return (
            f"Diagnosis(convention={self.convention!r}, healthy={self.healthy}, findings={kinds})"
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.document().__rich_console__(console, options)

    def _repr_html_(self) -> Any:
        return self.document()._repr_html_()
