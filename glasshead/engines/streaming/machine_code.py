"""Machine code of the kernels: what a wheel holds, or else compiled here once, and kept on disk.

Compiled code is looked for in the package, then in a cache, and compiled by Numba where neither has
any that fits. A file fits if it was made of these very sources, for this processor, and is whole.
"""

import contextlib
import ctypes
import hashlib
import importlib.metadata
import math
import os
import struct
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from llvmlite import binding

from glasshead.engines.streaming.kernels.arguments import ENTRIES
from glasshead.engines.streaming.kernels.layouts import layout_of, parts_of
from glasshead.engines.streaming.kernels.processor import Processor, at_hand

# A build fills it: of a wheel for each kind of processor, of a clone for the one at hand.
SHIPPED_FOLDER = Path(__file__).with_name("machine_code")
_KERNELS = Path(__file__).with_name("kernels")
_DIGEST = 32
KERNELS = [(name, np.dtype(real)) for name in ENTRIES for real in (np.float32, np.float64)]
# Files of a kernel in the cache: of this state of the sources and some before, or of other clones.
_KEPT = 8
_lock = threading.RLock()
_loaded: dict[tuple[str, np.dtype], "Kernel"] = {}


class Place(NamedTuple):
    """Contiguous array, or number, of which the place alone is known, in memory that a call gives.

    Attributes:
        base: The name of what it is in.
        shape: Its sizes, none of a number.
        offset: From the base, in bytes.
        moves: The bytes from each batch row, key head, head of a group, and stripe to the next.
        loaded: Whether a number stands there; else it is the sum of the base, offset and moves.
    """

    base: str
    shape: tuple[int, ...] = ()
    offset: int = 0
    moves: tuple[int, int, int, int] = (0, 0, 0, 0)
    loaded: bool = False


class Packer:
    """Packs the arguments of one kernel, in the block that it is called with.

    Args:
        entry: The name of the kernel.
        real: Its dtype.
    """

    def __init__(self, entry: str, real: np.dtype) -> None:
        self.entry, self.real = entry, real
        # The dtype and the axes of each array, None for a number, in order.
        self._leaves: list[tuple[np.dtype, int] | None] = []
        self._format = "".join(map(self._add, ENTRIES[entry]))

    def _add(self, kind: Any) -> str:
        """Record the leaves of a type, and return their format for `struct`."""
        parts = parts_of(kind)
        if parts is not None:
            return "".join(map(self._add, parts))
        layout = layout_of(kind)
        if layout is None:
            self._leaves.append(None)
            return "d" if kind is float else "q"
        dtype = self.real if layout.dtype == "real" else np.dtype(layout.dtype)
        self._leaves.append((dtype, layout.axes))
        return "q" * (1 + layout.axes)

    def __call__(self, arguments: tuple[Any, ...]) -> bytes:
        """Pack arguments; those of another dtype or layout would be read as wrong numbers."""
        return struct.pack(self._format, *self.words(arguments))

    def words(self, arguments: tuple[Any, ...]) -> list[int | float | Place]:
        """Return the words of arguments, of which some are a `Place`, and arrays may be None."""
        words: list[Any] = []
        for part, layout in self._with_layouts(arguments):
            axes = 0 if layout is None else layout[1]
            if type(part) is Place:
                if len(part.shape) != axes:
                    raise TypeError(
                        f"an array of the kernel {self.entry} must have {axes} axes, got "
                        f"{len(part.shape)}."
                    )
                words += (part, *part.shape)
            elif layout is None:
                words.append(part)
            elif part is None:
                words += [0] * (1 + axes)
            else:
                if part.dtype != layout[0] or part.ndim != axes or not part.flags.c_contiguous:
                    raise TypeError(
                        f"the kernel {self.entry} needs contiguous arrays of {layout[0]} and "
                        f"{axes} axes, got {part.dtype}{list(part.shape)}."
                    )
                words += (part.ctypes.data, *part.shape)
        return words

    def places(self, arguments: tuple[Any, ...]) -> Iterator[tuple[Place, int]]:
        """Yield each place among arguments, and how many bytes it has."""
        for part, layout in self._with_layouts(arguments):
            if type(part) is Place:
                itemsize = 8 if layout is None else layout[0].itemsize
                yield part, math.prod(part.shape) * itemsize

    def _with_layouts(
        self, arguments: tuple[Any, ...]
    ) -> Iterator[tuple[Any, tuple[np.dtype, int] | None]]:
        return zip(_flat(arguments), self._leaves, strict=True)


