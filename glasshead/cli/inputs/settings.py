"""The settings of an explanation as options of a command."""

from collections.abc import Callable
from dataclasses import Field, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from glasshead.cli.inputs.files import input_file
from glasshead.cli.inputs.messages import whole_number
from glasshead.explanation.settings import ExplanationSettings, Setting
from glasshead.message import Message

_ARGUMENT = "TEXT"


class CommandSettings(ExplanationSettings):
    """The settings of an explanation, named as on the command line."""

    def named(self, name: str) -> str:
        return _OPTIONS[name]

    def file(self, name: str) -> Path | None:
        """Return the file that a setting names, if any.

        Errors: a ValueError if the name is empty.
        """
        return input_file(getattr(self, name), self.named(name))


_OPTIONS = {
    each.name: Setting.of(each).option or f"--{each.name}" for each in fields(CommandSettings)
}


def takes_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each setting, which it gets as one `CommandSettings`."""
    offered = [each for each in fields(CommandSettings) if Setting.of(each).help]
    earlier = [each for each in offered if Setting.of(each).earlier]
    _, *own = signature(command).parameters.values()

    @wraps(command)
    def run(**given: Any) -> None:
        for each in earlier:
            _take_earlier(each, given)
        settings = CommandSettings(**{each.name: given.pop(each.name) for each in offered})
        command(settings, **given)

    parameters = [*map(_parameter, offered), *map(_earlier_parameter, earlier), *own]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined] - typer reads it
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _parameter(each: "Field[Any]") -> Parameter:
    """Return the option of a setting, as a parameter of a command."""
    known, name = Setting.of(each), _OPTIONS[each.name]
    shown = {"help": known.help, "metavar": known.metavar or None}
    kind: Any = each.type
    if name == _ARGUMENT:
        option = Argument(show_default=False, **shown)
    else:
        is_number = kind in (int, int | None)
        # A position is written as text, too.
        kind = kind if is_number or kind is bool else str | None
        parser = whole_number if is_number else None
        option = Option(name, rich_help_panel=known.panel, parser=parser, **shown)
    return Parameter(
        each.name,
        Parameter.KEYWORD_ONLY,
        default=each.default,
        annotation=Annotated[kind, option],
    )


def _earlier_parameter(each: "Field[Any]") -> Parameter:
    """Return the earlier name of an option, as a hidden parameter of a command."""
    option = Option(Setting.of(each).earlier, hidden=True)
    return Parameter(
        _earlier_name(each),
        Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[str | None, option],
    )


def _earlier_name(each: "Field[Any]") -> str:
    return f"earlier_{each.name}"


def _take_earlier(each: "Field[Any]", given: dict[str, Any]) -> None:
    """Move the value of an option's earlier name to the option.

    Errors: a ValueError if both are given.
    """
    value = given.pop(_earlier_name(each))
    if value is None:
        return
    if given[each.name] is not None:
        raise ValueError(
            Message(
                "{option} and {earlier} are the same option. Omit {earlier}.",
                option=_OPTIONS[each.name],
                earlier=Setting.of(each).earlier,
            )
        )
    given[each.name] = value
