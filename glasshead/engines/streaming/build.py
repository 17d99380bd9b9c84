"""Compile the kernels for the processors that a wheel has machine code for, or for this one.

    python -P glasshead/engines/streaming/build.py FOLDER [PROCESSOR ... | native]

An editable installation takes `native`, and keeps the machine code in the user's cache for others.
Without -P, Python would take the modules beside this file for its own. Numba is all that it needs:
the packages that this file is in, which import PyTorch, are not run.
"""

import os
import subprocess
import sys
import types
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_ENVIRONMENT = {
    # Calls of a vector library of the machine that builds.
    "NUMBA_DISABLE_INTEL_SVML": "1",
    "NUMBA_CAPTURED_ERRORS": "new_style",
    # The order of sets is that of the machine code.
    "PYTHONHASHSEED": "0",
}


def build(folder: Path, names: list[str]) -> None:
    """Compile for some processors, each in a process of its own, and write the object files.

    Errors: a subprocess.CalledProcessError if one of them fails.
    """
    started = [
        subprocess.Popen(  # noqa: S603 - this very file
            [sys.executable, "-P", __file__, str(folder), name], env=os.environ | _ENVIRONMENT
        )
        for name in names
    ]
    for process in started:
        if process.wait():
            raise subprocess.CalledProcessError(process.returncode, process.args)


def build_here(folder: Path) -> None:
    """Compile the kernels for the processor at hand, but those that are there or in the cache."""
    os.environ |= _ENVIRONMENT
    _skip_packages()
    from glasshead.engines.streaming import machine_code
    from glasshead.engines.streaming.kernels.processor import at_hand

    for entry, real in machine_code.KERNELS:
        if machine_code.shipped(entry, real, at_hand(), folder) is None:
            code = machine_code.code_of(entry, real)
            machine_code.save(folder, entry, real, at_hand(), code)


def build_for(folder: Path, name: str, only: str = "") -> None:
    """Compile the kernels, or one, for a processor in this process, but those that are there."""
    _skip_packages()
    _skip_folders()
    from glasshead.engines.streaming.kernels import processor

    wanted = next(one for one in processor.SHIPPED if one.name == name)
    # What the kernels are written for, before they are imported.
    processor.at_hand = lambda: wanted
    from glasshead.engines.streaming import machine_code
    from glasshead.engines.streaming.kernels.compiling import compiled

    for entry, real in machine_code.KERNELS:
        missing = machine_code.shipped(entry, real, wanted, folder) is None
        if missing and only in ("", entry):
            machine_code.save(folder, entry, real, wanted, compiled(entry, real, wanted))


def _skip_packages() -> None:
    """Enter empty packages for those of this file, which find their modules all the same."""
    names = ("glasshead.engines.streaming", "glasshead.engines", "glasshead")
    for above, name in zip([_HERE, *_HERE.parents], names, strict=False):
        package = types.ModuleType(name)
        package.__path__ = [str(above)]
        sys.modules[name] = package


def _skip_folders() -> None:
    """Name the kernels' files without the folder of this machine, as machine code holds the names.

    Call it before they are imported.
    """
    root, usual = _HERE.parents[2], SourceFileLoader.source_to_code

    def source_to_code(self: Any, data: Any, path: Any, **options: Any) -> Any:
        file = Path(os.fsdecode(path))
        name = file.relative_to(root).as_posix() if file.is_relative_to(root) else path
        return usual(self, data, name, **options)

    SourceFileLoader.source_to_code = source_to_code
    # Code that was kept has the names that it was compiled with.
    sys.pycache_prefix = str(root / "build" / "no_code_is_here")
    sys.dont_write_bytecode = True


def main() -> None:
    """Build for the processors that are named, or for all."""
    folder, *names = sys.argv[1:]
    if names == ["native"]:
        build_here(Path(folder))
    elif len(names) == 1:
        build_for(Path(folder), names[0])
    else:
        _skip_packages()
        from glasshead.engines.streaming.kernels.processor import SHIPPED

        build(Path(folder), names or [one.name for one in SHIPPED])


if __name__ == "__main__":
    main()
