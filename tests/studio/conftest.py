"""A studio that is served, and a browser that looks at it."""

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import uvicorn
from fastapi import APIRouter
from playwright.sync_api import Browser, Page, expect

from accessibility import violations
from chromium import beyond_the_window
from glasshead.studio.app import Server, application, configured, listening_on
from glasshead.studio.studio import Studio
from pretrained_folders import llama_folder
from scripts import ROOT, script
from written import written


@pytest.fixture(scope="session", autouse=True)
def _bundled(once):
    """Bundles scripts that were edited: a test must never look at an old page."""
    once("bundles", lambda _folder: script("hatch_build.py").bundle_scripts(ROOT))


# As many tokens as the model of `folder` reads.
CONTEXT = 47
WIDTHS = (390, 768, 1280, 1920)
# However slow the machine: what is waited for by a condition costs nothing where it comes.
PATIENCE = 20_000
LANGUAGES = ("en", "tr", "es", "zh-Hant", "zh-Hans")


def widths_of(language: str, widths: Sequence[int] = WIDTHS) -> Sequence[int]:
    """Return all widths for English; for another language the narrowest and one of the others."""
    at = LANGUAGES.index(language)
    return sorted({widths[0], widths[at % len(widths)]}) if at else widths


def share(page: Any, kind: str, *, close: bool = True) -> None:
    """Open the menu to share, and choose one."""
    page.locator("details.share:not([open]) > summary").click()
    page.get_by_role("button", name=kind).click()
    if close:
        page.locator("details.share > summary").click()


def letters(svg: ET.Element) -> str:
    """All that a picture says, without spaces, as lines are broken where the page breaks them."""
    texts = ("".join(each.itertext()) for each in svg.iter() if each.tag.endswith("}text"))
    return "".join("".join(texts).split())


def beyond(page: Any, svg: ET.Element) -> list[str]:
    """The texts of a picture that are not whole on its paper, as the browser lays them out."""
    # The page allows no style sheet within itself, and has the letters already.
    svg.remove(svg.find("{*}style"))
    return page.evaluate(BEYOND, ET.tostring(svg, encoding="unicode"))


BEYOND = """(written) => {
  const root = new DOMParser().parseFromString(written, "image/svg+xml").documentElement;
  document.body.append(root);
  const paper = root.getBoundingClientRect();
  const texts = [...root.querySelectorAll("text")].filter((text) => {
    const { left, right, top, bottom } = text.getBoundingClientRect();
    const isAcross = left >= paper.left - 1 && right <= paper.right + 1;
    return !isAcross || top < paper.top - 1 || bottom > paper.bottom + 1;
  });
  root.remove();
  return texts.map((text) => text.textContent);
}"""


# Empties what the page keeps in the browser; pages without an address can keep nothing.
FORGET = "() => { try { localStorage.clear(); sessionStorage.clear(); } catch {} }"


def quickly(quick: Any, values: Iterable[Any]) -> list[Any]:
    """Return parameters of a test, all but one of them slow; a tuple is of several arguments."""

    def slow(value: Any) -> Any:
        given = value if isinstance(value, tuple) else (value,)
        return pytest.param(*given, marks=pytest.mark.slow)

    found = [value if value == quick else slow(value) for value in values]
    assert quick in found
    return found


def together(quick: Any, values: Iterable[Any]) -> list[Any]:
    """Return two lists of values as parameters of a test: one value, and all others, marked slow.

    The test loads one page for all values of a list, because loading takes longest.
    """
    others = [value for value in values if value != quick]
    name = "-".join(map(str, quick)) if isinstance(quick, tuple) else str(quick)
    return [
        pytest.param([quick], id=name),
        pytest.param(others, id="others", marks=pytest.mark.slow),
    ]


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
def folder(tmp_path_factory) -> Path:
    """A run of `write` with 2 layers of 3 heads, to which nobody writes."""
    return written(tmp_path_factory.mktemp("runs") / "run", f"context_length={CONTEXT}").path


@pytest.fixture(scope="session")
def wide(tmp_path_factory) -> Path:
    """A model with twelve heads in each layer."""
    folder = tmp_path_factory.mktemp("models") / "llama"
    return llama_folder(folder, num_attention_heads=12, num_key_value_heads=12)


@pytest.fixture(scope="session")
def many(tmp_path_factory) -> Path:
    """A model with 32 heads in each of its 3 layers."""
    folder = tmp_path_factory.mktemp("models") / "llama"
    heads = {"num_attention_heads": 32, "num_key_value_heads": 32, "hidden_size": 64}
    return llama_folder(folder, num_hidden_layers=3, **heads)


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


