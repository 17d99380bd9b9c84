"""The command `translate`: a trained model translates texts."""

from typing import Annotated

from typer import Argument, Option

from glasshead.cli.inputs.files import output_file
from glasshead.cli.inputs.messages import whole_number

_SEARCH, _ATTENTION = "How a translation is searched for", "What the model looked at"


def translate(
    run: Annotated[str, Argument(metavar="RUN", show_default=False, help="The folder of a run.")],
    texts: Annotated[
        list[str] | None,
        Argument(
            metavar="TEXT",
            show_default=False,
            help="A sentence, and more of them; without any, the lines of standard input.",
        ),
    ] = None,
    *,
    beam: Annotated[
        int,
        Option(
            metavar="WIDTH",
            parser=whole_number,
            rich_help_panel=_SEARCH,
            help="How many beginnings are gone on with at a time; 1 is greedy.",
        ),
    ] = 5,
    length_penalty: Annotated[
        float,
        Option(
            metavar="A",
            rich_help_panel=_SEARCH,
            help="Above 0 longer translations lose less.",
        ),
    ] = 1.0,
    attention: Annotated[
        bool,
        Option(
            "--attention",
            rich_help_panel=_ATTENTION,
            help="Show which words of the text each word of the translation looked at.",
        ),
    ] = False,
    layer: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            rich_help_panel=_ATTENTION,
            help="Which layer of the decoder, from 0. If not given, the last.",
        ),
    ] = None,
    head: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            rich_help_panel=_ATTENTION,
            help="Which head, from 0. If not given, the mean over all.",
        ),
    ] = None,
    html: Annotated[
        str | None,
        Option(
            metavar="FILE",
            rich_help_panel=_ATTENTION,
            help="Also write it as one self-contained page; folders are made as needed.",
        ),
    ] = None,
) -> None:
    """Translate each text, and show which of its words each word of the translation looked at."""
    from glasshead.cli.inputs.messages import check_extra

    check_extra("train", "glasshead translate")
    from glasshead.cli.translating import TranslateRequest

    TranslateRequest(
        run=run,
        texts=tuple(texts or ()),
        beam=beam,
        length_penalty=length_penalty,
        attention=attention,
        layer=layer,
        head=head,
        html=output_file(html, "--html"),
    ).execute()
