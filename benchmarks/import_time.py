"""What it costs to start: whole processes, in pairs."""

import subprocess
import sys
from pathlib import Path

from pairs import Pair, judged, paired, report

RESULTS = Path("build/benchmarks/import_time.json")


def process(*arguments: str) -> None:
    """Run Python to its end."""
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def against_torch() -> Pair:
    """`import glasshead; glasshead.Attention` against `import torch`."""
    times = paired(
        lambda: process("-c", "import glasshead; glasshead.Attention"),
        lambda: process("-c", "import torch"),
        pairs=15,
    )
    return judged("import glasshead; glasshead.Attention | import torch", times, ratio=1.15)


def help_page() -> Pair:
    """`glasshead --help` against a Python that does nothing, at most half a second over it."""
    times = paired(
        lambda: process("-m", "glasshead", "--help"), lambda: process("-c", ""), pairs=15
    )
    return judged("glasshead --help | python -c ''", times, difference=0.5)


if __name__ == "__main__":
    report("Starting, whole processes", [against_torch(), help_page()], RESULTS)
