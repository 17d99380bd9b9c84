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
from glasshead.message import _

_PANELS = {"option": _("Options"), "argument": _("Arguments")}

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
    return english if language == "en" else _translated(english, catalogue(language).gettext)


def _translated(command: Any, translate: Any) -> Any:
    """Translate the help of a command, of its options and of its subcommands, in place."""
    for owner, name, text in _texts(command):
        setattr(owner, name, translate(text))
    return command


def _texts(command: Any, parent: Any = None) -> Iterator[tuple[Any, str, str]]:
    """Yield the owner, attribute and text of each text that the help shows."""
    if command.help:
        yield command, "help", command.help
    context = command.context_class(command, parent=parent, **command.context_settings)
    for parameter in command.get_params(context):
        if parameter.help:
            yield parameter, "help", parameter.help
        panel = parameter.rich_help_panel or _PANELS[parameter.param_type_name]
        yield parameter, "rich_help_panel", panel
    for subcommand in getattr(command, "commands", {}).values():
        yield subcommand, "rich_help_panel", _("Commands")
        yield from _texts(subcommand, context)


def extract(file: Any, keywords: Any, comments: Any, options: Any) -> Iterator[tuple]:
    """Yield the texts of the help to Babel, which calls this as a method of extraction."""
    from babel.messages.extract import extract_python

    yield from extract_python(file, keywords, comments, options)
    for text in sorted({text for _owner, _name, text in _texts(program())}):
        yield 1, None, text, []
