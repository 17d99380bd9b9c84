"""Commands by name; heavy libraries are imported when a command runs."""

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any

import typer

from glasshead import __version__
from glasshead.cli.cards import cards
from glasshead.cli.classify import classify
from glasshead.cli.demo import demo
from glasshead.cli.diagnose import diagnose
from glasshead.cli.evaluate import evaluate
from glasshead.cli.explain import explain
from glasshead.cli.help import texts, translated
from glasshead.cli.near import near
from glasshead.cli.observe import observe
from glasshead.cli.report import report
from glasshead.cli.roles import roles
from glasshead.cli.studio import studio
from glasshead.cli.train import train
from glasshead.cli.translate import translate
from glasshead.cli.tune import tune
from glasshead.cli.write import write
from glasshead.explanation.translations import catalogue

app = typer.Typer(
    name="glasshead",
    help="Attention you can see through: compute attention and read every step of it.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(explain)
app.command()(observe)
app.command()(roles)
app.command()(cards)
app.command()(diagnose)
app.command()(studio)
app.command()(report)
app.add_typer(train, name="train")
app.add_typer(evaluate, name="evaluate")
app.command()(classify)
app.command()(translate)
# Arguments beside the model are refused with what to write instead.
app.command(context_settings={"allow_extra_args": True})(write)
app.command()(near)
app.command()(tune)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"glasshead {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _glasshead(
    context: typer.Context,
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Attention you can see through: compute attention and read every step of it."""
    del version
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@cache
def program(language: str = "en") -> Any:
    """Return the command that runs the app: all commands with their options, read once.

    Args:
        language: Of the help: one of `glasshead.explanation.translations.LANGUAGES`.
    """
    english = typer.main.get_command(app)
    return english if language == "en" else translated(english, catalogue(language).gettext)


def extract(file: Any, keywords: Any, comments: Any, options: Any) -> Iterator[tuple]:
    """Yield the texts of the help to Babel, which calls this as a method of extraction."""
    from babel.messages.extract import extract_python

    yield from extract_python(file, keywords, comments, options)
    for text in sorted({text for _owner, _name, text in texts(program())}):
        yield 1, None, text, []
