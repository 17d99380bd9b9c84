"""Leave out the examples of compiled models where PyTorch is too old for them."""

import pytest
from _pytest.doctest import DoctestItem
from torch.utils._python_dispatch import TorchDispatchMode

SECTION = "## A compiled model\n"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take the examples of that section out where nothing can be compiled anew."""
    if hasattr(TorchDispatchMode, "ignore_compile_internals"):
        return
    for item in items:
        if isinstance(item, DoctestItem) and SECTION in (text := item.dtest.docstring or ""):
            before, _, after = text.partition(SECTION)
            first = before.count("\n")
            last = first + after.partition("\n## ")[0].count("\n")
            examples = item.dtest.examples
            item.dtest.examples = [one for one in examples if not first <= one.lineno <= last]
