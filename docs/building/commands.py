"""The reference of the commands: each with its arguments and options, as its `--help` has them."""

import re
from collections.abc import Iterator
from typing import Any

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from glasshead.cli.app import app

# Characters that Markdown would read as markup.
_MARKUP = re.compile(r"([\\`*_<>\[\]{}#|~$])")


class Commands(SphinxDirective):
    """Document every command, in the order of `glasshead --help`."""

    def run(self) -> list[nodes.Node]:
        """Return a section for each command."""
        block = nodes.Element()
        lines = [line for path, command in commands() for line in described(path, command)]
        source = StringList(lines, source="glasshead --help")
        self.state.nested_parse(source, self.content_offset, block, match_titles=True)
        return block.children


def commands() -> Iterator[tuple[str, Any]]:
    """Yield each command that can be run, with how it is called."""
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        for task, of_task in getattr(command, "commands", {"": command}).items():
            yield f"glasshead {name} {task}".rstrip(), of_task


def described(path: str, command: Any) -> list[str]:
    """Return the section of a command, in Markdown."""
    context = command.make_context(path, [], resilient_parsing=True)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    lines = [f"## {path}", "", _prose(command.help), "", "```text", usage, "```", ""]
    lines += [f"```{{program}} {path}", "```", ""]
    panels: dict[str, list[str]] = {}
    for parameter in command.params:
        if not parameter.hidden and parameter.name != "help":
            is_option = parameter.param_type_name == "option"
            panel = parameter.rich_help_panel or ("Options" if is_option else "Arguments")
            names, said = parameter.get_help_record(context)
            names = names if is_option else parameter.metavar
            entry = [f"````{{option}} {names}", _prose(said), "````", ""]
            panels.setdefault(panel, []).extend(entry)
    for panel, entries in panels.items():
        lines += [f"**{panel}**", "", *entries]
    return lines


def _prose(text: str) -> str:
    """Return a help text as one paragraph of Markdown."""
    plain = " ".join(text.split()).replace("\\[", "[")  # rich takes [ for its own markup
    return _MARKUP.sub(r"\\\1", plain)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
