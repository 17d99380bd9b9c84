"""What it costs to start: whole processes, in pairs."""

import os
import subprocess
import sys
from pathlib import Path

from pairs import Pair, judged, paired, report

RESULTS = Path("build/benchmarks/import_time.json")


def process(*arguments: str) -> None:
    """Run Python to its end, with compiled modules as an installed package has them."""
    unset = "PYTHONDONTWRITEBYTECODE"
    variables = {name: value for name, value in os.environ.items() if name != unset}
    subprocess.run(
        [sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=variables
    )


def against_torch() -> Pair:
    """`import glasshead; glasshead.Attention` against `import torch`."""
    times = paired(
        lambda: process("-c", "import glasshead; glasshead.Attention"),
        lambda: process("-c", "import torch"),
        pairs=15,
    )
    return judged("import glasshead; glasshead.Attention | import torch", times, ratio=1.12)


def help_page() -> Pair:
    """`glasshead --help` against a Python that does nothing, at most 0.25 s over it."""
    times = paired(
        lambda: process("-m", "glasshead", "--help"), lambda: process("-c", ""), pairs=15
    )
    return judged("glasshead --help | python -c ''", times, difference=0.25)


if __name__ == "__main__":
    report("Starting, whole processes", [against_torch(), help_page()], RESULTS)