class Looking:
    """A page of a browser, and all that went wrong on it.

    A new page costs more than a view, so tests take turns: `begin` and `end` leave nothing of one
    test to the next.

    Args:
        browser: Where the page is opened, in a context of its own.
        language: Of the browser.
    """

    def __init__(self, browser: Browser, language: str) -> None:
        context = browser.new_context(locale=language, reduced_motion="reduce")
        self.page = context.new_page()
        self.url, self.expected = "", ()
        self.faults: list[str] = []
        self._listeners: list[tuple[Any, Callable[[Any], object]]] = []
        self.page.on("console", lambda said: self._told(said.type, said.text))
        self.page.on("pageerror", lambda error: self._told("error", str(error)))
        self.page.on("request", lambda asked: self._asked(asked.url))

    def begin(
        self, url: str, width: int, height: int, *, dark: bool, expected: tuple[str, ...]
    ) -> None:
        """Look at a studio or a file from now on."""
        self.url, self.expected, self.faults = url, expected, []
        self.page.set_viewport_size({"width": width, "height": height})
        scheme = "dark" if dark else "light"
        self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")

    def end(self) -> list[str]:
        """Make the page as good as new, and return what went wrong on it."""
        page = self.page
        page.unroute_all()
        page.evaluate(FORGET)
        page.goto("about:blank", wait_until="commit")
        page.context.clear_cookies()
        page.context.set_offline(False)
        page.mouse.move(0, 0)
        for event, listener in self._listeners:
            page.remove_listener(event, listener)
        self._listeners.clear()
        return self.faults

    def on(self, event: Any, listener: Callable[[Any], object]) -> None:
        """Call a listener at each event of the page until the test ends."""
        self._listeners.append((event, listener))
        self.page.on(event, listener)

    def open(self, place: str = "") -> Page:
        """Open a view, such as "#steps?beta=2", and wait until it is drawn.

        A view is drawn when its element `.body` has the attribute `data-drawn`.
        """
        # A browser loads nothing if only the part after the "#" differs.
        if self.page.url != "about:blank":
            self.page.goto("about:blank", wait_until="commit")
        self.page.goto(self.url + place, wait_until="commit")
        self.page.wait_for_selector(".view .body[data-drawn]", timeout=PATIENCE)
        return self.page

    def go(self, place: str) -> Page:
        """Go to a view of the page that is open, as a link does, and wait until it is drawn."""
        with self._drawn_anew():
            self.page.evaluate("(place) => { location.hash = place; }", place)
        return self.page

    def speak(self, language: str) -> None:
        """Choose a language in the header, and wait until the view is drawn in it."""
        with self._drawn_anew():
            self.page.select_option("header select", language)
        self.page.wait_for_selector(f"html[lang={language}]")

    def paper(self, *, dark: bool) -> None:
        """Prefer the other paper, and wait until the view is drawn on it."""
        with self._drawn_anew():
            scheme = "dark" if dark else "light"
            self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")

    @contextlib.contextmanager
    def _drawn_anew(self) -> Iterator[None]:
        self.page.evaluate("document.querySelector('.view .body').dataset.before = ''")
        yield
        self.page.wait_for_selector(".view .body[data-drawn]:not([data-before])", timeout=PATIENCE)

    def resize(self, width: int, height: int = 900) -> None:
        """Make the window another size, and let what depends on it be drawn."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")

    def violations(self, *, contrast: bool = True) -> list[str]:
        """What axe finds; contrast takes it longest, and is the same in each language."""
        return violations(self.page, colours=contrast)

    def overflow(self) -> int:
        """By how many pixels the page stays wider than its window."""
        return beyond_the_window(self.page)

    def overflow_below(self) -> int:
        """By how many pixels the page stays higher than its window."""
        return beyond_the_window(self.page, "Height")

    def _told(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not any(part in text for part in self.expected):
            self.faults.append(f"{kind}: {text}")

    def _asked(self, url: str) -> None:
        own = self.url.split("#")[0].split("?")[0]
        if not url.startswith((own, "data:", "blob:", "about:")):
            self.faults.append(f"asked elsewhere: {url}")


# What a pointer moves is remembered in a frame.
RESTED = """async () => {
  const frame = () => new Promise(requestAnimationFrame);
  await frame();
  await frame();
  while ("due" in document.documentElement.dataset) {
    await new Promise((done) => setTimeout(done, 20));
  }
  return location.href;
}"""


def address(page: Page) -> str:
    """Where the page says that it is, which it writes once it rests; `page.url` hears later."""
    return page.evaluate(RESTED)


@pytest.fixture(scope="session")
def rested() -> dict[str, list[Looking]]:
    """Pages that no test looks at, by language."""
    return defaultdict(list)


@pytest.fixture
def looking(browser, rested, serves) -> Iterator[Callable[..., Looking]]:  # pages before studios
    """Opens pages; in the end no console had an error, and nothing was asked of another host."""
    with contextlib.ExitStack() as ends:
        taken: list[Looking] = []

        def looking(
            url: str,
            *,
            width: int = 1280,
            height: int = 900,
            dark: bool = False,
            language: str = "en",
            expected: tuple[str, ...] = (),
            fresh: bool = False,
        ) -> Looking:
            resting = [] if fresh else rested[language]
            look = resting.pop() if resting else Looking(browser, language)
            ends.callback(look.page.context.close if fresh else lambda: resting.append(look))
            taken.append(look)
            look.begin(url, width, height, dark=dark, expected=expected)
            return look

        yield looking
        faults = [fault for look in taken for fault in look.end()]
    assert not faults
