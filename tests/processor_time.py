"""A limit on the processor time of tests without the marker `slow`, with the processes they start.

Two kinds of work are shared by many tests and do not count: fixtures of a wider scope than a test,
and the first import of a module. The limit is that of `make test`. A test that draws more examples
in another profile may take as many times longer.
"""

import importlib.machinery
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hypothesis_profiles import PROFILE, SHARES


def processor_time() -> float:
    """Return the seconds that this process and the children it waited for have computed."""
    took = os.times()
    return took.user + took.system + took.children_user + took.children_system


class ProcessorTime:
    """Fails each test without the marker `slow` that takes more processor time than a limit.

    Args:
        limit: In seconds.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._began, self._shared, self._depth = 0.0, 0.0, 0
        executed = importlib.machinery.SourceFileLoader.exec_module

        def shared(loader: Any, module: Any) -> None:
            with self.sharing():
                executed(loader, module)

        importlib.machinery.SourceFileLoader.exec_module = shared

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Do not count what happens in the block."""
        began, self._depth = processor_time(), self._depth + 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self._shared += processor_time() - began

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """Do not count fixtures of a class, module or session."""
        if fixturedef.scope == "function":
            return (yield)
        with self.sharing():
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Start to count."""
        self._began, self._shared = processor_time(), 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """Fail a test that took too long."""
        took = processor_time() - self._began - self._shared
        result = yield
        draws = item.get_closest_marker("hypothesis") is not None
        limit = self.limit * (SHARES[PROFILE] / SHARES["quick"] if draws else 1)
        if took > limit and item.get_closest_marker("slow") is None:
            pytest.fail(
                f"a test without the marker slow must take at most {limit:g} s of processor time, "
                f"got {took:.1f} s.",
                pytrace=False,
            )
        return result
