"""Print where the tests of rooms are, and of what imports them: make test ROOM=watching."""

import sys
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]


def tested(rooms: list[str]) -> list[str]:
    """Return the folders with the tests and the examples of rooms and of what imports them.

    Errors: a SystemExit with a sentence where one is not a folder of the package.
    """
    graph = grimp.build_graph("glasshead", cache_dir=None)
    known = sorted(name for name in graph.find_children("glasshead") if graph.find_children(name))
    for name in known:
        graph.squash_module(name)
    named = [f"glasshead.{room}" for room in rooms]
    for room, name in zip(rooms, named, strict=True):
        if name not in known:
            folders = ", ".join(other.removeprefix("glasshead.") for other in known)
            raise SystemExit(f"ROOM must be one of {folders}, got {room!r}.")
    importing = {other for name in named for other in graph.find_modules_that_directly_import(name)}
    found = [name.removeprefix("glasshead.") for name in known if name in {*named, *importing}]
    folders = [f"{parent}/{name}" for name in found for parent in ("glasshead", "tests")]
    return [folder for folder in folders if (ROOT / folder).is_dir()]


if __name__ == "__main__":
    sys.stdout.write(" ".join(tested(sys.argv[1:])))
