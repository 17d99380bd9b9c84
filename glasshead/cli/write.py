"""The command `write`: a model goes on with a text."""

from typing import Annotated

from typer import Argument, Option

from glasshead.cli.inputs.messages import whole_number

_CHOOSING = "How tokens are chosen"
_MOST_TOKENS = 10**9


def write(
    model: Annotated[
        str,
        Argument(
            metavar="RUN_OR_HF_DIR",
            show_default=False,
            help="The folder of a run, or of a model of Hugging Face; or a file of llama2.c.",
        ),
    ],
    *,
    prompt: Annotated[
        str, Option(metavar="TEXT", help="How the text begins; nothing: the model begins it.")
    ] = "",
    tokens: Annotated[
        int, Option(metavar="N", parser=whole_number, help="How many tokens at most.")
    ] = 200,
    stop: Annotated[
        list[str] | None,
        Option(
            metavar="TEXT",
            show_default=False,
            help="End before this text, as soon as it would come; may be given several times. "
            r"\n is a line's end.",
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        Option(
            metavar="T",
            show_default=False,
            rich_help_panel=_CHOOSING,
            help="Below 1 bolder, above 1 wilder, 0 the likeliest token each time. If not given, "
            "0.8.",
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        Option(
            metavar="K",
            parser=whole_number,
            show_default=False,
            rich_help_panel=_CHOOSING,
            help="Only the K likeliest tokens.",
        ),
    ] = None,
    top_p: Annotated[
        float | None,
        Option(
            metavar="P",
            show_default=False,
            rich_help_panel=_CHOOSING,
            help="Only the likeliest tokens that make up a share P of all.",
        ),
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        Option(
            metavar="R",
            show_default=False,
            rich_help_panel=_CHOOSING,
            help="Above 1, tokens that stand in the text already are less likely, as in 1.2.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            rich_help_panel=_CHOOSING,
            help="The same text each time.",
        ),
    ] = None,
    beam: Annotated[
        int | None,
        Option(
            metavar="WIDTH",
            parser=whole_number,
            show_default=False,
            rich_help_panel=_CHOOSING,
            help="Search for the likeliest text, WIDTH beginnings at a time, instead of drawing.",
        ),
    ] = None,
    length_penalty: Annotated[
        float | None,
        Option(
            metavar="A",
            show_default=False,
            rich_help_panel=_CHOOSING,
            help="Of the beam: above 0 longer texts lose less. If not given, 1.",
        ),
    ] = None,
) -> None:
    """Go on with a text, token by token."""
    from glasshead.cli.inputs.messages import check_extra

    check_extra("train", "glasshead write", ("tokenizers",))
    from glasshead.cli.output import print_text
    from glasshead.cli.training import chosen_strategy
    from glasshead.tasks.write import Writer

    strategy = chosen_strategy(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
        beam=beam,
        length_penalty=length_penalty,
    )
    if not 1 <= tokens <= _MOST_TOKENS:
        raise ValueError(f"--tokens takes a number from 1 to {_MOST_TOKENS}, and got {tokens}.")
    stops = tuple(text.replace(r"\n", "\n") for text in stop or ())
    if "" in stops:
        raise ValueError("--stop takes a text of a character at least, and got '': leave it out.")
    pieces = Writer.load(model).write(prompt, strategy, max_tokens=tokens, stop=stops)
    print_text(prompt)
    for piece in pieces:
        print_text(piece)
    print_text("", end="\n")
