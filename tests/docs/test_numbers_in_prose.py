"""A number that two texts state is the same in both, and the one that is measured."""

import json
import re
from pathlib import Path

import pytest
import torch

import glasshead as gh
from glasshead.cli.demo import _plan
from glasshead.explanation.translations import LANGUAGES, Say
from scripts import ROOT


def prose(name):
    return " ".join((ROOT / name).read_text("utf-8").split())


@pytest.mark.parametrize("page", ["how-to/eviction", "reference/models"])
def test_a_window_of_w_tokens_is_the_same_on_each_page(page):
    said = "With a window of W tokens a query sees W keys, its own and the W - 1 before it"
    assert said in prose(f"docs/{page}.md")


@pytest.mark.parametrize("window", [2, 5, 7])
def test_a_window_of_w_tokens_is_what_the_pages_say(window):
    config = gh.LanguageModelConfig(
        vocab_size=11, d_model=12, num_heads=3, num_layers=1, context_length=13, window=window
    )
    model, tokens = gh.LanguageModel(config).eval(), torch.arange(11)[None]
    cache = model.new_cache()
    with torch.no_grad(), gh.watch(model, [gh.Entropy()], keep="weights") as seen:
        model(tokens, cache=cache)
    (layer,) = seen.values()
    assert (layer.weights[0, 0, -1] > 0).sum() == window
    assert cache.count == window - 1


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_demo_takes_as_long_as_the_readme_says(lang):
    minutes = {
        "en": "one to six minutes",
        "tr": "bir ile altı dakika",
        "es": "de uno a seis minutos",
        "zh-Hant": "一到六分鐘",
        "zh-Hans": "一到六分钟",
    }[lang]
    readme = "README.md" if lang == "en" else f"README.{lang}.md"
    assert minutes in prose(readme)
    plan = _plan(Path("demo"), Say(lang))
    assert minutes in plan
    assert not re.search(r"by hand|elle |a mano|手算", plan)


@pytest.mark.parametrize(
    ("key", "measured"),
    [
        ("call-4096", "call, streaming"),
        ("six-4096", "observe SIX, streaming"),
        ("beside-4096", "observe SIX, fused"),
    ],
)
def test_the_cost_of_statistics_is_the_one_that_was_measured(key, measured):
    results = (ROOT / "benchmarks" / "results" / "observe.md").read_text("utf-8")
    columns, row = (
        next(line.split("|") for line in results.splitlines() if line.startswith(f"| {start}"))
        for start in ("| 1024 tokens", f"{measured} |")
    )
    (stated,) = (one for one in stored("zen5")["figures"] if one["key"] == key)
    assert row[columns.index(" 4096 tokens ")].split() == [f"{stated['value']:.2f}", "×"]


RESULTS = ROOT / "benchmarks" / "results"
NAMES = sorted(file.stem for file in RESULTS.glob("*.json"))


def stored(name):
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_a_processor_has_one_table_of_its_stored_figures(name):
    """`make bench-page` writes it."""
    found = stored(name)
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", found["date"])
    page = (ROOT / "docs" / "concepts" / "performance.md").read_text("utf-8")
    head = f"\n{found['processor']}, {found['date']}, torch {found['torch']}, "
    assert page.count(f"{head}{found['threads']} threads:\n") == 1
    rows = page.partition(head)[2].split("\n\n")[1].splitlines()[2:]
    assert len(rows) == len(found["figures"]) == len({one["key"] for one in found["figures"]})
    for one, row in zip(found["figures"], rows, strict=True):
        _, work, figure, command, _ = (cell.strip() for cell in row.split("|"))
        values = one["value"] if isinstance(one["value"], list) else [one["value"]]
        numbers, unit = figure.removesuffix(one["unit"]).split(" to "), one["unit"]
        assert figure.endswith(unit)
        assert [float(number) for number in numbers] == pytest.approx(values, rel=5e-3)
        assert (work, command) == (one["work"], f"`{one['command']}`")


@pytest.mark.parametrize("readme", sorted(ROOT.glob("README*.md")), ids=lambda file: file.name)
def test_the_table_of_the_readme_has_the_figures_of_one_processor(readme):
    english = (ROOT / "README.md").read_text("utf-8")
    (found,) = (one for one in map(stored, NAMES) if one["processor"] in english)
    figures = {one["key"]: one["value"] for one in found["figures"]}
    lines = readme.read_text("utf-8").replace(",", ".").replace("（", " (").splitlines()
    for key, label in {
        "watch": "`gh.watch`**",
        "eager": "BertViz",
        "lens": "TransformerLens",
    }.items():
        (row,) = (line for line in lines if line.startswith("|") and label in line)
        _, _, time, memory, *_ = row.split("|")
        spent = figures[f"{key}-1024"]
        values = spent if isinstance(spent, list) else [spent]
        assert [float(number) for number in re.findall(r"\d+\.\d+", time)] == values
        assert float(re.findall(r"\d+\.\d+", memory)[0]) == figures[f"{key}-memory-4096"]
    alone = next(line for line in lines if line.startswith("|") and "`sdpa`" in line)
    assert str(figures["plain-1024"]) in alone
