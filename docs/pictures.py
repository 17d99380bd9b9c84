"""Make what the README and the docs show: pictures of pages, and the outputs of commands.

    make pictures                      writes docs/pictures/ (needs Chromium) and the outputs
    make pictures PICTURES="PART …"    writes parts of them: pages, studio, outputs, drawings

The studio is photographed by its own walk through the views, in tests/studio, on models that are
trained here first; it wants the folder of real inputs in the variable GLASSHEAD_DATA.

An output stands between `<!-- output of: COMMAND -->` and `<!-- end -->`. After
`<!-- output of: COMMAND; lines: PATTERN -->` it is the lines that match, and "…" for the others.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import drawings
from playwright.sync_api import Browser

from tests.chromium import chromium
from tests.studio.pictures.vision_folders import vit_folder

ROOT = Path(__file__).parent.parent
TEXTS = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
PICTURES = ROOT / "docs" / "pictures"
OUTPUT = re.compile(
    r"(?P<start><!-- output of: (?P<command>[^;\n]+?)(; lines: (?P<lines>[^\n]+))? -->\n)"
    r".*?(?P<end><!-- end -->)",
    re.DOTALL,
)

# A picture shows a page twice, side by side: from its top, and from so many pixels below.
PAGES = {
    "hello_shiny_sun": ((), 2300),
    "hello_shiny_sun_chinese": (("--lang", "zh-Hant"), 2340),
}
PANEL, HEIGHT = 760, 900
DEMO, TRANSLATION = ROOT / "build" / "demo", (800, 535)
SHOWN = ROOT / "build" / "shown"
WALK = ROOT / "tests" / "studio" / "test_steps_in_browser.py"
# One run is taught too fast, so that there are alarms to be seen; the other lies beside it.
RUNS = {
    "watched": "--watch --set learning_rate=0.03 --set warmup=0 --set steps=600",
    "steady": "--watch --set steps=600",
}


def output(command: str) -> str:
    """What a command prints, 80 columns wide and without colour."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        command, shell=True, capture_output=True, check=True, env=environment, cwd=ROOT
    )
    return done.stdout.decode().rstrip()


def chosen(text: str, pattern: str | None) -> str:
    """The lines that match, and one "…" wherever others stood."""
    if pattern is None:
        return text
    kept = [line if re.search(pattern, line) else "…" for line in text.splitlines()]
    return "\n".join(
        line
        for line, before in zip(kept, ["", *kept], strict=False)
        if line != "…" or before != "…"
    )


def with_outputs(text: str) -> str:
    """The text with each output as it is now."""

    def written(found: re.Match[str]) -> str:
        lines = chosen(output(found["command"]), found["lines"])
        return f"{found['start']}```console\n$ {found['command']}\n{lines}\n```\n{found['end']}"

    return OUTPUT.sub(written, text)


def side_by_side(page: Path, below: int) -> Path:
    """A page of two panels that look at `page`, one of them from `below` its top."""
    panels = "".join(
        f'<div style="width:{PANEL}px;height:{HEIGHT}px;overflow:hidden;float:left">'
        f'<iframe src="{page.name}" style="border:0;width:{PANEL}px;height:9000px;'
        f'margin-top:-{top}px"></iframe></div>'
        for top in (0, below)
    )
    file = page.with_name(f"two_of_{page.name}")
    file.write_text(f'<!doctype html><body style="margin:0">{panels}</body>', encoding="utf-8")
    return file


def picture(
    browser: Browser, page: Path, file: Path, width: int = 2 * PANEL, height: int = HEIGHT
) -> None:
    """Photograph a page from its top."""
    seen = browser.new_page(viewport={"width": width, "height": height})
    seen.goto(page.as_uri())
    seen.screenshot(path=file)
    seen.close()
    print(f"wrote {file.relative_to(ROOT)}")


def shown() -> None:
    """Train and gather what the studio shows; what is there from another time is kept."""
    data = Path(os.environ.get("GLASSHEAD_DATA", ""))
    story, book = data / "stories260K" / "stories260K.bin", data / "shakespeare" / "input.txt"
    if not (story.is_file() and book.is_file()):
        raise SystemExit("the studio is shown on real inputs: set GLASSHEAD_DATA to their folder.")
    SHOWN.mkdir(parents=True, exist_ok=True)
    output(f"glasshead demo --folder {shlex.quote(str(DEMO))}")
    for name, of in (("translator", DEMO / "translator"), ("model", story.parent)):
        if not (SHOWN / name).exists():
            (SHOWN / name).symlink_to(of.resolve())
    if not (SHOWN / "vision").exists():
        size = {"image_size": 224, "patch_size": 16, "hidden_size": 48, "num_attention_heads": 6}
        vit_folder(SHOWN / "vision", num_hidden_layers=4, **size)
    for name, options in RUNS.items():
        if not (SHOWN / name).exists():
            output(f"glasshead train write --run {shlex.quote(str(SHOWN / name))} {options}")
    kept = SHOWN / "book.safetensors"
    if not kept.exists():
        example = "python examples/atlas_of_a_book.py"
        output(f"{example} {shlex.join(map(str, (story, book, kept)))}")


def studio() -> None:
    """Walk through the views of the studio, and keep the pictures."""
    shown()
    # The page says where its model lies, so that this is said as from here.
    shown_in = str(SHOWN.relative_to(ROOT))
    environment = os.environ | {"GLASSHEAD_SHOWN": shown_in, "GLASSHEAD_PICTURES": str(PICTURES)}
    walk = [
        sys.executable,
        "-m",
        "pytest",
        "--quiet",
        "-m",
        "",
        "-k",
        "picture_is_taken",
        str(WALK),
    ]
    subprocess.run(walk, check=True, env=environment, cwd=ROOT)


def pages() -> None:
    """Photograph the pages that commands write."""
    # A translator that is there from another time is not trained again.
    output(f"glasshead demo --folder {shlex.quote(str(DEMO))}")
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for name, (options, below) in PAGES.items():
            page = Path(folder) / f"{name}.html"
            output(shlex.join(["glasshead", "explain", *options, "--html", str(page)]))
            picture(browser, side_by_side(page, below), PICTURES / f"{name}.png")
        picture(browser, DEMO / "glasshead.html", PICTURES / "translation.png", *TRANSLATION)


def outputs() -> None:
    """Write what commands print into the texts that show it."""
    for file in TEXTS:
        text = file.read_text(encoding="utf-8")
        if OUTPUT.search(text):
            file.write_text(with_outputs(text), encoding="utf-8")
            print(f"wrote {file.relative_to(ROOT)}")


PARTS = {
    "pages": pages,
    "studio": studio,
    "outputs": outputs,
    "drawings": drawings.main,
}


def main() -> None:
    """Write all of it, or the parts that are named."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    main()
