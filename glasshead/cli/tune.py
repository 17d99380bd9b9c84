"""The command `tune`: measure this processor for `engine="auto"`."""

from typing import TYPE_CHECKING, Annotated

from typer import Option

from glasshead.cli.inputs.messages import print_stderr, whole_number
from glasshead.cli.output import Counter, print_drawing, print_json, spoken
from glasshead.message import Message

if TYPE_CHECKING:
    from rich.table import Table

    from glasshead.attention.tuning import Tuned


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
    print_drawing(_table(tuned))
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


def _table(tuned: "Tuned") -> "Table":
    """Lay out the ratios, and the seconds of SDPA that they are multiples of."""
    from rich.table import Table

    from glasshead.attention.tuning import SHAPES

    made = tuned.profile["machine"]
    table = Table(
        title="Streaming's time as a multiple of SDPA's",
        caption=f"{made['processor']}, {made['threads']} threads, torch {made['torch']}",
    )
    table.add_column("dtype and pass", no_wrap=True)
    for shape in SHAPES:
        table.add_column(shape.about, justify="right")
    for dtype, ways in tuned.ratios.items():
        for way, ratios in ways.items():
            passes = "with gradients" if way == "both" else way
            table.add_row(f"{dtype}, {passes}", *(f"{ratio:.2f}" for ratio in ratios.values()))
    return table
