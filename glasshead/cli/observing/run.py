"""Run: from the options of `glasshead observe` to what is printed and written."""

from glasshead.cli.inputs.reading import shown
from glasshead.cli.observing.observing import observed
from glasshead.cli.observing.report import report
from glasshead.cli.observing.request import ObserveRequest
from glasshead.cli.observing.subject import subject_of
from glasshead.cli.outputs.page_file import write_page
from glasshead.cli.outputs.progress import going_on
from glasshead.cli.outputs.terminal import print_drawing, remark


def run(request: ObserveRequest) -> None:
    """Observe, write what is to be written, and print.

    Errors: a ValueError, TypeError or OSError in one sentence. Then nothing was printed.
    """
    with going_on("Observing…"):
        found = observed(subject_of(request.text, request.vectors), request)
    document = report(found, request.head)
    if request.save is not None:
        request.save.parent.mkdir(parents=True, exist_ok=True)
        found.seen.save(request.save)
    if request.html is not None:
        write_page(request.html, document.html())
    print_drawing(document, request.width)
    if request.save is not None:
        remark(f"The observation is at {shown(request.save)}")
    if request.html is not None:
        remark(f"The page is at {shown(request.html)}")
