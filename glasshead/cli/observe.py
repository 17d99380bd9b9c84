"""The command `observe`: its options."""

from typing import Annotated

from typer import Argument, Option

from glasshead.cli.inputs.naming import input_file, output_file
from glasshead.cli.inputs.wording import whole_number
from glasshead.cli.observing.request import ObserveRequest

_SUBJECT, _RECIPE, _OUTPUT = "What is observed", "The attention", "The output"


def observe(
    text: Annotated[
        str | None,
        Argument(
            metavar="TEXT",
            show_default=False,
            help="A sentence, whose words get made-up vectors, or those of --vectors. Without one "
            "and without --vectors: the worked example of the texts.",
        ),
    ] = None,
    *,
    vectors: Annotated[
        str | None,
        Option(
            metavar="FILE",
            rich_help_panel=_SUBJECT,
            help="A safetensors file with query, key and perhaps value, \\[length, dim], \\[heads, "
            "length, dim] or \\[batch, heads, length, dim]; or tokens with their vectors, as "
            "explain takes them, where - reads standard input.",
        ),
    ] = None,
    mask: Annotated[
        str,
        Option(
            metavar="M",
            rich_help_panel=_RECIPE,
            help="What a query sees: none hides nothing; causal: nothing later; window:3: itself "
            "and 3 before; window:3:1: and 1 after; causal+window:3:1: what both show.",
        ),
    ] = "none",
    engine: Annotated[
        str,
        Option(
            metavar="E",
            rich_help_panel=_RECIPE,
            help="What computes it: auto, the fastest; fused, streaming or reference.",
        ),
    ] = "auto",
    stat: Annotated[
        list[str] | None,
        Option(
            metavar="NAME",
            show_default=False,
            rich_help_panel=_SUBJECT,
            help="A statistic, and again for each more: entropy, max-weight, mean-distance, "
            "received or received:16 (by the last 16 queries), mass-on:0,1 (on these keys), "
            "top-k:3, log-sum-exp, max-score, distance-histogram:0,1,8,inf. If not given, the "
            "first six.",
        ),
    ] = None,
    head: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            rich_help_panel=_OUTPUT,
            help="Which head's keys and map are drawn, from 0. If not given, the mean over all.",
        ),
    ] = None,
    save: Annotated[
        str | None,
        Option(
            metavar="FILE",
            rich_help_panel=_OUTPUT,
            help="Also write the observation, as safetensors, for gh.Observation.load in Python.",
        ),
    ] = None,
    html: Annotated[
        str | None,
        Option(
            metavar="FILE",
            rich_help_panel=_OUTPUT,
            help="Also write one self-contained page; folders are made as needed.",
        ),
    ] = None,
    width: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            rich_help_panel=_OUTPUT,
            help="How many columns the text takes. If not given, those of the terminal.",
        ),
    ] = None,
) -> None:
    """Observe one attention of any length: statistics of its weights, without the matrix."""
    request = ObserveRequest(
        text=text,
        vectors=input_file(vectors, "--vectors"),
        mask=mask,
        stat=tuple(stat or ()),
        head=head,
        engine=engine,
        save=output_file(save, "--save"),
        html=output_file(html, "--html"),
        width=width,
    )
    request.check()
    from glasshead.cli.observing.run import run

    run(request)
