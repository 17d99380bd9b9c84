"""The command `tune`: measure this processor for `engine="auto"`."""

from typing import Annotated

from typer import Option

from glasshead.cli.inputs.messages import print_stderr, whole_number
from glasshead.cli.output import Counter, print_drawing, print_json, spoken
from glasshead.message import Message


def tune(
    *,
    seconds: Annotated[
        int, Option(metavar="N", parser=whole_number, help="Seconds to measure, 1 to 600.")
    ] = 18,
    loaded: Annotated[
        bool,
        Option("--loaded", help="Measure even if other programs keep the machine busy."),
    ] = False,
    json: Annotated[bool, Option("--json", help="Print the profile as JSON.")] = False,
) -> None:
    """Measure this processor, so that engine="auto" chooses the faster engine."""
    if not 1 <= seconds <= 600:
        raise ValueError(f"--seconds must be between 1 and 600, got {seconds}.")
    from glasshead.attention.tuning import UNCHECKED, LoadedError
    from glasshead.attention.tuning import tune as measure

    with Counter("measuring") as counter:

        def show(share: float) -> None:
            counter.show(int(1000 * share), 1000)

        try:
            tuned = measure(seconds, show, loaded=loaded)
        except LoadedError as error:
            raise ValueError(
                Message(
                    "The machine must be quiet to be measured, but other programs kept {taken} of "
                    "{processors} processors busy; close them and try again, or add --loaded to "
                    "measure all the same.",
                    taken=f"{error.taken:.1f}",
                    processors=error.processors,
                )
            ) from None
    if json:
        print_json({"file": tuned.file, "ratios": tuned.ratios, **tuned.profile})
        return
    print_drawing(tuned.document())
    say = spoken(None)
    print_stderr(
        say('Wrote {file}. engine="auto" reads it when a process starts.', file=tuned.file)
    )
    if tuned.profile["how"] == UNCHECKED:
        print_stderr(
            say(
                "This system does not report its load: the times hold if no other program was "
                "running."
            )
        )
