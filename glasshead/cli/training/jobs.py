"""Jobs: the tasks that runs are for, by name, each imported where it is asked for."""

from importlib import import_module
from typing import Any

from glasshead.tasks.job import Job


def job(task: str) -> Job[Any]:
    """The job of a task.

    >>> job("write").title
    'A language model'
    """
    return getattr(import_module(f"glasshead.tasks.{task}"), task.upper())
