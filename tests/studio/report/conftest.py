"""Reports of a translator that nobody trained, and what is in them."""

import base64
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

import glasshead as gh
from glasshead.studio.studio import Studio
from glasshead.studio.views import alignment, steps
from glasshead.tasks.data.sentences import pairs
from translated import translated

HOSTILE = "</script><!-- <img src=x onerror=alert(1)> \u202eabc\u2028\0"
TEXT = f"Ihr seht das. {' '.join(pair.german for pair in pairs(7, seed=5))}\n{HOSTILE}"
TOKENS = 31


@pytest.fixture(scope="package", autouse=True)
def _small() -> Iterator[None]:
    """Fewer steps and sentences than a report holds, so that tests are quick."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "_STEPS_BYTES", 320_000)
        patch.setattr(alignment, "_SENTENCES", 2)
        yield


@pytest.fixture(scope="package")
def run(tmp_path_factory) -> Path:
    """A translator of 2 layers with 3 heads, and 2 of the decoder, that reads 31 tokens."""
    folder = tmp_path_factory.mktemp("private") / "a <b>&run"
    options = ("num_layers=2", "num_decoder_layers=2", f"context_length={TOKENS}")
    return translated(folder, "tokenizer=words", *options).path


@pytest.fixture(scope="package")
def studio(run) -> Studio:
    return Studio(run)


@pytest.fixture(scope="package")
def report(studio) -> gh.Report:
    return gh.Report(studio, TEXT)


@pytest.fixture(scope="package")
def page(report, tmp_path_factory) -> Path:
    """The file of the report."""
    file = tmp_path_factory.mktemp("shared") / "report.html"
    report.save(file)
    return file


@dataclass
class Held:
    """What a report's page holds."""

    told: dict[str, Any]
    numbers: dict[str, dict[str, Any]]
    missing: str

    def tensor(self, key: str) -> torch.Tensor:
        held = self.numbers[key]
        data = held["data"] if "data" in held else self.numbers[held["as"]]["data"]
        values = torch.frombuffer(bytearray(_unpacked(data)), dtype=torch.float32)
        return values.reshape(held["shape"])


class _Answers(HTMLParser):
    """Finds the answers as a browser does: up to the end of their element."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self._inside = "", False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag == "script" and ("id", "answers") in attrs

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        self.text += data if self._inside else ""


def held_in(html: str) -> Held:
    """The answers of a page."""
    found = _Answers()
    found.feed(html)
    held = json.loads(found.text)
    return Held(json.loads(_unpacked(held["told"])), held["numbers"], held["missing"])


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def keys_of(keys: dict[str, Any], path: str) -> list[dict[str, str]]:
    """The parameters of each answer of a path, by name."""
    found = [key.split("|")[1:] for key in keys if re.match(rf"{path}(\||$)", key)]
    return [dict(each.split("=", 1) for each in one) for one in found]


@pytest.fixture(scope="package")
def held(report) -> Held:
    """What the file of the report holds."""
    return held_in(report.html())


@pytest.fixture(scope="package")
def alone() -> gh.Report:
    """A report without a model, which shows the steps of a sentence."""
    return gh.Report(None, TEXT)


@pytest.fixture(scope="package")
def steps_held(alone) -> Held:
    return held_in(alone.html())


@pytest.fixture(scope="package")
def steps_page(alone, tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("shared") / "steps.html"
    alone.save(file)
    return file


@pytest.fixture
def offline(looking, page):
    """Opens the report as a file, where every request but that of the file itself is a fault."""

    def offline(file=page, **options):
        look = looking(file.as_uri(), **options)
        look.page.context.set_offline(True)
        look.asked = []
        look.on("request", lambda asked: look.asked.append(asked.url.split("#")[0]))
        return look

    return offline
