"""Request: the options of `glasshead explain` as they were written."""

from dataclasses import dataclass
from pathlib import Path

from glasshead.cli.explaining.recipe import Recipe
from glasshead.cli.outputs.language import check_language
from glasshead.cli.outputs.page_file import check_apart, check_target
from glasshead.cli.outputs.terminal import check_width
from glasshead.ladder.worked_example import is_the_texts_own

# Wider vectors than these are read from a file; a seed is what a generator takes.
_WIDEST_VECTOR, _LARGEST_SEED = 4096, 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class ExplainRequest:
    """What the user wrote; the fields are the options of the command."""

    text: str | None = None
    vectors: Path | None = None
    query: str | None = None
    seed: int = 123
    dim: int | None = None
    mask: str = "none"
    beta: str | None = None
    score: str | None = None
    normalizer: str | None = None
    heads: int = 1
    head: int = 0
    weights: Path | None = None
    lang: str | None = None
    html: Path | None = None
    json: bool = False
    width: int | None = None

    def check(self) -> None:
        """Raise where an option is wrong by itself, before torch is imported.

        Errors: a ValueError or an OSError that names the option.
        """
        self.recipe()
        if not 0 <= self.head < self.heads:
            raise ValueError(
                f"--head takes a head from 0 to {self.heads - 1}, and got {self.head}: there are "
                f"as many as --heads says."
            )
        check_width(self.width)
        check_language(self.lang)
        if self.html is not None:
            check_target(self.html)
            check_apart(self.html, (self.vectors, self.weights))
        if not 0 <= self.seed <= _LARGEST_SEED:
            raise ValueError(
                f"--seed takes a whole number from 0 to 2^63 - 1, and got {self.seed}: try 123."
            )
        if self.dim is None:
            return
        if not 1 <= self.dim <= _WIDEST_VECTOR:
            raise ValueError(
                f"--dim takes a whole number from 1 to {_WIDEST_VECTOR}, and got {self.dim}: try 4."
            )
        if self.is_worked_example or self.vectors is not None:
            raise ValueError(
                "--dim is the width of made-up vectors, and these are not made up: leave it out."
            )

    def recipe(self) -> Recipe:
        """The attention that is asked for."""
        own = "dot" if self.is_worked_example else "scaled-dot"
        return Recipe.parsed(
            score=own if self.score is None else self.score,
            beta=self.beta,
            normalizer=self.normalizer,
            mask=self.mask,
            heads=self.heads,
        )

    @property
    def is_worked_example(self) -> bool:
        """Whether no other sentence is given than that of the texts."""
        return self.vectors is None and is_the_texts_own(self.text)
