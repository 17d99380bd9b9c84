"""The command `classify`: a trained model tells what texts are."""

from typing import Annotated

from typer import Argument, Option

from glasshead.cli.inputs.files import output_file


def classify(
    run: Annotated[str, Argument(metavar="RUN", show_default=False, help="The folder of a run.")],
    texts: Annotated[
        list[str] | None,
        Argument(
            metavar="TEXT",
            show_default=False,
            help="A text, and more of them; without any, the lines of standard input.",
        ),
    ] = None,
    *,
    attention: Annotated[
        bool, Option("--attention", help="Show which words of each text the model looked at.")
    ] = False,
    html: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="Also write that as one self-contained page; folders are made as needed.",
        ),
    ] = None,
    json: Annotated[
        bool, Option("--json", help="Print a line of JSON for each text, with every share.")
    ] = False,
) -> None:
    """Tell what each text is: its label, how sure the model is, and the text."""
    from glasshead.cli.inputs.messages import check_extra

    check_extra("train", "glasshead classify")
    from glasshead.cli.classifying import ClassifyRequest

    ClassifyRequest(
        run=run,
        texts=tuple(texts or ()),
        attention=attention,
        html=output_file(html, "--html"),
        json=json,
    ).execute()
