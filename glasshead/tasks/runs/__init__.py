"""Runs: how a task's training begins, goes on, and is used again, whichever task it is."""

from glasshead.tasks.runs.data import RunData, digest
from glasshead.tasks.runs.job import Job, Prepared, Read, train_to_the_end
from glasshead.tasks.runs.preset import Preset
from glasshead.tasks.runs.settings import RunSettings
