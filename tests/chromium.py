"""The Chromium or Chrome of this machine, for tests, pictures and benchmarks of pages."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

PROGRAMS = (
    # What never has a window takes a fifth less processor time.
    "chromium-headless-shell",
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    # On macOS and on Windows it is not on the path.
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
)
# A page that is only looked at asks nothing of the network.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The browser, without a window, until the block ends.

    Raises:
        FileNotFoundError: There is none; the sentence tells the command that installs one.
    """
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise FileNotFoundError(
            "there is no Chromium or Chrome here: sudo apt-get install chromium"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, headless=True, args=FLAGS, chromium_sandbox=False
        )
        yield browser
        browser.close()


@contextlib.contextmanager
def browser_or_none() -> Iterator[Browser]:
    """The browser. Without one a test is left out, but fails where nothing is to be left out."""
    with contextlib.ExitStack() as stack:
        try:
            browser = stack.enter_context(chromium())
        except FileNotFoundError as missing:
            left_out = pytest.fail if os.environ.get("CI") else pytest.skip
            left_out(str(missing))
        yield browser


# What follows the size of the window is drawn in a later frame, so that a page that is too large
# gets three seconds.
BEYOND = """async (side) => {
  const { scrollingElement } = document, end = performance.now() + 3000;
  const beyond = () => scrollingElement[`scroll${side}`] - scrollingElement[`client${side}`];
  do {
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  } while (beyond() && performance.now() < end);
  return beyond();
}"""


def beyond_the_window(page: Page, side: Literal["Width", "Height"] = "Width") -> int:
    """Return by how many pixels a page stays larger than its window."""
    return page.evaluate(BEYOND, side)
