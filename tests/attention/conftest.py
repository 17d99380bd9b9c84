"""What kernels know of the processor is read before a test pretends another one."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def kernels_of_the_processor_at_hand():
    """Load the kernels: those that were made for a pretended processor compute wrong numbers."""
    from glasshead.engines.streaming import paged, passes
    from glasshead.engines.streaming.kernels.processor import columns_of

    assert paged
    assert passes
    for itemsize in (2, 4, 8):
        columns_of(itemsize)
