"""`glasshead observe`: what it prints, draws and saves, and what it refuses in one sentence."""

import os
import re
import subprocess
import sys
from importlib.metadata import version

import pytest
import torch
from packaging.version import Version
from safetensors.torch import load_file, save_file

import glasshead as gh
from glasshead.attention.choice import NAMES
from glasshead.cli import output as progress
from glasshead.cli.inputs.tensors import is_tensors_file
from glasshead.cli.observe import ENGINES
from glasshead.cli.observe_tables import WeightsMap
from glasshead.cli.statistic_options import DEFAULT, STATISTICS

TEXT = "the quick brown fox jumps"
# A type that the first versions of safetensors do not know either.
E8 = "e8.safetensors " + (
    "has numbers of a type that torch cannot"
    if Version("0.6") <= Version(version("safetensors"))
    else "is not a safetensors file ("
)


def tensors(*leading, queries=13, keys=17, dim=5, kv_heads=None):
    key_leading = leading if kv_heads is None else (*leading[:-1], kv_heads)
    return {
        "query": torch.randn(*leading, queries, dim),
        "key": torch.randn(*key_leading, keys, dim),
        "value": torch.randn(*key_leading, keys, 3),
    }


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.csv").write_text("Hello,0.34,0.22\nshiny,0.5,0.1\nsun,0.29,0.54\n")
    save_file(tensors(4), "heads.safetensors")
    save_file(tensors(2, 4, kv_heads=2), "batch.safetensors")
    return tmp_path


def rows(out, opening):
    """The cells of the table's rows that open with these words."""
    found = [line for line in out.splitlines() if re.match(opening, line)]
    return [re.split(r"\s{2,}", line.strip()) for line in found]


def test_the_worked_example_and_any_text_are_observed(command):
    outcome = command("observe")
    assert (outcome.code, outcome.err) == (0, "")
    assert "The attention of Hello shiny sun" in outcome.out
    out = " ".join(outcome.out.split())
    found = "The key that receives the most attention, of the one head: shiny (1), with 36.7 %."
    assert out.index(found) < out.index("Heads: 1 (key heads: 1)")
    assert "queries: 3; keys: 3; dimension: 3" in outcome.out
    assert re.search(r"Engine: \w+; passes over the scores: \d; [\d.]+ MB beyond", outcome.out)
    outcome = command("observe", TEXT, "--mask", "causal")
    assert "random (seed 123) and have no meaning" in outcome.out
    assert "with the mask causal()" in " ".join(outcome.out.split())
    # The first word sees itself alone.
    assert re.search(r"^the +1\.00( +·){4}$", outcome.out, re.MULTILINE)


def test_the_numbers_are_those_of_python(command, place):
    outcome = command("observe", "--vectors", "words.csv")
    x = torch.tensor([[0.34, 0.22], [0.5, 0.1], [0.29, 0.54]], dtype=torch.float64)
    P = (x @ x.T / 2**0.5).softmax(-1)
    entropy = -(P * P.log()).sum(-1)
    distance = (P * torch.tensor([[0, 1, 2], [1, 0, 1], [2, 1, 0]])).sum(-1)
    expected = {
        "entropy": entropy,
        "max-weight": P.amax(-1),
        "mean-distance": distance,
        "received": P.sum(0),
        "mass-on:0": P[:, 0],
        "top-k:3, summed": P.sum(-1),
    }
    for name, numbers in expected.items():
        ((_, mean, least, largest, unit),) = rows(outcome.out, re.escape(name))
        for found, number in zip(
            (mean, least, largest), (numbers.mean(), numbers.min(), numbers.max()), strict=True
        ):
            assert float(found) == pytest.approx(number.item(), rel=1e-3)
        assert unit in ("nats", "weight", "places")
    most = P.sum(0).argmax().item()
    ((key, token, weight, share),) = rows(outcome.out, f"  {most}  ")
    assert (key, token) == (f"{most}", ["Hello", "shiny", "sun"][most])
    assert float(weight) == pytest.approx(P.sum(0).max().item(), rel=1e-3)
    share = float(share.removesuffix(" %"))
    assert share == pytest.approx(100 * P.sum(0).max().item() / 3, rel=1e-2)
    drawn = [line.split() for line in outcome.out.splitlines()[-3:]]
    for cells, name, weights in zip(drawn, ("Hello", "shiny", "sun"), P.tolist(), strict=True):
        assert cells == [name, *(f"{weight:.2f}" for weight in weights)]


