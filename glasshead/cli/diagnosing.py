"""The work of `glasshead diagnose`."""

import typer
from rich.console import Console

import glasshead as gh
from glasshead.cli.diagnose import DiagnoseRequest
from glasshead.cli.inputs.files import shown
from glasshead.cli.inputs.masks import read_mask
from glasshead.cli.output import NARROWEST, print_stderr, write_page

UNHEALTHY = 1


def run(request: DiagnoseRequest) -> None:
    """Diagnose, write the page if one is asked for, and print.

    Errors: a ValueError, TypeError or OSError in one sentence, and a typer.Exit with the code 1
    where the mask is not healthy.
    """
    path, name = request.place()
    mask = read_mask(path, name)
    try:
        diagnosis = gh.diagnose(
            mask,
            queries=request.queries,
            keys=request.keys,
            convention=request.convention,
            offset=request.offset,
        )
    except (ValueError, TypeError) as error:
        raise ValueError(f"{shown(path)}: {error}") from error
    if request.html is not None:
        write_page(request.html, diagnosis.html())
    _print(diagnosis, request.width)
    if request.html is not None:
        print_stderr(f"The page is at {shown(request.html)}")
    if not diagnosis.healthy:
        raise typer.Exit(UNHEALTHY)


def _print(diagnosis: gh.Diagnosis, width: int | None) -> None:
    """Print, and let code that is wider than the terminal go on in its next line, uncut."""
    console = Console(width=width, highlight=False, emoji=False, markup=False)
    console.width = max(console.width, NARROWEST)
    console.print(diagnosis, crop=False)
