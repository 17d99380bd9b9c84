"""Run the notebooks, and write each beside its text: NAME.md, of MyST, gives NAME.ipynb.

    make notebooks                           # all of them
    python notebooks/build.py a-tr english   # some

What differs from one machine to the next is left out, so that a run that tells the same writes the
same file: times, versions, the addresses of objects, and the numbers of cells.
"""

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parent
# Of an object that draws itself as HTML, its name alone is text enough.
_ADDRESS = re.compile(r"<(?:\w+\.)*(\w+)(?: object)? at 0x[0-9a-f]+>")
_LONGEST_TEXT = 200


def names() -> list[str]:
    """Return the names of the notebooks, without an ending."""
    return sorted(file.stem for file in FOLDER.glob("*.md") if file.stem != "README")


def read(name: str) -> NotebookNode:
    """Read the text of a notebook; its cells are numbered, and have no outputs."""
    notebook = jupytext.read(FOLDER / f"{name}.md", fmt="md:myst")
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    notebook.metadata = {
        "kernelspec": notebook.metadata["kernelspec"],
        "language_info": {"name": "python"},
    }
    return notebook


def execute(notebook: NotebookNode, timeout: float = 240) -> NotebookNode:
    """Run all cells in a folder of their own, and keep of their outputs what stays the same."""
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook,
            timeout=timeout,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        ).execute()
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            _settle(output)
    return notebook


def _settle(output: NotebookNode) -> None:
    """Shorten the text that stands in for a drawing to its first line, or to a name."""
    data = output.get("data", {})
    if "text/html" in data:
        first = _ADDRESS.sub(r"<\1>", data.get("text/plain", "")).partition("\n")[0]
        data["text/plain"] = first if len(first) <= _LONGEST_TEXT else first.partition("(")[0]


def stored(name: str) -> NotebookNode:
    """Read the notebook as it was written last, with its outputs."""
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def build(name: str) -> Path:
    """Run a notebook, and write it."""
    file = FOLDER / f"{name}.ipynb"
    nbformat.write(execute(read(name)), file)
    return file


def main(arguments: Sequence[str]) -> int:
    """Build the notebooks that are named, or all; the exit code is 2 for a name that is none."""
    known = names()
    for name in arguments:
        if name not in known:
            print(f"name must be one of {', '.join(known)}, got {name}.", file=sys.stderr)
            return 2
    for name in arguments or known:
        file = build(name)
        print(f"{file.relative_to(FOLDER.parent)}  {file.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
