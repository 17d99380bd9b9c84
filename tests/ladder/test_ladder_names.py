"""The ladder hands its names on when they are used, and not before."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from glasshead import ladder


def test_the_worked_example_is_read_without_torch():
    program = (
        "import sys; from glasshead.ladder import HELLO_SHINY_SUN as a; "
        "from glasshead.ladder.worked_example import HELLO_SHINY_SUN as b; "
        "sys.exit(a is not b or 'torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", ladder.__all__)
def test_every_name_is_there(name):
    assert getattr(ladder, name) is not None
    assert name in dir(ladder)


def test_type_checkers_see_the_same_names():
    stub = ast.parse(Path(ladder.__file__).with_suffix(".pyi").read_text())
    names = {alias.asname for line in stub.body for alias in line.names}
    assert names == set(ladder.__all__)


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match=r"'glasshead\.ladder' has no attribute 'rung_9'"):
        _ = ladder.rung_9
