"""`glasshead roles`: its numbers, its files, and what it refuses."""

import json
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import glasshead as gh
from cli.word_models import WordModels
from glasshead.tasks.readers.find_roles import repeated
from glasshead.tasks.readers.reader import Reader
from glasshead.tasks.write import Writer
from written import written

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("no_bars")

CONTEXT = 31
ROLES = ["previous", "first", "induction", "duplicate", "local", "broad"]
TEXT = "the quick brown fox jumps over the lazy dog and then the quick brown dog sleeps "
SMALL = WordModels([*TEXT.split(), *(f"word{number}" for number in range(40))], CONTEXT)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for kind in ("llama", "bert"):
        SMALL.save(kind, folder / kind)
    torch.manual_seed(7)
    written(folder / "run")
    return folder


@pytest.fixture
def place(tmp_path, monkeypatch, models):
    monkeypatch.chdir(tmp_path)
    for kind in ("llama", "bert", "run"):
        shutil.copytree(models / kind, tmp_path / kind)
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path


def roles(command, *arguments):
    outcome = command("roles", *arguments)
    assert outcome.code == 0, outcome.err
    return outcome


def scores(command, *arguments):
    roles(command, *arguments, "--json", "roles.json")
    return json.loads(Path("roles.json").read_text(encoding="utf-8"))


def drawn(places, special, known, period, times):
    """Tokens of texts by their places among those that are not special."""
    ordinary = torch.tensor([token for token in range(known) if token not in special])
    return ordinary[gh.repeated_random_tokens(len(ordinary), period, 8, places, times=times)]


def alike(told, roles):
    assert told["layers"] == list(roles.names)
    assert told["roles"] == [list(row) for row in roles.roles]
    for found, right in (("scores", roles.scores), ("even", roles.even)):
        for role in ROLES:
            numbers = torch.tensor(told[found][role], dtype=torch.float64)
            torch.testing.assert_close(numbers, right[role], atol=1e-6, rtol=1e-5, equal_nan=True)


@pytest.mark.parametrize(("kind", "period", "times"), [("llama", 15, 2), ("bert", 14, 2)])
def test_the_numbers_are_those_of_python(command, place, kind, period, times):
    told = scores(command, kind, "--text", "text.txt", "--seed", 3)
    assert told["model"] == kind
    random, text = told["tests"]
    tokenizer = SMALL.tokenizer(kind)
    auto = transformers.AutoModelForCausalLM if kind == "llama" else transformers.AutoModel
    model = auto.from_pretrained(kind).eval()
    tokens = drawn(3, {0, 1, 2}, len(tokenizer), period, times)
    sides = (0,), (() if kind == "llama" else (1,))
    first, last = (torch.tensor(side, dtype=torch.long).expand(8, -1) for side in sides)
    tokens = torch.cat([first, tokens, last], 1)
    assert random["text"] == "repeated random tokens"
    assert random["tokens"] == tokens.numel() == 8 * (31 if kind == "llama" else 30)
    alike(random, gh.head_roles(model, tokens))
    tokens = torch.tensor([tokenizer(TEXT)["input_ids"]])
    assert (text["text"], text["tokens"]) == ("text.txt", tokens.numel())
    alike(text, gh.head_roles(model, tokens))


@pytest.mark.parametrize("kind", ["llama", "bert", "run"])
def test_python_has_the_roles_of_the_command_in_one_call(command, place, kind):
    random, text = scores(command, kind, "--text", "text.txt", "--seed", 3)["tests"]
    alike(random, gh.find_roles(kind, seed=3))
    alike(text, gh.find_roles(kind, place / "text.txt"))
    if kind == "run":
        loaded = Writer.load(kind)
        model, tokenizer = loaded.model, loaded.tokenizer
    else:
        model, tokenizer = (
            auto.from_pretrained(kind)
            for auto in (transformers.AutoModel, transformers.AutoTokenizer)
        )
    names = text["layers"]
    found = gh.find_roles(model.eval(), TEXT, tokenizer=tokenizer)
    assert [name.endswith(one) for name, one in zip(names, found.names, strict=True)]
    alike(text | {"layers": list(found.names)}, found)