def test_each_head_has_a_row_and_one_can_be_drawn(command, place):
    outcome = command("observe", "--vectors", "heads.safetensors", "--mask", "causal")
    assert "Heads: 4 (key heads: 4); batch rows: 1; queries: 13; keys: 17; dim" in outcome.out
    assert "entropy, nats: of each head over all queries" in outcome.out
    assert "received, weight: of each head over all keys" in outcome.out
    assert len(rows(outcome.out, r"   [0-3]( +[\d.e-]+){3} *$")) == 4 * len(DEFAULT)
    assert "Weights, mean over 4 heads" in outcome.out
    drawn = command("observe", "--vectors", "heads.safetensors", "--head", 3).out
    assert "Weights, of head 3" in drawn
    assert "Keys that receive the most attention, of head 3" in drawn


def test_the_map_is_the_matrix_where_that_is_small(command, place):
    x = load_file("heads.safetensors")
    P = gh.Attention(mask=gh.causal()).trace(*(x[n][None] for n in ("query", "key", "value")))
    for head, matrix in ((None, P.weights[0].mean(0)), (2, P.weights[0, 2])):
        options = ["--mask", "causal", "--width", 200, *([] if head is None else ["--head", head])]
        out = command("observe", "--vectors", "heads.safetensors", *options).out
        drawn = [line.split() for line in out.splitlines()[-14:-1]]
        for query, cells in enumerate(drawn):
            shown = [f"{w:.2f}" if key <= query + 4 else "·" for key, w in enumerate(matrix[query])]
            assert cells == [f"{query}", *shown]


def test_a_batch_and_grouped_heads_are_told(command, place):
    out = " ".join(command("observe", "--vectors", "batch.safetensors").out.split())
    assert "Heads: 4 (key heads: 2); batch rows: 2; queries: 13; keys: 17; " in out
    assert "Weights, mean over 4 heads, mean over 2 batch rows" in out


@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_layout_and_type_is_read(command, place, leading, dtype):
    made = {name: x.to(dtype) for name, x in tensors(*leading).items()}
    save_file(made, "any.safetensors")
    outcome = command("observe", "--vectors", "any.safetensors", "--save", "seen.safetensors")
    assert outcome.code == 0
    assert f"{dtype}".removeprefix("torch.") in outcome.out
    seen = gh.Observation.load("seen.safetensors")
    shape = (*(1,) * (2 - len(leading)), *leading, 13, 3)
    assert seen.context.shape == shape
    whole = [x.reshape(*shape[:2], *x.shape[-2:]) for x in made.values()]
    assert torch.equal(seen.context, gh.Attention()(*whole))


def test_a_file_without_values_is_observed(command, place):
    made = tensors(4)
    del made["value"]
    save_file(made, "keys.safetensors")
    outcome = command("observe", "--vectors", "keys.safetensors")
    assert outcome.code == 0
    assert "The file has no value. The context that --save writes is a mixture" in outcome.out


def test_the_observation_is_saved_with_what_was_asked(command, place):
    asked = ["entropy", "top-k:2", "mass-on:0,3", "received:5", "distance-histogram:0,1.5,inf"]
    options = [part for name in asked for part in ("--stat", name)]
    target = place / "new" / "seen.safetensors"
    outcome = command("observe", "--vectors", "batch.safetensors", *options, "--save", target)
    assert outcome.err == f"The observation is at {target}\n"
    seen = gh.Observation.load(target)
    assert seen.statistics == {
        "entropy": gh.Entropy(),
        "top_k_2": gh.TopK(2),
        "mass_on_0_3": gh.MassOn([0, 3]),
        "received_5": gh.Received(5),
        "distance_histogram_0_1_5_inf": gh.DistanceHistogram([0, 1.5, torch.inf]),
        "pooled_map": gh.PooledMap(13, 17),
    }
    assert seen.top_k_2.weights.shape == (2, 4, 13, 2)
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("name", STATISTICS)
def test_every_statistic_can_be_asked_for(command, place, name):
    for file in ("words.csv", "batch.safetensors"):
        outcome = command("observe", "--vectors", file, "--stat", name)
        assert (outcome.code, outcome.err) == (0, "")
        assert name in outcome.out
        assert ("Keys that receive the most attention" in outcome.out) is (name == "received")
        others = {"entropy", "max-weight", "mean-distance"} - {name}
        assert not any(re.search(f"^{other}", outcome.out, re.MULTILINE) for other in others)