def _flat(value: tuple[Any, ...]) -> Iterator[Any]:
    """Yield the arrays and numbers of tuples."""
    for part in value:
        if isinstance(part, tuple) and type(part) is not Place:
            yield from _flat(part)
        else:
            yield part


class Kernel:
    """A kernel in machine code: called with what `ENTRIES` lists, without Python's lock.

    Args:
        entry: The name of the kernel.
        real: The dtype that it computes in.
        code: Its object file.

    Attributes:
        pack: The packer of its arguments.
        run: Calls it with packed arguments, and returns its status.
        address: Where its machine code is.
        in_thread: Where that is which takes the address of packed arguments alone, or 0.
    """

    def __init__(self, entry: str, real: np.dtype, code: bytes) -> None:
        self.pack = Packer(entry, real)
        # An engine for each, as an object file holds the small kernels that it calls.
        self._engine = engine()
        self._engine.add_object_file(binding.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        address = self._engine.get_function_address(f"glasshead_{entry}")
        if not address:
            raise RuntimeError(f"the object file does not contain the kernel {entry}.")
        self.address = address
        self.in_thread = self._engine.get_function_address(f"glasshead_{entry}_in_thread")
        kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
        unused = (ctypes.c_int64 * 4)()
        self.run, self._entry = partial(kind(address), unused, unused), entry

    def __call__(self, *arguments: Any) -> None:
        status = self.run(self.pack(arguments))
        if status:
            raise RuntimeError(f"the kernel {self._entry} ended with status {status}.")


def kernel(entry: str, real: np.dtype) -> Kernel:
    """Return a kernel for one dtype, loaded or compiled on its first use."""
    found = _loaded.get((entry, real))
    if found is not None:
        return found
    with _lock:
        if (entry, real) not in _loaded:
            _loaded[entry, real] = Kernel(entry, real, code_of(entry, real))
        return _loaded[entry, real]


def code_of(entry: str, real: np.dtype) -> bytes:
    """Return the object file of a kernel: the package's, the cache's, or compiled now."""
    return shipped(entry, real, at_hand()) or _cached(entry, real) or _compile(entry, real)


@cache
def in_package() -> bool:
    """Return whether the package was built with the kernels of float32 for this processor.

    Of a clone whose kernels were edited since, too: they are compiled on their first use, and the
    same engines are chosen.
    """
    real = np.dtype(np.float32)
    return all((SHIPPED_FOLDER / file_name(entry, real, at_hand())).exists() for entry in ENTRIES)


def shipped(
    entry: str, real: np.dtype, processor: Processor, folder: Path | None = None
) -> bytes | None:
    """Return the object file that the package, or a folder, holds; None for none that fits."""
    key, folder = _key(entry, real, processor), folder or SHIPPED_FOLDER
    return None if key is None else _read(folder / file_name(entry, real, processor), key)


def save(folder: Path, entry: str, real: np.dtype, processor: Processor, code: bytes) -> None:
    """Write an object file for a wheel to ship."""
    key = _key(entry, real, processor)
    if key is None:
        raise OSError(f"the sources of the kernels are not in {_KERNELS}.")
    _write(folder / file_name(entry, real, processor), key, code)


def file_name(entry: str, real: np.dtype, processor: Processor) -> str:
    """Return the name of an object file."""
    return f"{processor.name}.{entry}.{real.name}.o"


def _compile(entry: str, real: np.dtype) -> bytes:
    """Compile a kernel, and keep it for later processes."""
    if entry.endswith("_blocks"):
        print(  # noqa: T201 - seconds without a word would be taken for a hang
            f"glasshead: compiling {entry} for this processor, once: some seconds …",
            file=sys.stderr,
            flush=True,
        )
    # Numba takes long to import, and is needed here only.
    from glasshead.engines.streaming.kernels.compiling import compiled

    code = compiled(entry, real, at_hand())
    if (file := _cache_file(entry, real)) is not None:
        # A full disk costs the next process some seconds, and this one nothing.
        with contextlib.suppress(OSError):
            _write(file, _own_key(entry, real) or b"", code)
            same = file.parent.glob(f"{at_hand().name}.{entry}.{real.name}.*.o")
            for older in sorted(same, key=lambda one: one.stat().st_mtime)[:-_KEPT]:
                older.unlink()
    return code


def _cached(entry: str, real: np.dtype) -> bytes | None:
    file = _cache_file(entry, real)
    return None if file is None else _read(file, _own_key(entry, real) or b"")


def _cache_file(entry: str, real: np.dtype) -> Path | None:
    """Return the file of the cache that a kernel of these sources is kept in; None for none."""
    key, folder = _own_key(entry, real), _cache_folder()
    if key is None or folder is None:
        return None
    name = file_name(entry, real, at_hand()).removesuffix(".o")
    return folder / f"{name}.{hashlib.sha256(key).hexdigest()[:16]}.o"


@cache
def _cache_folder() -> Path | None:
    """Return a folder to keep compiled code in; None if nothing can be written."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    folders = [Path(home) / "glasshead" / "machine_code", _KERNELS / "__pycache__"]
    if given:
        folders = [Path(given)]
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            # Whether a file can be made there is tried, as Windows calls every folder writable.
            tried = folder / f".{os.urandom(8).hex()}.tmp"
            tried.touch()
            tried.unlink()
            return folder
    return None


@cache
def _sources() -> bytes | None:
    """Return the digest of the kernels' sources; None if they are not there to be read."""
    digest = hashlib.sha256()
    try:
        for path in sorted(_KERNELS.glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes().replace(b"\r\n", b"\n"))
    except OSError:
        return None
    return digest.digest()


def _key(entry: str, real: np.dtype, processor: Processor) -> bytes | None:
    """Return what machine code is made of: sources, processor, kernel and dtype."""
    sources = _sources()
    if sources is None:
        return None
    features = processor.triple, processor.cpu, processor.features, tuple(processor.tile)
    return sources + repr((features, entry, real.name)).encode()


@cache
def _own_key(entry: str, real: np.dtype) -> bytes | None:
    """Return the key of code that is compiled here, which the compiler's version belongs to."""
    key = _key(entry, real, at_hand())
    if key is None:
        return None
    versions = [importlib.metadata.version(name) for name in ("numba", "llvmlite")]
    return key + repr(versions).encode()


def _read(file: Path, key: bytes) -> bytes | None:
    """Read an object file; None if there is none, or one of another key, or a damaged one."""
    try:
        found = file.read_bytes()
    except OSError:
        return None
    code = found[_DIGEST:]
    return code if hashlib.sha256(key + code).digest() == found[:_DIGEST] else None


def _write(file: Path, key: bytes, code: bytes) -> None:
    """Write an object file with its digest, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=file.parent)
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(hashlib.sha256(key + code).digest() + code)
        Path(name).chmod(0o644)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def engine(cpu: str = "", features: str = "") -> Any:
    """Make an engine that runs machine code, for a processor that LLVM names."""
    # Before version 0.45 LLVM is to be initialized, and later that raises an error.
    with contextlib.suppress(RuntimeError):
        binding.initialize()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    machine = target.create_target_machine(cpu=cpu, features=features, opt=3)
    return binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
