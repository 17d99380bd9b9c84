"""Make what the README shows: the picture of the page, and the outputs of its commands.

    python docs/pictures.py            writes docs/pictures/ (wants Chromium) and README.md
    python docs/pictures.py outputs    writes README.md alone

An output stands in the README between `<!-- output of: COMMAND -->` and `<!-- end -->`.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PICTURES = ROOT / "docs" / "pictures"
OUTPUT = re.compile(r"(<!-- output of: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)

PAGES = {
    "hello_shiny_sun": ((), (1000, 1250)),
    "hello_shiny_sun_chinese": (("--lang", "zh-Hant"), (1000, 1250)),
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
# A page that is only looked at needs no network, no window and no profile that lasts.
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
)


def output(command: str) -> str:
    """What a command prints, 80 columns wide and without colour."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, shell=True, capture_output=True, check=True, env=environment)
    return done.stdout.decode().rstrip()


def with_outputs(readme: str) -> str:
    """The README with each output as it is now."""
    return OUTPUT.sub(lambda m: f"{m[1]}```console\n$ {m[2]}\n{output(m[2])}\n```\n{m[3]}", readme)


def picture(page: Path, file: Path, size: tuple[int, int]) -> None:
    """Photograph a page with the browser that is there."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"pictures are taken by Chromium: install one of {', '.join(BROWSERS)}.")
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                *(browser, *QUIET, f"--user-data-dir={profile}", f"--screenshot={file}"),
                *(f"--window-size={size[0]},{size[1]}", page.as_uri()),
            ],
            check=True,
            capture_output=True,
        )
    print(f"wrote {file.relative_to(ROOT)}")


def main() -> None:
    """Write all of it, or the outputs alone."""
    if sys.argv[1:] != ["outputs"]:
        PICTURES.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            for name, (options, size) in PAGES.items():
                page = Path(folder) / f"{name}.html"
                output(shlex.join(["glasshead", "explain", *options, "--html", str(page)]))
                picture(page, PICTURES / f"{name}.png", size)
    README.write_text(with_outputs(README.read_text(encoding="utf-8")), encoding="utf-8")
    print("wrote README.md")


if __name__ == "__main__":
    main()
