"""The methods that vLLM's workers have while this package is installed.

vLLM calls `register` in each of its processes, by the entry point `vllm.general_plugins`. It costs
nothing until a method is called: nothing is wrapped, and PyTorch is not imported by it.
"""

import json
import sys
from typing import Any

from glasshead.private_names import private
from glasshead.serving.library_scans import pass_scans

# The classes of workers that hold a model runner, as versions of vLLM name them.
_WORKERS = "vllm.v1.worker.worker_base.WorkerBase"


def register() -> None:
    """Give vLLM's workers the methods by which a watch reaches them."""
    if "llvmlite" in sys.modules:
        pass_scans()
    worker = private(_WORKERS)
    if worker is None:
        return
    for method in (
        glasshead_start,
        glasshead_stop,
        glasshead_end,
        glasshead_names,
        glasshead_take,
        glasshead_means,
    ):
        setattr(worker, method.__name__, method)


def glasshead_start(self: Any, asked: str) -> str:
    """Begin to watch, and return the names of the layers; or why that cannot be, as JSON."""
    from glasshead.attention.io import described
    from glasshead.serving.engine_watcher import EngineWatcher, ServedChoices

    choices = json.loads(asked)
    choices["statistics"] = {name: described(one) for name, one in choices["statistics"].items()}
    if getattr(self, "_glasshead", None) is not None:
        if choices.pop("shared", False):
            return json.dumps({"layers": [*self._glasshead.layers]})
        return json.dumps({"refusal": "watch_vllm must be the only watch of an engine."})
    choices.pop("shared", None)
    try:
        self._glasshead = EngineWatcher(self.model_runner, ServedChoices(**choices))
    except Exception as error:  # noqa: BLE001 - it is raised by the process that asked
        said = str(error) if isinstance(error, ValueError | RuntimeError) else repr(error)
        return json.dumps({"refusal": said})
    return json.dumps({"layers": [*self._glasshead.layers]})


def glasshead_stop(self: Any) -> str:
    """End the watch, whose results can still be taken, and return what it took, as JSON."""
    watcher = self._glasshead
    watcher.stop()
    return json.dumps({"forgotten": watcher.forgotten, "seconds": watcher.seconds})


def glasshead_names(self: Any, request_id: str = "") -> list[str]:
    """Return the requests that were seen and not taken, by the engine's names.

    Args:
        request_id: The identifier of the requests' response; "": of any.
    """
    return [name for name in self._glasshead.requests if _is_of(name, request_id)]


def _is_of(name: str, request_id: str) -> bool:
    """Return whether a request is one of a response: vLLM numbers its prompts and its samples.

    >>> _is_of("cmpl-7-0-1f0c2a9b", "cmpl-7"), _is_of("2_cmpl-7-0-1f0c2a9b", "cmpl-7")
    (True, True)
    >>> _is_of("cmpl-77-0-1f0c2a9b", "cmpl-7")
    False
    """
    sample, _, rest = name.partition("_")
    parent = rest if sample.isdigit() else name
    return not request_id or f"{parent}-".startswith(f"{request_id}-")


def glasshead_take(self: Any, name: str, whole: bool = True) -> bytes | None:
    """Return the record of a request, and drop it if it has finished; None if it is not known."""
    from glasshead.serving.results import to_bytes

    watcher = self._glasshead
    if name not in watcher.requests:
        return None
    request = watcher.taken(name, whole=whole)
    return to_bytes(request, watcher.groups, watcher.choices.statistics, [*watcher.layers])


def glasshead_means(self: Any) -> str:
    """Return the queries so far and the sums of their statistics, by layer, as JSON."""
    watcher = self._glasshead
    return json.dumps({"sums": watcher.sums, "forgotten": watcher.forgotten})


def glasshead_end(self: Any) -> None:
    """Drop the watch."""
    self._glasshead = None
