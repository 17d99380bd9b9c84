"""A number that two texts state is the same in both, and the one that is measured."""

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
    ("work", "measured"),
    [
        ("call, 4096 tokens", "call, streaming"),
        ("call and six statistics in one pass, 4096 tokens", "observe SIX, streaming"),
        ("six statistics in addition to the fused kernel, 4096 tokens", "observe SIX, fused"),
    ],
)
def test_the_cost_of_statistics_is_the_one_that_was_measured(work, measured):
    page = (ROOT / "docs" / "concepts" / "performance.md").read_text("utf-8")
    results = (ROOT / "benchmarks" / "results" / "observe.md").read_text("utf-8")
    columns, row = (
        next(line.split("|") for line in results.splitlines() if line.startswith(f"| {start}"))
        for start in ("| 1024 tokens", f"{measured} |")
    )
    stated = re.search(rf"AMD EPYC Zen 5.*?\| {re.escape(work)} \| ([\d.]+) \|", page, re.DOTALL)
    assert row[columns.index(" 4096 tokens ")].split() == [stated[1], "×"]
