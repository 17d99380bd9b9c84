"""A view of the heads of a small model, with and without one of them open."""

import pytest

from glasshead.studio.background_jobs import Work
from glasshead.studio.studio import Studio
from glasshead.studio.views import heads
from studio.heads.heads_seen import OPEN, TEXT


@pytest.fixture(scope="module")
def studio(folder):
    return Studio(folder)


@pytest.fixture(scope="module")
def reading(studio):
    return heads.reading_of(studio, studio.texts.add(TEXT), Work())


@pytest.fixture
def place(serving, folder):
    """Where the view of the text is."""
    served = serving(folder)
    return served.url, f"#heads?text={served.studio.texts.add(TEXT)}"


@pytest.fixture
def opened(looking, place):
    """The view with a head open."""
    url, view = place
    look = looking(url)
    look.open(view + OPEN)
    return look
