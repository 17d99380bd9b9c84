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
    """Return the page, with the meanings and a table of the words for each group."""
    head = ("English", *(LANGUAGES[language] for language in OTHERS))
    parts = [HEAD]
    for group in groups():
        terms = group["term"]
        meanings = [f"- **{term['name']}**: {term['means']}" for term in terms]
        rows = [(term["name"], *(term[language][0] for language in OTHERS)) for term in terms]
        table = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
        table.insert(1, "|---" * len(head) + "|")
        parts.append("\n".join([f"## {group['title']}", "", *meanings, "", *table, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
