"""Copy the versions of constraints.txt into pyproject.toml, the one place where uv looks for them.

python matrix/pins.py
"""

import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ROOT / "pyproject.toml"
CONSTRAINTS = ROOT / "constraints.txt"
_PINS = re.compile(r"(?<=^constraint-dependencies = \[\n).*?(?=^\]$)", re.DOTALL | re.MULTILINE)


def with_pins(project: str, constraints: str) -> str:
    """Return the text of pyproject.toml with the versions of constraints.txt."""
    quoted = " ".join(f'"{line}",' for line in constraints.split())
    lines = textwrap.indent(textwrap.fill(quoted, 96, break_on_hyphens=False), "    ")
    return _PINS.sub(lambda _: f"{lines}\n", project)


if __name__ == "__main__":
    written = with_pins(PROJECT.read_text(encoding="utf-8"), CONSTRAINTS.read_text())
    PROJECT.write_text(written, encoding="utf-8", newline="\n")
