"""The command `explain`: one attention, step by step."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from glasshead.cli.inputs.files import input_file, output_file
from glasshead.cli.inputs.messages import whole_number
from glasshead.cli.output import (
    OUTPUT,
    Width,
    check_apart,
    check_language,
    check_target,
    check_width,
)
from glasshead.cli.recipe_options import RecipeOptions
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

    def recipe(self) -> RecipeOptions:
        """The attention that is asked for."""
        own = "dot" if self.is_worked_example else "scaled-dot"
        return RecipeOptions.parsed(
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


_SENTENCE, _RECIPE = "The sentence", "The attention"


def explain(
    text: Annotated[
        str | None,
        Argument(
            metavar="TEXT",
            show_default=False,
            help="A sentence, whose words get made-up vectors, or those of --vectors. Without one, "
            'or "Hello shiny sun!": the worked example of the texts, with their vectors. Write -- '
            "before a sentence that begins with a dash.",
        ),
    ] = None,
    *,
    vectors: Annotated[
        str | None,
        Option(
            metavar="FILE",
            rich_help_panel=_SENTENCE,
            help="Your own vectors: a token and its numbers a row (CSV, tabs or semicolons too), "
            "or JSON; - reads standard input. Without TEXT, the rows in order are the sentence.",
        ),
    ] = None,
    query: Annotated[
        str | None,
        Option(
            metavar="WORD",
            show_default=False,
            rich_help_panel=_SENTENCE,
            help="The word to explain, or its place: #2 is the second token. If not given, the "
            "last word.",
        ),
    ] = None,
    seed: Annotated[
        int,
        Option(
            metavar="N",
            parser=whole_number,
            rich_help_panel=_SENTENCE,
            help="What made-up numbers are made up from.",
        ),
    ] = 123,
    dim: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            rich_help_panel=_SENTENCE,
            help="How many numbers a made-up vector has. If not given, 4, or what --weights takes.",
        ),
    ] = None,
    mask: Annotated[
        str,
        Option(
            metavar="M",
            rich_help_panel=_RECIPE,
            help="What a word sees: none hides nothing; causal: nothing later; window:3: itself "
            "and 3 before; window:3:1: and 1 after; causal+window:3:1: what both show.",
        ),
    ] = "none",
    beta: Annotated[
        str | None,
        Option(
            metavar="B",
            show_default=False,
            rich_help_panel=_RECIPE,
            help="How sharp: a number above 0, auto (1/√d), or inf, the hardest. If not given, "
            "auto for scaled-dot and 1 for others.",
        ),
    ] = None,
    score: Annotated[
        str | None,
        Option(
            metavar="S",
            show_default=False,
            rich_help_panel=_RECIPE,
            help="How a query meets a key: scaled-dot, dot, cosine, gaussian or additive. If not "
            "given, scaled-dot, and dot for the worked example.",
        ),
    ] = None,
    normalizer: Annotated[
        str | None,
        Option(
            metavar="N",
            show_default=False,
            rich_help_panel=_RECIPE,
            help="How scores become weights: softmax, softmax-one, hardmax, sparsemax, entmax15 "
            "or sigmoid. If not given, softmax.",
        ),
    ] = None,
    heads: Annotated[
        int,
        Option(
            metavar="H",
            parser=whole_number,
            rich_help_panel=_RECIPE,
            help="In how many heads the vectors are split.",
        ),
    ] = 1,
    head: Annotated[
        int,
        Option(
            metavar="N",
            parser=whole_number,
            rich_help_panel=_RECIPE,
            help="Which of the heads is told, from 0.",
        ),
    ] = 0,
    weights: Annotated[
        str | None,
        Option(
            metavar="FILE",
            rich_help_panel=_RECIPE,
            help="A projection, as safetensors: W_query, W_key and W_value \\[d_in, d_out], or the "
            "state of nn.Linears, W_query.weight … with or without biases.",
        ),
    ] = None,
    lang: Annotated[
        str | None,
        Option(
            metavar="L",
            show_default=False,
            rich_help_panel=OUTPUT,
            help="en, tr, es, zh-Hant or zh-Hans. If not given, what LC_ALL, LC_MESSAGES or LANG "
            "says, else en.",
        ),
    ] = None,
    html: Annotated[
        str | None,
        Option(
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Also write one self-contained page; folders are made as needed.",
        ),
    ] = None,
    json: Annotated[
        bool, Option("--json", rich_help_panel=OUTPUT, help="Print JSON instead of text.")
    ] = False,
    width: Width = None,
) -> None:
    """Explain one attention step by step, with the formula, the numbers and why."""
    request = ExplainRequest(
        text=text,
        vectors=input_file(vectors, "--vectors"),
        query=query,
        seed=seed,
        dim=dim,
        mask=mask,
        beta=beta,
        score=score,
        normalizer=normalizer,
        heads=heads,
        head=head,
        weights=input_file(weights, "--weights"),
        lang=lang,
        html=output_file(html, "--html"),
        json=json,
        width=width,
    )
    request.check()
    from glasshead.cli.explaining import run

    run(request)
