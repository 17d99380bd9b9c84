"""Profiles of processors: those that ship with the package, and the one that `tune` measured."""

import json
import math
import os
import platform
import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from glasshead import __version__
from glasshead.attention.cost import ENGINES, WAYS, Profile, Speed
from glasshead.drawing.printable import one_line
from glasshead.files import read_regular, whole_file

SHIPPED = Path(__file__).with_name("processors")
DTYPES = ("float32", "bfloat16", "float16", "float64")
# A profile may lack this one, which has the default profile then.
_MAY_LACK = "float64"
# Files of another form are in another folder.
_FOLDER = "profiles-2"
_MOST_BYTES = 2**16


class Machine(NamedTuple):
    """The machine of a measured profile, which is ignored if one of these differs."""

    processor: str
    threads: int
    torch: str
    glasshead: str


def machine() -> Machine:
    """Describe the machine at hand, with the threads and the PyTorch of this process."""
    from glasshead.engines.streaming.kernels.processor import at_hand

    processor = f"{_processor()} ({at_hand().name})"
    return Machine(processor, torch.get_num_threads(), torch.__version__, __version__)


def _processor() -> str:
    """Name the processor, as the system does."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    found = dict(re.findall(r"^(\w[\w ]*?)\s*: (.*)$", told.split("\n\n")[0], re.MULTILINE))
    numbers = [found[key] for key in ("cpu family", "model", "stepping") if key in found]
    name = found.get("model name") or platform.machine()
    return " ".join([name, "-".join(numbers)]).strip()


def own_file() -> Path:
    """Return the file in the user's cache folder for the machine at hand."""
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    processor, threads, version, _ = machine()
    name = f"{processor} {threads} threads torch {version}"
    return Path(home) / "glasshead" / _FOLDER / f"{re.sub(r'[^0-9A-Za-z.]+', '-', name)}.json"


def at_hand(dtype: str) -> Profile:
    """Return the profile for calls in a dtype: a measured one, a shipped one, or the default."""
    return profiles().get(dtype) or default()


@cache
def default() -> Profile:
    """Return the profile of processors that nobody has measured, which favours SDPA."""
    return shipped("default")


def shipped(name: str) -> Profile:
    """Return a profile that ships with the package."""
    return parsed(json.loads((SHIPPED / f"{name}.json").read_bytes()))


@cache
def profiles() -> dict[str, Profile]:
    """Return the profile of each measured dtype, read once in a process.

    An own one that does not hold is ignored, with a warning of one sentence.
    """
    from glasshead.engines.streaming import matrix_tiles
    from glasshead.engines.streaming.machine_code import in_package

    # No call is to wait for a compiler.
    if not in_package():
        return {}
    found = _own() or _shipped()
    if found is None:
        return {}
    known = dict.fromkeys(found.speeds, found)
    if matrix_tiles.are_there() and matrix_tiles.refusal() is not None:
        del known["bfloat16"]
    return known


def _own() -> Profile | None:
    """Read the profile that was measured on this machine, if there is one that holds."""
    file = own_file()
    try:
        given = json.loads(read_regular(file, _MOST_BYTES))
        _check_machine(Machine(**given["machine"]))
        return parsed(given)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = error.strerror or str(error)
    except KeyError as error:
        why = f"it has no {error}"
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        why = str(error)
    warnings.warn(
        f"The profile {one_line(str(file))} is ignored ({one_line(why)[:200]}); run glasshead tune "
        "to measure again.",
        stacklevel=2,
    )
    return None


def _check_machine(was: Machine) -> None:
    """Raise a ValueError if a profile is of another machine or version."""
    for name, one, other in zip(Machine._fields, was, machine(), strict=True):
        if one != other:
            raise ValueError(f"its {name} is {one}, and here it is {other}")


def _shipped() -> Profile | None:
    """Return the shipped profile whose features the processor has: of several the closest one."""
    from glasshead.engines.streaming.kernels import processor

    fitting: list[tuple[int, dict[str, Any]]] = []
    for file in sorted(SHIPPED.glob("*.json")):
        given = json.loads(file.read_bytes())
        kind = given.get("for")
        if (
            kind is not None
            and processor.at_hand().name == kind["machine_code"]
            and all(map(processor.has, kind["has"]))
            and not any(map(processor.has, kind["lacks"]))
        ):
            fitting.append((len(kind["has"]) + len(kind["lacks"]), given))
    # The one that names the most features.
    return parsed(max(fitting, key=lambda one: one[0])[1]) if fitting else None


def parsed(given: dict[str, Any]) -> Profile:
    """Check the numbers of a profile.

    Errors: a KeyError, TypeError or ValueError if one is missing, or is no number in its range.
    """
    speeds = {
        dtype: {
            engine: {way: _speed(given["speeds"][dtype][engine][way]) for way in WAYS}
            for engine in ENGINES
        }
        for dtype in DTYPES
        if dtype != _MAY_LACK or dtype in given["speeds"]
    }
    bandwidth, operator = _number(given["bandwidth"]), _number(given["operator"])
    every = [speed for one in speeds.values() for ways in one.values() for speed in ways.values()]
    for call, pair, width, _, whole, number in every:
        if min(call, whole, pair + width, bandwidth) <= 0 or min(pair, width, number, operator) < 0:
            raise ValueError("its times must be positive")
    return Profile(str(given["name"]), speeds, bandwidth, operator)


def _speed(given: Any) -> Speed:
    if len(given) != len(Speed._fields):
        raise ValueError(f"a speed must have {len(Speed._fields)} numbers, got {len(given)}")
    return Speed(*map(_number, given))


def _number(given: Any) -> float:
    if type(given) not in (int, float) or not math.isfinite(given):
        raise ValueError(f"its times must be finite numbers, got {given!r}")
    return float(given)


def write(given: dict[str, Any]) -> Path:
    """Keep a measured profile in the user's cache folder, and return its file."""
    file = own_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(file) as temporary:
        temporary.write_text(json.dumps(given, indent=1) + "\n", encoding="utf-8")
    return file
