"""A number that two texts state is the same in both, and the one that is measured."""

import json
import re
from pathlib import Path

import pytest
import torch

import glasshead as gh
from glasshead.cli.demo import _plan
from glasshead.explanation.translations import LANGUAGES, Say
from scripts import ROOT, script


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
        "en": "one to eight minutes",
        "tr": "bir ile sekiz dakika",
        "es": "de uno a ocho minutos",
        "zh-Hant": "一到八分鐘",
        "zh-Hans": "一到八分钟",
    }[lang]
    readme = "README.md" if lang == "en" else f"README.{lang}.md"
    assert minutes in prose(readme)
    plan = _plan(Path("demo"), Say(lang))
    assert minutes in plan
    assert not re.search(r"by hand|elle |a mano|手算", plan)


def stored(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))


@pytest.mark.parametrize(
    "page",
    ["docs/concepts/performance.md", "docs/concepts/exact.md", "benchmarks/results/grid.md"],
)
def test_the_page_states_the_costs_that_are_stored(page, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    program = script("benchmarks/processor.py")
    (place,) = program.PLACE.finditer((ROOT / page).read_text("utf-8"))
    assert place[0] == f"{place[1]}\n{program.PAGES[page]()}\n{place[2]}"


@pytest.mark.parametrize(
    ("work", "measured"),
    [
        ("call, 4096 tokens", "call, streaming"),
        ("call and six statistics in one pass, 4096 tokens", "observe SIX, streaming"),
        ("six statistics in addition to the fused kernel, 4096 tokens", "observe SIX, fused"),
    ],
)
def test_the_cost_of_statistics_is_the_one_that_was_measured(work, measured):
    results = (ROOT / "benchmarks" / "results" / "observe.md").read_text("utf-8")
    columns, row = (
        next(line.split("|") for line in results.splitlines() if line.startswith(f"| {start}"))
        for start in ("| 1024 tokens", f"{measured} |")
    )
    (ratio,) = next(cost["ratio"] for cost in stored("zen5")["costs"] if cost["work"] == work)
    assert row[columns.index(" 4096 tokens ")].split() == [f"{ratio:.2f}", "×"]


@pytest.mark.parametrize(
    ("stated", "measured"),
    [
        ("take 4.43 s and 40.8 MiB", "4.43 s, and 40.8 MiB"),
        ("a matrix of 34.36 GB", "T=32768, eager | 34.36 GB"),
        ("take 1/44 of the time", "window(before=255), T=8192 | 20.12 ms | 899.11 ms | 1/44.24"),
        ("adds 9.10 ms", "first observe, machine code of a wheel | 9.10 ms"),
        ("and 5.69 s if", "first observe, compiling | 5.69 s"),
    ],
)
def test_a_figure_of_the_page_is_the_one_that_was_measured(stated, measured):
    assert stated in prose("docs/concepts/performance.md")
    assert measured in prose("benchmarks/results/observe.md")


def test_the_parts_of_a_call_are_those_that_are_stored():
    page, kernel = prose("docs/concepts/performance.md"), stored("intel_amx")["kernel"]
    for speed in ("gflops", "sdpa", "inner_loop"):
        assert f"reaches {kernel[speed]} GFLOP/s" in page
    assert f"reaches {100 * kernel['gflops'] / kernel['inner_loop']:.0f} % of it" in page
    shares = page[page.index("| part | share of the time |") :].partition("Blocks on")[0]
    assert [int(share) for share in re.findall(r"\| (\d+) %", shares)] == kernel["shares"]
    assert sum(kernel["shares"]) == 100


def test_the_page_names_each_benchmark_that_make_bench_leaves_out():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (recipe,) = re.findall(r"^bench: setup\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    page = (ROOT / "docs" / "concepts" / "performance.md").read_text("utf-8")
    _, _, named = page.partition("Run the other files")
    programs = {
        file.name
        for file in (ROOT / "benchmarks").glob("*.py")
        # `observe.py` starts it.
        if "__main__" in file.read_text("utf-8") and file.name != "observe_children.py"
    }
    run = set(re.findall(r"benchmarks/(\w+\.py)", recipe))
    assert run < programs
    assert set(re.findall(r"`(\w+\.py)`", named)) == programs - run


@pytest.mark.parametrize("width", [80, 100])
def test_benchmarks_print_whole_numbers_in_a_narrow_terminal(width, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    pairs = script("benchmarks/pairs.py")
    rows = [
        pairs.judged("a long name of what is compared, T=1024", [(0.123456, 0.0987)], ratio=1.25),
        pairs.figure("T=4096, watched against eager", 0.04321, "×", about="of these", at_most=0.1),
    ]
    pairs.show("a title", rows, width=width)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= width
    for number in ("123.46 ms", "98.70 ms", "1.251", "0.04321 ×"):
        assert number in printed


@pytest.mark.parametrize("readme", sorted(ROOT.glob("README*.md")), ids=lambda file: file.name)
def test_the_table_of_the_readme_has_the_stored_figures_of_one_processor(readme):
    """The English caption names the processor, by which its results are found."""
    names = [file.stem for file in (ROOT / "benchmarks" / "results").glob("*.json")]
    english = (ROOT / "README.md").read_text("utf-8")
    (found,) = (one for one in map(stored, names) if one["processor"] in english)
    lines = readme.read_text("utf-8").replace(",", ".").splitlines()
    rows = [line.split("|") for line in lines if line.startswith("|")]
    labels = {"watched": "`gh.watch`**", "eager": "BertViz", "lens": "TransformerLens"}
    for kind, label in labels.items():
        (row,) = (row for row in rows if label in row[1])
        ratio, memory = (re.findall(r"\d+\.\d+", cell) for cell in row[2:4])
        cost = found["model"]["kinds"][kind]
        assert (ratio, memory) == ([f"{cost['ratio']:.1f}"], [f"{cost['gib']:.1f}"])
    alone = next(row for row in rows if "`sdpa`" in row[1])
    assert re.findall(r"\d+\.\d+", alone[2]) == [f"{found['model']['seconds']:.1f}"]


def test_the_table_of_a_watch_has_the_stored_figures_of_each_processor():
    page = (ROOT / "docs" / "concepts" / "exact.md").read_text("utf-8")
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in page[page.index("<!-- costs -->") :].splitlines()
        if line.startswith("|")
    ]
    (_, *processors), _, *rows = rows
    names = [file.stem for file in (ROOT / "benchmarks" / "results").glob("*.json")]
    models = {one["processor"]: one["model"] for one in map(stored, names) if "model" in one}
    assert set(processors) == set(models)
    table = {work: dict(zip(processors, cells, strict=True)) for work, *cells in rows}
    for processor, model in models.items():
        found = {work: cells[processor].partition(" ")[0] for work, cells in table.items()}
        watched, eager = model["kinds"]["watched"], model["kinds"]["eager"]
        memory = "memory at the peak, 4096 tokens"
        assert float(found.pop("time, forward pass, 1024 tokens")) == watched["ratio"]
        assert float(found.pop(memory)) == watched["gib"]
        assert float(found.pop(f"{memory}, `eager` with all weights")) == eager["gib"]
        others = {work.removeprefix("time, "): float(cell) for work, cell in found.items() if cell}
        assert others == model.get("watched", {})
