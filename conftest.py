"""What every test and doctest shares: a plan's memory, which is printed, depends on the threads."""

from doctest import DocTest
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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the examples of compiled models in a slow item of their page, unless PyTorch is too old.

    The item with the page's name leaves them out.
    """
    for item in [*items]:
        if isinstance(item, DoctestItem) and COMPILED in (text := item.dtest.docstring or ""):
            if hasattr(TorchDispatchMode, "ignore_compile_internals"):
                items.insert(items.index(item) + 1, whole_page(item))
            before, _, after = text.partition(COMPILED)
            first = before.count("\n")
            last = first + after.partition("\n## ")[0].count("\n")
            examples = item.dtest.examples
            item.dtest.examples = [one for one in examples if not first <= one.lineno <= last]
            if not item.dtest.examples:
                items.remove(item)


def whole_page(item: DoctestItem) -> DoctestItem:
    """Return a slow item with all examples of a page."""
    page = item.dtest
    test = DocTest(
        page.examples, page.globs.copy(), page.name, page.filename, page.lineno, page.docstring
    )
    name = f"{item.name} with compiled models"
    whole = DoctestItem.from_parent(item.parent, name=name, runner=item.runner, dtest=test)
    whole.add_marker(pytest.mark.slow)
    return whole
