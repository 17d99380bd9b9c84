"""The command `explain`: its options."""

from typing import Annotated

from typer import Argument, Option

from glasshead.cli.explaining.request import ExplainRequest
from glasshead.cli.inputs.naming import input_file, output_file
from glasshead.cli.inputs.wording import whole_number
from glasshead.cli.outputs.options import OUTPUT, Width

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
    from glasshead.cli.explaining.run import run

    run(request)
