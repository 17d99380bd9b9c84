"""The command `studio`: its options."""

from typing import Annotated

from typer import Argument, Option

from glasshead.cli.inputs.wording import whole_number
from glasshead.cli.showing.request import StudioRequest


def studio(
    model: Annotated[
        str | None,
        Argument(
            metavar="[RUN_OR_HF_DIR]",
            show_default=False,
            help="The folder of a run, or of a text model of Hugging Face; or a .safetensors file "
            "that Weights.save has written. If not given, the run of the demo where there is one, "
            "and the worked example.",
        ),
    ] = None,
    *,
    host: Annotated[
        str,
        Option(
            metavar="ADDRESS",
            help="Where to listen; another than this machine's own gets a token into the URL.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, Option(metavar="N", parser=whole_number, help="On which port; 0: any that is free.")
    ] = 0,
    opens: Annotated[bool, Option("--open/--no-open", help="Open the browser.")] = True,
) -> None:
    """Open a page on which attention can be seen, of three words, a model, or a whole book."""
    request = StudioRequest(model=model, host=host, port=port, opens=opens)
    request.check()
    request.execute()
