"""Runs that are still, that are written to, and what is told of one."""

import pytest

from glasshead.studio.studio import Studio
from glasshead.studio.views.training import TrainingLog
from studio.small_runs import SmallRun


@pytest.fixture(scope="module")
def still(tmp_path_factory, serving):
    """A run of which nothing more is written, and its address."""
    run = SmallRun(tmp_path_factory.mktemp("still") / "run").watch().go(37)
    return run, serving(run.folder.path).url


@pytest.fixture
def growing(tmp_path, serves):
    """A run that is written to, and its studio."""
    run = SmallRun(tmp_path / "run").watch().go(11)
    return run, serves(Studio(run.folder.path))


@pytest.fixture
def run(tmp_path):
    return SmallRun(tmp_path / "run").watch()


@pytest.fixture
def log(run):
    return TrainingLog(run.folder.path)
