"""`glasshead cards`: its files, going on after an interruption, and what it refuses."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch

import glasshead as gh
from cli.word_models import WordModels
from glasshead.tasks.readers import cards_of_texts as reading

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("no_bars")

WORDS = "the quick brown fox jumps over lazy dog and then sleeps | here"
SMALL = WordModels([*WORDS.split(), *(f"word{number}" for number in range(40))], 31)
TEXTS = ["the quick brown fox | fox quick", "the lazy dog sleeps | dog here and then", "fox"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for kind in ("llama", "bert"):
        SMALL.save(kind, folder / kind)
    return folder


@pytest.fixture
def place(tmp_path, monkeypatch, models):
    monkeypatch.chdir(tmp_path)
    for kind in ("llama", "bert"):
        shutil.copytree(models / kind, tmp_path / kind)
    lines = [json.dumps({"text": text}) for text in TEXTS]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    return tmp_path


ASKED = ("--text", "texts.jsonl", "--separator", "|")


def cards(command, *arguments):
    outcome = command("cards", *arguments)
    assert outcome.code == 0, outcome.err
    return outcome


def test_the_file_has_the_cards_of_python_and_their_hash(command, place):
    cards(command, "bert", *ASKED, "--json", "cards.json")
    text = Path("cards.json").read_text(encoding="utf-8")
    told = json.loads(text)
    assert (told["name"], told["texts"], told["inputs"]["short"]) == ("bert", 2, 1)
    model, tokenizer = (
        transformers.AutoModel.from_pretrained("bert").eval(),
        SMALL.tokenizer("bert"),
    )
    found = None
    # The longest text comes first.
    for one in (TEXTS[1], TEXTS[0]):
        tokens = torch.tensor(tokenizer(one)["input_ids"])
        with torch.no_grad(), gh.watch(model, keep="parts") as seen:
            model(tokens[None])
        word = tokenizer.convert_ids_to_tokens
        own = gh.head_cards(
            seen,
            tokens,
            separator=tokenizer.convert_tokens_to_ids("|"),
            special={0, 1},
            word=word,
        )
        found = own if found is None else found + own
    assert found is not None
    assert [card["head"] for card in told["cards"]] == [0, 1, 2, 0, 1, 2]
    for card, right in zip(told["cards"], found.cards, strict=True):
        assert card["entropy"] == pytest.approx(right.entropy, abs=1e-4)
        assert card["scores"]["alignment"] == pytest.approx(right.scores["alignment"], abs=1e-4)
        assert [key.strip() for key, _ in card["keys"]] == [key for key, _ in right.keys]
        assert card["layer"].endswith(right.layer)
    lines = [line.strip().rstrip(",") for line in text.splitlines() if line.startswith("  {")]
    digest = hashlib.sha256("\n".join([json.dumps(told["inputs"]), *lines]).encode())
    assert told["hash"] == digest.hexdigest()


def test_the_same_inputs_give_the_same_bytes_and_others_another_hash(command, place):
    for name in ("one", "other"):
        cards(command, "llama", *ASKED, "--json", f"{name}.json", "--html", f"{name}.html")
    for kind in ("json", "html"):
        assert Path(f"one.{kind}").read_bytes() == Path(f"other.{kind}").read_bytes()
    cards(command, "llama", "--text", "texts.jsonl", "--json", "third.json")
    first, third = (
        json.loads(Path(f"{name}.json").read_text())["hash"] for name in ("one", "third")
    )
    assert first != third


def test_the_only_token_that_each_text_has_once_between_alike_parts_is_the_separator(
    command, place
):
    texts = [*TEXTS[:2], "fox jumps over | fox lazy", "dog here | quick dog quick"]
    Path("more.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    out = [
        cards(command, "llama", "--text", "more.jsonl", *given, "--json", f"{name}.json").out
        for name, given in (("found", ()), ("given", ("--separator", "|")))
    ]
    assert out[0] == out[1]
    assert "Separator of the two parts of a text: |" in out[0]
    assert Path("found.json").read_bytes() == Path("given.json").read_bytes()
    # Of two texts, it says nothing.
    cards(command, "llama", "--text", "texts.jsonl", "--json", "two.json")
    assert json.loads(Path("two.json").read_text())["inputs"]["separator"] is None


def test_cards_in_float64_are_those_of_the_model_but_for_rounding(command, place):
    for name, given in (("float", ()), ("double", ("--float64",))):
        cards(command, "llama", *ASKED, *given, "--json", f"{name}.json")
    one, other = (json.loads(Path(f"{name}.json").read_text()) for name in ("float", "double"))
    assert one["inputs"]["model"] != other["inputs"]["model"]
    for card, right in zip(one["cards"], other["cards"], strict=True):
        assert card["entropy"] == pytest.approx(right["entropy"], abs=2e-4)
        assert card["looks"][0][:2] == right["looks"][0][:2]


def test_page_and_markdown_have_every_head_and_no_script(command, place):
    outcome = cards(command, "llama", *ASKED, "--html", "page.html", "--markdown", "cards.md")
    page, text = Path("page.html").read_text(), Path("cards.md").read_text()
    assert "<script" not in page
    assert page.count('<section class="card">') == text.count("\n### head ") == 6
    assert "Head cards of llama" in outcome.out
    assert "raises the logits of" not in outcome.out
    assert "raises the logits of" in page
    assert "- its keys read: " in text


def test_without_a_file_the_cards_of_random_tokens_are_printed(command, place):
    out = cards(command, "llama").out
    assert "Texts read: 8." in out
    assert out.count("typical looks: ") == 6


def test_an_interrupted_run_is_resumed_with_the_same_bytes(command, place, monkeypatch):
    cards(command, "llama", *ASKED, "--json", "whole.json")
    monkeypatch.setattr(reading, "_EVERY", 0.0)
    made = reading.head_cards
    calls = []

    def interrupted(*given, **named):
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return made(*given, **named)

    monkeypatch.setattr(reading, "head_cards", interrupted)
    asked = ("cards", "llama", *ASKED, "--json", "cards.json")
    assert command(*asked).code == 130
    assert Path("cards.json.partial").exists()
    refused = command(*asked)
    assert refused.code == 2
    assert "Add --resume to continue" in refused.err
    other = command("cards", "llama", "--text", "texts.jsonl", "--json", "cards.json", "--resume")
    assert "another separator" in other.err
    cards(command, *asked[1:], "--resume")
    assert len(calls) == 3
    assert Path("cards.json").read_bytes() == Path("whole.json").read_bytes()
    assert not Path("cards.json.partial").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("",), "MODEL must be the folder of a model, got an empty name."),
        (("llama", "--separator", "a fox"), "--separator must be one token of llama, got 'a fox'."),
        (("llama", "--resume"), "--resume continues an interrupted run with --json FILE."),
        (("llama", "--json", "a.json", "--resume"), "--resume found no a.json.partial."),
        (("llama", "--html", "a.json"), "--html must be a file that ends in .html"),
        (("llama", "--text", "short.txt"), "a text must have at least 3 tokens"),
        (("llama", "--text", "none.txt"), "none.txt"),
    ],
)
def test_bad_input_is_one_sentence(command, place, arguments, sentence):
    (place / "short.txt").write_text("fox")
    outcome = command("cards", *arguments)
    assert outcome.code == 2
    assert sentence in outcome.err
    assert outcome.err.count("\n") == 1
