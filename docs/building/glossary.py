"""Write the page of the glossary: python docs/building/glossary.py."""

import sys
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from building.pages import LANGUAGES, OTHERS, ROOT

TERMS = ROOT / "docs" / "reference" / "glossary.toml"
PAGE = TERMS.with_suffix(".md")
HEAD = """\
# Glossary of attention, in five languages

With this page you can look up what a term means, and its name in Turkish, Spanish and Chinese.

```sh
glasshead explain --lang tr    # these terms, with their numbers
```

The translations of commands, reports and the studio use these words. They are kept in
[glossary.toml](glossary.toml), from which this page is made.
"""


def groups() -> list[dict[str, Any]]:
    """Return the groups of terms, each with its title."""
    return tomllib.loads(TERMS.read_text("utf-8"))["group"]


def page() -> str:
    """Return the page, with a table for each group."""
    head = ("term", "meaning", *(LANGUAGES[language] for language in OTHERS))
    parts = [HEAD]
    for group in groups():
        rows = [
            (f"**{term['name']}**", term["means"], *(term[language][0] for language in OTHERS))
            for term in group["term"]
        ]
        lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
        lines.insert(1, "|---" * len(head) + "|")
        parts.append("\n".join([f"## {group['title']}", "", *lines, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
