"""How an engine of vLLM starts after llvmlite is loaded."""

from functools import cache
from typing import Any

from glasshead.private_names import private


@cache
def pass_scans() -> None:
    """Let llvmlite's library have no `__dict__`, as an engine of vLLM that starts fails at it.

    vLLM 0.32 then reads the `__dict__` of all that is loaded, and llvmlite takes the name for that
    of a function in machine code.
    """
    library = private("llvmlite.binding.ffi.lib")
    kind = type(library)
    usual = getattr(kind, "__getattr__", None)
    if usual is None:
        return

    def of_library(self: Any, name: str) -> Any:
        if name == "__dict__":
            raise AttributeError(name)
        return usual(self, name)

    kind.__getattr__ = of_library