def test_the_default_fits_few_keys(command, place):
    (place / "one.csv").write_text("a,1,2\n")
    outcome = command("observe", "--vectors", "one.csv")
    assert outcome.code == 0
    assert "top-k:1, summed" in outcome.out
    assert {name.partition(":")[0] for name in DEFAULT} <= set(STATISTICS)


def test_queries_that_see_nothing_are_no_trouble(command, place):
    save_file(tensors(2, queries=11, keys=3), "few.safetensors")
    outcome = command(
        "observe", "--vectors", "few.safetensors", "--mask", "causal", "--stat", "log-sum-exp"
    )
    assert outcome.code == 0
    assert "nan" not in outcome.out.lower()
    assert "∞" not in outcome.out


def test_a_long_file_is_pooled_and_keeps_to_the_width(command, place):
    save_file(tensors(2, queries=4099, keys=4099), "long.safetensors")
    for width in (20, 80, 150):
        outcome = command(
            "observe", "--vectors", "long.safetensors", "--mask", "causal+window:100",
            "--width", width, "--html", "page.html",
        )  # fmt: skip
        assert outcome.code == 0
        lines = outcome.out.splitlines()
        assert max(map(len, lines)) <= width
        # The last query sees the last block, and none of the first.
        last = next(line for line in lines if line.startswith("3970"))
        assert re.fullmatch(r"\S+ +·[ ·]*[░▒▓█ ]*[░▒▓█]", last)
        drawn = [line for line in lines if re.match(r"\d+[–…]", line)]
        assert len(drawn) == 32
    page = (place / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert page.count('scope="row"') >= 32
    assert "≤ 65 columns" in page


def test_a_map_is_drawn_by_the_blocks_that_it_has():
    edges = (0, 2, 5, 7)
    drawn = WeightsMap([[0.5, 0.25, 0.25]], (0, 1), edges, None, "A row")
    # 20 columns less the name and a space leave room for three narrow cells; 7 for one.
    wide, narrow = drawn.as_text(80), drawn._grid(2)
    assert "0.50" in wide
    assert narrow.values == ((0.75, 0.25),)
    assert narrow.columns == ("0–4", "5–6")
    assert (narrow.row_block, narrow.column_block) == (1, 5)
    hidden = WeightsMap([[None, None, 0.5]], (0, 1), edges, None, "A row")._grid(2)
    assert hidden.values == ((None, 0.5),)
    # What may be seen and is not looked at is not hidden.
    assert WeightsMap([[0.0, None, 0.5]], (0, 1), edges, None, "A row")._grid(2).values == (
        (0.0, 0.5),
    )


def test_the_page_and_the_text_are_written(command, place):
    outcome = command("observe", TEXT, "--html", "new/page.html")
    assert outcome.err == "The page is at new/page.html\n"
    page = (place / "new" / "page.html").read_text(encoding="utf-8")
    for word in TEXT.split():
        assert word in page
    assert "max-weight" in page


@pytest.mark.parametrize("engine", ["fused", "streaming", "reference"])
def test_engines_agree(command, place, engine):
    arguments = ("observe", "--vectors", "heads.safetensors", "--mask", "causal")
    outcome = command(*arguments, "--engine", engine, "--save", "seen.safetensors")
    assert f"Engine: {engine}; " in outcome.out
    seen = gh.Observation.load("seen.safetensors")
    command(*arguments, "--save", "other.safetensors")
    torch.testing.assert_close(seen.entropy, gh.Observation.load("other.safetensors").entropy)
    assert set(ENGINES) == {"auto", *NAMES}


def test_a_text_is_looked_up_in_a_file(command, place):
    outcome = command("observe", "sun Hello", "--vectors", "words.csv")
    assert "queries: 2; keys: 2; dimension: 2" in outcome.out
    assert rows(outcome.out, "sun ")[0][0].startswith("sun")


def test_files_of_tensors_are_known_by_their_content(place):
    (place / "heads.safetensors").rename("heads.bin")
    (place / "empty.safetensors").write_bytes(b"")
    (place / "brackets.csv").write_text("aaaaaaaa{,1\n")
    found = [is_tensors_file(place / name) for name in (
        "heads.bin", "empty.safetensors", "brackets.csv", "words.csv", "none", "."
    )]  # fmt: skip
    assert found == [True, True, False, False, False, False]


def bad(name, **others):
    """A file in which some tensors are others, or missing."""
    made = tensors(4) | others
    save_file({key: x for key, x in made.items() if x is not None}, f"{name}.safetensors")


BAD = [
    ({"query": None}, "the file must have query, key and optionally value, got"),
    ({"query": None, "key": None}, "optionally value, got value. Rename or add query, key."),
    ({"mask": torch.ones(3)}, "got also mask. Remove the other tensors."),
    ({"key": torch.ones(4, 17, 5, dtype=torch.int64)}, "key must be float16, bfloat16, float32 or"),
    (
        {"query": torch.ones(5)},
        "query must be [length, dim], [heads, length, dim] or [batch, heads,",
    ),
    ({"query": torch.ones(1, 1, 4, 13, 5)}, "query must be [length, dim]"),
    ({"query": torch.ones(4, 0, 5)}, "got [4, 0, 5]"),
    ({"query": torch.ones(13, 5)}, "must have the same number of axes, got"),
    ({"query": torch.ones(4, 13, 7)}, "query and key must have the same width"),
    ({"value": torch.ones(4, 11, 3)}, "each key must have one value, got 17 keys and 11 values"),
    (
        {"key": torch.ones(3, 17, 5), "value": None},
        "query heads must be a multiple of the key heads",
    ),
    ({"key": torch.ones(2, 17, 5)}, "key and value must have the same heads"),
    ({"key": torch.ones(4, 17, 5).double()}, "query, key and value must have one dtype"),
    ({"key": torch.full((4, 17, 5), torch.nan)}, "key must have finite numbers, got NaN or"),
    ({"value": torch.full((4, 17, 3), torch.inf)}, "value must have finite numbers, got NaN or"),
]


@pytest.mark.parametrize(("others", "sentence"), BAD)
def test_a_fault_of_the_file_is_named(command, place, others, sentence):
    bad("bad", **others)
    outcome = command("observe", "--vectors", "bad.safetensors")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("glasshead: error: bad.safetensors: ")
    assert sentence in outcome.err
    assert outcome.err.count("\n") == 1


REFUSED = [
    (
        ["--stat", "entropi"],
        "--stat must be one of entropy, max-weight, mean-distance, received, ma",
    ),
    (["--stat", "entropi"], "got 'entropi'. Did you mean 'entropy'?"),
    (["--stat", ""], "--stat must be one of entropy"),
    (["--stat", "entropy:3"], "--stat entropy must have nothing after its name, got 'entropy:3'."),
    (["--stat", "top-k:x"], "--stat top-k must have numbers as in top-k:3, got 'top-k:x'."),
    (["--stat", "top-k:"], "--stat top-k must have numbers as in top-k:3, got 'top-k:'."),
    (["--stat", "top-k:0"], "--stat top-k:0: TopK(k) must be a whole number of at least 1"),
    (["--stat", "top-k:18"], "TopK(k=18) needs at least 18 keys, got 17. Use a smaller k."),
    (["--stat", "mass-on:17"], "MassOn(keys) must be keys from 0 to 16, got 17"),
    (["--stat", "mass-on:1,1"], "--stat mass-on:1,1: MassOn(keys) must have each key once"),
    (["--stat", "received:14"], "Received(last=14) needs at least 14 queries, got 13"),
    (["--stat", "distance-histogram:3,1"], "must have at least two numbers in increasing order"),
    (["--stat", "top-k", "--stat", "top-k:3"], "--stat must have each statistic once, got top-k:3"),
    (["--head", "4"], "--head must be from 0 to 3, as there are 4 heads, got 4."),
    (["--head", "-1"], "--head must be a head, counted from 0, got -1."),
    (["--head", "x"], "'--head': it must be a whole number, got 'x'; see"),
    (["--engine", "flash"], "--engine must be one of auto, fused, streaming, reference, got 'fl"),
    (["--mask", "casual"], "Did you mean causal?"),
    (["--width", "3"], "--width must be 20 to 1000 columns, got 3"),
    (
        ["--save", "."],
        "--save must be a file to write, got the folder .. Name a file in it, as in s",
    ),
    (["--save", "words.csv/x"], "--save must be in a folder, got words.csv/x, "),
    (["--save", "heads.safetensors"], "--save must be another file than heads.safetensors, which"),
    (
        ["--html", "seen.PDF"],
        "--html must be a file that ends in .html, got seen.PDF, which ends in .PDF. Name",
    ),
    (
        ["--html", "a.json"],
        "--html must be a file that ends in .html, got a.json, which ends in .json. Name",
    ),
    (
        ["--save", "a.html"],
        "must be a file that ends in .safetensors, got a.html, which ends in .html. Name",
    ),
    (
        ["--html", "a", "--save", "./a"],
        "--html and --save must name different files, got a for both",
    ),
    (["--save", "-"], "--save must be a file to write, got -, standard output"),
    (["a sentence"], "TEXT needs a file of tokens and their vectors, but heads.safetens"),
]


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED)
def test_what_does_not_fit_is_refused_in_one_sentence(command, place, arguments, sentence):
    before = sorted(place.iterdir())
    outcome = command("observe", "--vectors", "heads.safetensors", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert re.fullmatch(r"glasshead: error: [^\n]+\n", outcome.err)
    assert sentence in outcome.err
    assert sorted(place.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--vectors", "none.safetensors"], "there is no file none.safetensors. Check its name."),
        (["--vectors", "none.csv"], "there is no file none.csv. Check its name."),
        (["--vectors", "broken.safetensors"], "broken.safetensors is not a safetensors file ("),
        (["--vectors", "nan.csv"], "nan.csv, line 2: expected finite numbers, got nan"),
        (["--vectors", "words.csv", "--head", "1"], "must be 0, as there is one head, got 1."),
        (["moon", "--vectors", "words.csv"], "words.csv has no vector for 'moon'. Add a row"),
        ([""], "TEXT must be a sentence, got '', which has no word. Write one, as in \"Hello"),
        (["--vectors", "."], ". is a folder. Name a file in it."),
        (["--vectors", "huge.csv"], "the scores overflow to infinity. Use smaller vectors."),
        (["--vectors", "e8.safetensors"], E8),
    ],
)
def test_other_bad_input_is_refused_in_one_sentence(command, place, arguments, sentence):
    (place / "broken.safetensors").write_bytes(b"not safetensors at all")
    (place / "nan.csv").write_text("Hello,1,2\nsun,nan,2\n")
    (place / "huge.csv").write_text("Hello,1e200,1e200\nsun,1e200,1e200\n")
    header = b'{"query":{"dtype":"F8_E8M0","shape":[1,1],"data_offsets":[0,1]}}'
    (place / "e8.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    outcome = command("observe", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert re.fullmatch(r"glasshead: error: [^\n]+\n", outcome.err)
    assert sentence in outcome.err


def test_an_engine_that_would_take_too_much_is_refused(command, place):
    save_file(tensors(2, queries=30_011, keys=30_011), "long.safetensors")
    outcome = command("observe", "--vectors", "long.safetensors", "--engine", "reference")
    assert outcome.code == 2
    assert re.search(
        r"the reference engine may take .* here, but would take [\d.]+ GiB", outcome.err
    )


def test_what_is_refused_by_itself_needs_no_torch():
    code = (
        "import sys; from glasshead.cli import main; "
        "code = main(['observe', '--stat', 'top-k:3', '--stat', 'x']); "
        "sys.exit(code if not {'torch', 'numba', 'numpy'} & set(sys.modules) else 3)"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert outcome.returncode == 2
    assert b"--stat must be one of entropy" in outcome.stderr


def test_help_needs_no_torch_and_tells_every_statistic():
    heavy = "{'torch', 'numpy', 'numba', 'safetensors', 'jaxtyping'} & set(sys.modules)"
    code = (
        "import sys; from glasshead.cli import main; main(['observe', '--help']); "
        f"sys.exit({heavy} or 0)"
    )
    environment = {"PATH": os.environ["PATH"], "COLUMNS": "80"}
    outcome = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    told = " ".join(outcome.stdout.replace("│", " ").split())
    for name in (*STATISTICS, *ENGINES, "--head", "--save", "--html", "--width", "[length, dim]"):
        assert name in told


class Terminal:
    """Where a long run says that it is going on."""

    def __init__(self, *, is_terminal):
        self.is_terminal, self.said = is_terminal, []

    def status(self, doing):
        self.doing = doing
        return self

    def start(self):
        self.said.append(self.doing)

    def stop(self):
        self.said.append("stopped")


@pytest.mark.parametrize(
    ("is_terminal", "seconds", "said"),
    [(True, 0.0, ["Waiting", "stopped"]), (True, 60.0, ["stopped"]), (False, 0.0, [])],
)
def test_a_long_run_says_so_in_a_terminal(monkeypatch, is_terminal, seconds, said):
    terminal = Terminal(is_terminal=is_terminal)
    monkeypatch.setattr(progress, "Console", lambda **_: terminal)
    monkeypatch.setattr(progress, "_SECONDS", seconds)
    with progress.going_on("Waiting"):
        # Another thread is to have its turn.
        for _ in range(1000):
            if terminal.said or seconds or not is_terminal:
                break
            torch.ones(1000).sort()
    assert terminal.said == said
