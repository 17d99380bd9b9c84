"""What typer says of a mistake, which click said before in other words."""

import typer

# Typer has brought its own copy of click since it has this.
OWN = hasattr(typer, "TyperException")


def no_such_option(name: str) -> str:
    return f"No such option: {name}" if OWN else f"No such option '{name}'"


def possible_option(name: str, command: str) -> str:
    if OWN:
        return f"(Possible options: {name}); see {command} --help."
    return f"Did you mean '{name}'? See {command} --help."