def test_a_run_is_read_behind_the_end_of_another_text(command, place):
    told = scores(command, "run", "--period", 4)
    writer = Writer.load("run")
    special = writer.tokenizer.special
    put_in = {special.pad, special.unknown, special.start, special.end}
    tokens = drawn(0, put_in, writer.tokenizer.vocab_size, period=4, times=3)
    tokens = torch.cat([torch.full((8, 1), special.end), tokens], 1)
    assert (told["run"], len(told["tests"])) == ("run", 1)
    alike(told["tests"][0], gh.head_roles(writer.model, tokens))


def test_pieces_of_a_long_text_count_together(command, place):
    (place / "long.txt").write_text(TEXT * 5)
    told = scores(command, "llama", "--text", "long.txt")["tests"][1]
    tokens = SMALL.tokenizer("llama")(TEXT * 5, add_special_tokens=False)["input_ids"]
    model = transformers.AutoModel.from_pretrained("llama").eval()
    pieces = [[0, *tokens[at : at + CONTEXT - 1]] for at in range(0, len(tokens), CONTEXT - 1)]
    assert told["tokens"] == sum(map(len, pieces))
    sums, counts = 0, 0
    for piece in pieces:
        found = gh.head_roles(model, torch.tensor([piece])).scores["previous"]
        sums, counts = sums + found * (len(piece) - 1), counts + len(piece) - 1
    torch.testing.assert_close(
        torch.tensor(told["scores"]["previous"]).double(), sums / counts, atol=1e-6, rtol=1e-5
    )


def test_what_is_printed_tells_every_head_and_what_the_roles_mean(command, place):
    out = roles(command, "llama", "--text", "text.txt").out
    told = " ".join(out.split())
    assert "Head roles of llama" in told
    assert "8 texts of 31 tokens: 15 at random, none of them special or twice" in told
    assert "and the same again, 2 times in all." in told
    assert "On text.txt" in told
    assert "17 tokens." in told
    assert told.count("role and score of each head of model.layers.*.self_attn; · none") == 2
    assert out.count("head 2\n") >= 2
    for role in ROLES:
        assert len(re.findall(rf"^{role} ", out, re.MULTILINE)) == 3
    assert "sees what comes after" not in told
    assert max(map(len, out.splitlines())) <= 80


def test_of_an_encoder_it_is_said_that_later_places_count(command, place):
    told = " ".join(roles(command, "bert").out.replace("│", " ").split())
    assert "In this model, a query also sees later tokens." in told
    assert "Induction and duplicate therefore also count later occurrences." in told


def size_of(png):
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">2I", png[16:24])


def test_the_picture_of_a_name_with_signs_of_formulas_is_drawn(command, place):
    (place / "llama").rename(place / "$lla_ma$")
    outcome = roles(command, "$lla_ma$", "--png", "new/one.png")
    assert outcome.err == "The picture is at new/one.png\n"
    assert min(size_of((place / "new/one.png").read_bytes())) > 100


@pytest.mark.slow
def test_the_picture_has_a_part_for_each_text_whatever_its_name(command, place):
    for name, signs in (("llama", "$lla_ma$"), ("text.txt", "$^_{.txt")):
        (place / name).rename(place / signs)
    outcome = roles(command, "$lla_ma$", "--png", "new/one.png")
    assert outcome.err == "The picture is at new/one.png\n"
    roles(command, "$lla_ma$", "--text", "$^_{.txt", "--png", "two.png")
    one, two = (size_of((place / name).read_bytes()) for name in ("new/one.png", "two.png"))
    assert one[0] == two[0]
    assert two[1] > 1.5 * one[1]


def test_no_special_token_is_drawn_and_the_period_is_as_long_as_there_is_room():
    reader = Reader(
        name="reader",
        kind="model",
        model=nn.Identity(),
        read=lambda tokens: None,
        encode=lambda texts: [],
        token=str,
        ordinary=[*range(7, 60), 90],
        ending=(2,),
        context=None,
        unknown=None,
    )
    found = repeated(reader, None, seed=1)
    assert (found.period, found.times, found.tokens.shape) == (25, 4, (8, 101))
    assert (found.tokens[:, 0] == 2).all()
    assert set(found.tokens[:, 1:].flatten().tolist()) <= set(reader.ordinary)
    assert repeated(reader, 54, seed=1).tokens.shape == (8, 1 + 4 * 54)


