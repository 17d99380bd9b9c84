"""What every test and doctest shares: a plan's memory, which is printed, depends on the threads."""

from importlib.util import find_spec

import pytest
import torch
from _pytest.doctest import DoctestItem
from torch.utils._python_dispatch import TorchDispatchMode

torch.set_num_threads(2)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the limit of `make test-all`."""
    parser.addoption(
        "--processor-time",
        type=float,
        metavar="SECONDS",
        help="fail each test without the marker slow that takes more processor time",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Count processor time if there is a limit."""
    limit = config.getoption("--processor-time")
    if limit is not None:
        from processor_time import ProcessorTime

        config.pluginmanager.register(ProcessorTime(limit))


# What builds the site has no examples, and wants Sphinx.
collect_ignore = ["docs/build_site.py", "docs/building", "docs/conf.py"]
if find_spec("triton") is None:
    collect_ignore += [f"glasshead/engines/triton/{name}.py" for name in ("kernels", "passes")]

COMPILED = "## A compiled model\n"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the examples of compiled models where PyTorch is too old for them."""
    if hasattr(TorchDispatchMode, "ignore_compile_internals"):
        return
    for item in items:
        if isinstance(item, DoctestItem) and COMPILED in (text := item.dtest.docstring or ""):
            before, _, after = text.partition(COMPILED)
            first = before.count("\n")
            last = first + after.partition("\n## ")[0].count("\n")
            examples = item.dtest.examples
            item.dtest.examples = [one for one in examples if not first <= one.lineno <= last]
