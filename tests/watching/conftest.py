"""What the tests of watching share: the compiler, and processes that are ranks of each other."""

import pytest
import torch

from watching.ranks import Ranks


@pytest.fixture(scope="session")
def compiler():
    """Start the compiler, of which the first use takes long."""
    torch.compile(lambda x: x.sin() @ x, backend="aot_eager")(torch.ones(3, 3))


@pytest.fixture(scope="session")
def of_ranks():
    """Call a function of a module on each of two ranks."""
    ranks = Ranks()
    yield ranks
    ranks.close()
