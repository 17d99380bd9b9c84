"""What the view `steps` is asked for: a sentence, and the choices of its attention."""

from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

from glasshead.ladder.worked_example import is_the_texts_own

Beta = Literal[
    "auto", "0.05", "0.1", "0.2", "0.3", "0.5", "0.7", "1", "1.5", "2", "3", "5", "7", "10",
    "20", "50", "inf",
]  # fmt: skip
Mask = Literal["none", "causal", "window"]
Normalizer = Literal["softmax", "softmax-one", "hardmax", "sparsemax", "entmax15", "sigmoid"]

BETAS: tuple[Beta, ...] = get_args(Beta)
"""β from soft to hard: "auto" is 1/√d, and "inf" gives all weight to the largest score."""
MASKS: tuple[Mask, ...] = get_args(Mask)
"""The window sees the word itself and one on either side."""
NORMALIZERS: tuple[Normalizer, ...] = get_args(Normalizer)


@dataclass(frozen=True, kw_only=True)
class StepsAsked:
    """What is asked for, as it stands in the page's address; all of it has a default.

    Attributes:
        text: A sentence; None: the worked example of the texts.
        beta: One of `BETAS`; None: 1 for the worked example, whose score is the bare product, else
            1/√d.
        mask: One of `MASKS`.
        normalizer: One of `NORMALIZERS`.
        heads: Into how many parts of equal width the vectors are cut.
        head: Which of them is shown, from 0.
        query: The position of the word that is told of, from 0; None: "shiny" in the worked
            example, else the last that is a word.

    >>> StepsAsked(mask="causal", head=0).parameters()
    {'mask': 'causal'}
    """

    text: str | None = None
    beta: Beta | None = None
    mask: Mask = "none"
    normalizer: Normalizer = "softmax"
    heads: int = 1
    head: int = 0
    query: int | None = None

    @property
    def is_worked_example(self) -> bool:
        """Whether no other sentence is given than that of the texts."""
        return is_the_texts_own(self.text)

    @property
    def default_beta(self) -> Beta:
        """The β that is taken where none is asked for."""
        return "1" if self.is_worked_example else "auto"

    @property
    def chosen_beta(self) -> Beta:
        """The β that is taken."""
        return self.beta or self.default_beta

    def without_query(self) -> "StepsAsked":
        """What the matrices depend on: they are the same whichever word is told of."""
        return replace(self, query=None)

    def parameters(self) -> dict[str, str | int]:
        """What is asked beyond the defaults, in the words of the address."""
        asked = replace(self, beta=None) if self.beta == self.default_beta else self
        given = {each.name: getattr(asked, each.name) for each in fields(asked)}
        return {name: value for name, value in given.items() if value != _DEFAULTS[name]}


_DEFAULTS = {each.name: each.default for each in fields(StepsAsked)}
