"""Run: from the options of `glasshead observe` to what is printed and written."""

from glasshead.cli.observing.delivery import deliver
from glasshead.cli.observing.observing import observed
from glasshead.cli.observing.report import report
from glasshead.cli.observing.request import ObserveRequest
from glasshead.cli.observing.subject import subject_of
from glasshead.cli.outputs.progress import going_on


def run(request: ObserveRequest) -> None:
    """Observe, write what is to be written, and print.

    Errors: a ValueError, TypeError or OSError in one sentence. Then nothing was printed.
    """
    with going_on("Observing…"):
        found = observed(subject_of(request.text, request.vectors), request)
    deliver(report(found, request.head), found.seen.save, request)
