"""The documentation site, built once for all processes that test it, and served."""

import functools
import importlib.util
import os
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import forked
from scripts import ROOT

BUILDER = ROOT / "docs" / "build_site.py"
WANTED = ("sphinx", "myst_nb", "furo")


@pytest.fixture(scope="session")
def with_sphinx() -> None:
    """Leave a test out where the group `docs` is missing, but fail where nothing is left out."""
    missing = [name for name in WANTED if importlib.util.find_spec(name) is None]
    if missing:
        # A cell of versions has the library's own extras.
        must = os.environ.get("CI") and not os.environ.get("GLASSHEAD_CELL")
        left_out = pytest.fail if must else pytest.skip
        left_out(f"{', '.join(missing)} is not installed: pip install --group docs")


@pytest.fixture(scope="session")
def built(with_sphinx, once) -> tuple[Path, str]:
    """The folder of the site, and what was said while it was built."""

    def build(folder: Path) -> None:
        done = forked.Process(BUILDER, folder / "site").ended(timeout=800)
        (folder / "said.txt").write_text(done.stdout + done.stderr, encoding="utf-8")

    folder = once("docs", build)
    return folder / "site", (folder / "said.txt").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def site(built) -> Path:
    """The folder of the site."""
    folder, said = built
    assert (folder / "index.html").exists(), said
    return folder


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *said):
        """Say nothing of what is asked for."""


@pytest.fixture(scope="session")
def served(site) -> Iterator[str]:
    """The address of the site."""
    handler = functools.partial(_Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.fixture(scope="session")
def page(browser, served):
    """One page for all tests, and what went wrong on it."""
    context = browser.new_context(reduced_motion="reduce")
    page, faults = context.new_page(), []

    def told(said):
        if said.type in ("error", "warning"):
            faults.append(f"{page.url}: {said.text}")

    def asked(request):
        if not request.url.startswith((served, "data:", "blob:", "about:")):
            faults.append(f"{page.url} asks elsewhere: {request.url}")

    page.on("console", told)
    page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))
    page.on("request", asked)
    yield page, faults
    context.close()


@pytest.fixture
def looking(page):
    """Shows pages of the site; in the end no console had an error, and no other host was asked."""
    shown, faults = page
    faults.clear()

    def looking(width: int = 1280, scheme: str = "light"):
        shown.set_viewport_size({"width": width, "height": 900})
        shown.emulate_media(color_scheme=scheme)
        return shown

    yield looking
    shown.goto("about:blank")
    assert faults == []
