"""The help of the commands, in the language of the output."""

from collections.abc import Iterator
from typing import Any

from glasshead.message import _

_PANELS = {"option": _("Options"), "argument": _("Arguments")}


def translated(command: Any, translate: Any) -> Any:
    """Translate the help of a command, of its options and of its subcommands, in place."""
    for owner, name, text in texts(command):
        setattr(owner, name, translate(text))
    return command


def texts(command: Any, parent: Any = None) -> Iterator[tuple[Any, str, str]]:
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
        yield from texts(subcommand, context)
