"""Makes the recording that opens the README: the studio, frame by frame, as an animated GIF.

    make recording

It wants Chromium, and the folder that `GLASSHEAD_DATA` names, with stories260K in it. A frame is a
photograph of the page once it rests, so that the recording is the same on a slow machine.
"""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, ImageDraw
from playwright.sync_api import Locator, Page, ViewportSize

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.chromium import chromium  # noqa: E402 - of this clone

FILE = ROOT / "docs" / "pictures" / "studio.gif"
MOST_BYTES = 3 * 2**20
WINDOW: ViewportSize = {"width": 1120, "height": 720}
COLORS = 160
# Milliseconds of a key, of a way of the pointer and its parts, and of a look.
KEY, PART, PARTS, GLANCE, LOOK = 60, 50, 4, 400, 900
BEGUN, TYPED = "Once upon a time there was a", " little girl named Lily. One day, Lil"
# Where the pointer's tip is 0, 0.
ARROW = [(0, 0), (0, 17), (4, 13), (7, 19), (10, 18), (7, 12), (12, 12)]


class Film:
    """Frames of a page, each with the pointer and for how long it is shown."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[Image.Image] = []
        self.times: list[int] = []
        self.pointer: tuple[float, float] | None = None

    def shoot(self, milliseconds: int) -> None:
        """Photograph the page once it is drawn."""
        self.page.wait_for_selector(".body[data-drawn]")
        picture = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        self._add(picture, milliseconds)

    def point(self, to: Locator, *, click: bool = True) -> None:
        """Lead the pointer to the middle of an element, and click it."""
        box = to.bounding_box()
        assert box is not None
        end = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        start = self.pointer or (WINDOW["width"] / 2, WINDOW["height"] - 60)
        still = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        for part in range(1, PARTS + 1):
            share = part / PARTS
            self.pointer = (
                start[0] + (end[0] - start[0]) * share,
                start[1] + (end[1] - start[1]) * share,
            )
            self._add(still, PART)
        self.page.mouse.move(*end)
        if click:
            to.click()

    def _add(self, picture: Image.Image, milliseconds: int) -> None:
        drawn = picture.copy()
        if self.pointer is not None:
            shape = [(self.pointer[0] + x, self.pointer[1] + y) for x, y in ARROW]
            ImageDraw.Draw(drawn).polygon(shape, fill="#111111", outline="#ffffff")
        if self.frames and drawn.tobytes() == self.frames[-1].tobytes():
            self.times[-1] += milliseconds
            return
        self.frames.append(drawn)
        self.times.append(milliseconds)

    def save(self, file: Path) -> None:
        """Write the frames in colours that all of them share; only what changes is kept of each."""
        some = self.frames[:: max(1, len(self.frames) // 8)]
        width, height = some[0].size
        sheet = Image.new("RGB", (width, height * len(some)))
        for place, frame in enumerate(some):
            sheet.paste(frame, (0, height * place))
        palette = sheet.quantize(COLORS, method=Image.Quantize.MEDIANCUT)
        drawn = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self.frames]
        drawn[0].save(
            file,
            save_all=True,
            append_images=drawn[1:],
            duration=self.times,
            loop=0,
            optimize=False,
            disposal=1,
        )


@contextmanager
def served(shown: Path) -> Iterator[str]:
    """The address of a studio that shows a model, until the block ends."""
    command = [sys.executable, "-m", "glasshead", "studio", str(shown), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def prompt(film: Film) -> None:
    """Type, see the next token and the arcs, and take a head away, and then a layer."""
    page = film.page
    field = page.get_by_label("Type a text to see what the model does with it")
    film.shoot(GLANCE)
    field.focus()
    field.press("End")
    for letter in TYPED:
        field.press(letter if letter != " " else "Space")
        film.shoot(KEY)
    film.shoot(LOOK)
    for head in (small(page, 1, 6), small(page, 0, 1)):
        film.point(head)
        film.shoot(GLANCE)
    film.point(page.get_by_text("ablates it", exact=True))
    film.shoot(PART)
    for away in (small(page, 1, 0), page.locator("button.layer").nth(0)):
        film.point(away)
        film.shoot(LOOK)
    film.point(page.get_by_role("button", name="Restore all", exact=True))
    page.evaluate("scrollTo(0, 0)")
    film.shoot(GLANCE)


def small(page: Page, layer: int, head: int) -> Locator:
    """The small map of a head."""
    return page.locator(f'button.small[data-layer="{layer}"][data-head="{head}"]')


def walk(film: Film) -> None:
    """See the steps of one query, frame by frame."""
    page = film.page
    film.point(page.get_by_role("link", name="Steps", exact=True))
    page.wait_for_selector(".view.steps .body[data-drawn]")
    film.shoot(GLANCE)
    scrubber = page.get_by_label("Frame", exact=True)
    scrubber.evaluate("one => scrollTo(0, one.getBoundingClientRect().top + scrollY - 150)")
    film.pointer = None
    last = int(scrubber.get_attribute("max") or 0)
    for place in range(last + 1):
        scrubber.fill(str(place))
        film.shoot(LOOK if place == last else 2 * KEY)


def main() -> None:
    """Record the studio."""
    model = Path(os.environ.get("GLASSHEAD_DATA", "")) / "stories260K"
    if not (model / "stories260K.bin").is_file():
        raise SystemExit(
            "a recording wants the model stories260K: set GLASSHEAD_DATA to the folder that has it."
        )
    with served(model) as url, chromium() as browser:
        page = browser.new_page(viewport=WINDOW, reduced_motion="reduce")
        page.goto(f"{url}#prompt?text={BEGUN}&heads=1.3")
        film = Film(page)
        prompt(film)
        walk(film)
    film.save(FILE)
    size = FILE.stat().st_size
    seconds = sum(film.times) / 1000
    told = f"{len(film.frames)} frames, {seconds:.1f} s, {size:,} bytes"
    print(f"wrote {FILE.relative_to(ROOT)}: {told}")
    if size > MOST_BYTES:
        raise SystemExit(f"{FILE.name} takes at most {MOST_BYTES:,} bytes: show less in it.")


if __name__ == "__main__":
    try:
        main()
    except FileNotFoundError as missing:
        raise SystemExit(str(missing)) from missing
