"""What the README shows is what its commands print now."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_outputs_are_those_of_their_commands():
    specification = importlib.util.spec_from_file_location("pictures", ROOT / "docs/pictures.py")
    pictures = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(pictures)
    assert pictures.OUTPUT.search(README)
    assert pictures.with_outputs(README) == README


def test_every_link_and_picture_is_there():
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
