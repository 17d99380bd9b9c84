"""A studio that is served, and a browser that looks at it."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from fastapi import APIRouter
from playwright.sync_api import Page, expect

from glasshead.studio.app import Server, application, configured, listening_on
from glasshead.studio.studio import Studio

WIDTHS = (390, 768, 1280, 1920)
# However slow the machine: what is waited for by a condition costs nothing where it comes.
PATIENCE = 20_000
LANGUAGES = ("en", "tr", "es", "zh-Hant", "zh-Hans")


expect.set_options(timeout=PATIENCE)


@dataclass
class Served:
    """A studio behind an address."""

    studio: Studio
    url: str
    server: uvicorn.Server
    thread: threading.Thread

    @property
    def port(self) -> int:
        return int(self.url.rstrip("/").rsplit(":", 1)[1])

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()


def serve(
    studio: Studio, port: int = 0, routes: APIRouter | None = None, token: str | None = None
) -> Served:
    """Serve a studio in a thread, as the command does, until `stop`."""
    app = application(studio, token=token)
    if routes is not None:
        app.include_router(routes)
    listening = listening_on("127.0.0.1", port)
    server = Server(configured(app), studio, lambda: None)
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True
    )
    # Nobody is refused who asks before the thread has begun.
    listening.listen()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    thread.start()
    return Served(studio, url, server, thread)


@pytest.fixture(scope="session")
def serving() -> Iterator[Callable[[Path | None], Served]]:
    """Serves the studio of a folder, the same for all who ask for it."""
    known: dict[Path | None, Served] = {}

    def serving(folder: Path | None = None) -> Served:
        if folder not in known:
            known[folder] = serve(Studio(folder))
        return known[folder]

    yield serving
    for served in known.values():
        served.stop()


@pytest.fixture
def serves() -> Iterator[Callable[..., Served]]:
    """Serves studios of a test's own, which end with it."""
    with contextlib.ExitStack() as ends:

        def serves(*given: Any, **named: Any) -> Served:
            served = serve(*given, **named)
            ends.callback(served.stop)
            return served

        yield serves


@dataclass
class Looking:
    """A page of a browser, and all that went wrong on it."""

    page: Page
    url: str
    faults: list[str] = field(default_factory=list)

    def open(self, place: str = "") -> Page:
        """Open a view, such as "#steps?beta=2", and wait until it is drawn.

        A view is drawn when its element `.body` has the attribute `data-drawn`.
        """
        self.page.goto("about:blank")
        self.page.goto(self.url + place)
        self.page.wait_for_selector(".view .body[data-drawn]", timeout=PATIENCE)
        return self.page

    def resize(self, width: int, height: int = 900) -> None:
        """Make the window another size, and let what depends on it be drawn."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")

    def violations(self) -> list[str]:
        """What axe finds."""
        found = Axe().run(self.page).response["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        return self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )


def address(page: Page) -> str:
    """Where the page says that it is, which it writes once it rests; `page.url` hears later."""
    page.wait_for_timeout(300)
    return page.evaluate("location.href")


@pytest.fixture
def looking(browser, serves) -> Iterator[Callable[..., Looking]]:  # pages end before studios
    """Opens pages; in the end no console had an error, and nothing was asked of another host."""
    with contextlib.ExitStack() as open_ones:
        all_of_them: list[Looking] = []

        def looking(
            url: str,
            *,
            width: int = 1280,
            height: int = 900,
            dark: bool = False,
            language: str = "en",
            expected: tuple[str, ...] = (),
        ) -> Looking:
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if dark else "light",
                locale=language,
                reduced_motion="reduce",
            )
            open_ones.callback(context.close)
            looking = Looking(context.new_page(), url)
            looking.page.on("console", lambda said: _told(looking, said.type, said.text, expected))
            looking.page.on(
                "pageerror", lambda error: _told(looking, "error", str(error), expected)
            )
            looking.page.on("request", lambda asked: _asked(looking, asked.url))
            all_of_them.append(looking)
            return looking

        yield looking
        faults = [fault for looking in all_of_them for fault in looking.faults]
    assert not faults


def _told(looking: Looking, kind: str, text: str, expected: tuple[str, ...]) -> None:
    if kind in ("error", "warning") and not any(part in text for part in expected):
        looking.faults.append(f"{kind}: {text}")


def _asked(looking: Looking, url: str) -> None:
    if not url.startswith((looking.url.split("#")[0].split("?")[0], "data:", "blob:", "about:")):
        looking.faults.append(f"asked elsewhere: {url}")