REFUSED = [
    (["none"], "there is no folder none. Check its name."),
    ([""], "MODEL must be the folder of a model, got an empty name."),
    (["text.txt"], "a run must be a folder, got the file text.txt. Name the folder of the run."),
    (["."], ". has no run: there is no config.json in it. Check its name."),
    (["run", "--period", "1"], "--period must be a number of tokens from 2, got 1."),
    (["run", "--period", "7"], "--period must be at most 6, as run knows"),
    (["llama", "--period", "16"], "--period must be at most 15, as llama knows 51 tokens"),
    (["bert", "--period", "15"], "--period must be at most 14, as bert knows"),
    (["run", "--period", "many"], "it must be a whole number, got 'many'"),
    (["run", "--seed", "-1"], "--seed must be a number from 0 to 2^32, got -1."),
    (["run", "--text", "empty.txt"], "empty.txt is empty. Name a file with text in it."),
    (["run", "--text", "none.txt"], "there is no file none.txt. Check its name."),
    (
        ["run", "--text", "short.txt"],
        "a text must have at least 3 tokens to find roles, got 1 in short.txt",
    ),
    (
        ["llama", "--text", "short.txt"],
        "least 3 tokens to find roles, got 2 in short.txt. Name a long",
    ),
    (["run", "--text", ""], "--text must be a file, got an empty name. Name one, or omit it."),
    (["run", "--png", "text.txt/a.png"], "text.txt is a file. Name another place."),
    (["run", "--png", "run"], "--png must be a file to write, got the folder run. Name a file in"),
    (
        ["run", "--png", "locked.png"],
        "locked.png, which is write-protected. Change its permissions",
    ),
    (
        ["run", "--json", "run/config.json"],
        "--json must be another file than run/config.json, which",
    ),
    (
        ["run", "--text", "text.txt", "--json", "text.txt"],
        "--json must be another file than text.t",
    ),
    (["run", "--png", "a", "--json", "a"], "--png and --json must be two files, got a for both"),
    (["run", "--png", "a.pdf"], "--png must be a file that ends in .png, got a.pdf, which ends"),
    (
        ["run", "--json", "a.png"],
        "--json must be a file that ends in .json, got a.png, which ends in .png. Name",
    ),
    (["run", "--width", "3"], "--width must be 20 to 1000 columns, got 3"),
]


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED)
def test_what_does_not_fit_is_refused_in_one_sentence(command, place, arguments, sentence):
    (place / "empty.txt").write_text(" \n")
    (place / "short.txt").write_text("a")
    (place / "locked.png").write_text("x")
    (place / "locked.png").chmod(0o444)
    before = sorted(place.rglob("*"))
    outcome = command("roles", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert re.fullmatch(r"glasshead: error: [^\n]+\n", outcome.err)
    assert sentence in outcome.err
    assert sorted(place.rglob("*")) == before


def test_a_model_that_reads_too_little_is_refused(command, place):
    SMALL.save("llama", place / "tiny", max_position_embeddings=4)
    outcome = command("roles", "tiny")
    assert (outcome.code, outcome.out) == (2, "")
    assert "at least two tokens, but tiny knows 51 and reads 4 at" in outcome.err


def test_numbers_that_overflow_are_refused(command, place):
    from safetensors.torch import load_file, save_file

    file = "llama/model.safetensors"
    tensors = load_file(file)
    for name in tensors:
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            tensors[name] *= 1e30
    save_file(tensors, file, {"format": "pt"})
    outcome = command("roles", "llama")
    assert (outcome.code, outcome.out) == (2, "")
    assert "the scores overflow to infinity. Train the model again, or name" in outcome.err


def test_what_is_refused_by_itself_needs_no_torch():
    code = (
        "import sys; from glasshead.cli import main; "
        "code = main(['roles', 'run', '--period', '1']); "
        "sys.exit(code if not {'torch', 'numba', 'matplotlib'} & set(sys.modules) else 3)"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert outcome.returncode == 2
    assert b"--period must be a number of tokens from 2" in outcome.stderr
