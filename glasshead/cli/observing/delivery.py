"""Delivery: what was observed is written where it is asked for, and printed."""

from collections.abc import Callable
from pathlib import Path

from glasshead.cli.inputs.reading import shown
from glasshead.cli.observing.options import Options
from glasshead.cli.outputs.page_file import write_page
from glasshead.cli.outputs.terminal import print_drawing, remark
from glasshead.drawing import Document


def deliver(document: Document, save: Callable[[Path], None], options: Options) -> None:
    """Write the files, then print the document, then say where the files are.

    Errors: an OSError where a file cannot be written. Then nothing was printed.
    """
    if options.save is not None:
        options.save.parent.mkdir(parents=True, exist_ok=True)
        save(options.save)
    if options.html is not None:
        write_page(options.html, document.html())
    print_drawing(document, options.width)
    if options.save is not None:
        remark(f"The observation is at {shown(options.save)}")
    if options.html is not None:
        remark(f"The page is at {shown(options.html)}")
