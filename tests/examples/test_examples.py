"""The example that keeps what a head saw of a book: it is what the head saw.

The example that lets models collapse: what it tells and draws, at small settings.
The example on induction heads: its texts, its measures, and what it tells and draws.
The example that watches a real model: what it says of a head is so.
"""

import json
import math
import struct
from itertools import pairwise

import pytest
import torch
from torch import nn

import glasshead as gh
from pretrained_folders import TOKENS, llama2c_files, packed
from scripts import script


def test_the_context_of_a_word_is_pulled_to_what_its_sentence_is_about():
    trained = script("examples/trained_words.py")
    vectors = {word: torch.tensor(row) for word, row in trained.trained().items()}
    rows = [line.split(",") for line in trained.FILE.read_text("utf-8").splitlines()]
    kept = {word: torch.tensor([float(x) for x in row]) for word, *row in rows}
    assert [*kept] == [*vectors]
    torch.testing.assert_close(kept, vectors, atol=0.02, rtol=0)
    nearer = {}
    for sentence in ("我寫信給媽", "我用機寫碼"):
        x = torch.stack([kept[word] for word in sentence])
        context = gh.Attention()(x, x, x)[sentence.index("寫")]
        letter, code = (torch.cosine_similarity(context, kept[w], dim=0) for w in "信碼")
        nearer[sentence] = letter - code
    letters, programs = nearer.values()
    assert letters > 0.5 > programs


@pytest.fixture(scope="module")
def example():
    return script("examples/atlas_of_a_book.py")


@pytest.fixture
def model(tmp_path):
    file = llama2c_files(tmp_path / "model")
    (file.parent / "tok.bin").unlink()
    (file.parent / "tok512.bin").write_bytes(packed(TOKENS))
    return file


def test_what_is_kept_is_what_the_head_saw(example, model, tmp_path, capsys):
    book, kept = tmp_path / "book.txt", tmp_path / "new" / "book.safetensors"
    book.write_text("abc aab ca " * 31)
    asked = [str(model), str(book), str(kept), "--tokens", "53", "--layer", "0", "--head", "2"]
    assert example.main(asked) == 0
    assert f"glasshead studio {kept}" in capsys.readouterr().out
    weights = gh.Weights.load(kept)
    assert weights.shape == (53, 53)
    whole = gh.load_pretrained(model)
    tokenizer = example.llama2c_tokenizer(model.parent / "tok512.bin")
    tokens = tokenizer.encode_batch(["abc aab ca " * 31])
    words = json.loads((kept.parent / "book.tokens.json").read_text(encoding="utf-8"))
    assert words == [tokenizer.token(token) for token in tokens[0][:53]]
    with gh.watch(whole, keep="weights") as seen:
        whole(torch.tensor([tokens[0][:29]]))
    # The first tokens know of no longer text.
    head = seen["blocks.0.attention"].weights[0, 2]
    torch.testing.assert_close(weights[:29, :29], head)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (["--layer", "2"], "layer must be in 0..1 and head in 0..2, got layer 2, head 1."),
        (["--head", "-1"], "got layer 1, head -1."),
        (["--tokens", "-3"], "--tokens must be a whole number of at least 1, got -3"),
    ],
)
def test_what_is_not_there_is_told(example, model, tmp_path, capsys, change, told):
    book = tmp_path / "book.txt"
    book.write_text("abc")
    assert example.main([str(model), str(book), "--head", "1", *change]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "told"), [(b"", "book.txt is empty. Name a file"), (b"\xff", "UTF-8")]
)
def test_a_book_without_text_is_told(example, model, tmp_path, capsys, content, told):
    book = tmp_path / "book.txt"
    book.write_bytes(content)
    assert example.main([str(model), str(book), "--head", "1"]) == 2
    assert told in capsys.readouterr().err


@pytest.fixture(scope="module")
def collapse():
    return script("examples/collapse.py")


def test_it_teaches_each_model_tells_and_draws(collapse, tmp_path, capsys):
    file = tmp_path / "pictures" / "collapse.png"
    assert collapse.main([str(file), "--seeds", "3", "--steps", "7"]) == 0
    out = capsys.readouterr().out
    assert [line.partition(":")[0] for line in out.splitlines()[:2]] == [
        "healthy, seed 3",
        "too fast, seed 3",
    ]
    assert out.count("no alarm; the loss came to 2.") == 2
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_run_says_by_how_much_the_alarm_was_ahead(collapse):
    run = collapse.Run(collapse.TEACHINGS[1], 7, [3.0, 2.0, 1.0, 1.9, 2.1, math.nan])
    assert (run.diverged, run.alarmed, run.ahead) == (5, None, None)
    assert run.said() == "too fast, seed 7: no alarm; the loss was twice its minimum in step 5."
    run.alarms.append(gh.Alarm(2, "blocks.0.attention", 1, "maximum_logit", 120.0, 100.0))
    assert run.ahead == 3
    assert run.said().endswith(
        "in step 2; the loss was twice its minimum in step 5, 3 steps later."
    )
    run.alarms[0] = gh.Alarm(6, "blocks.0.attention", 1, "maximum_logit", 120.0, 100.0)
    assert run.said().endswith("minimum in step 5, 1 steps before.")
    silent = collapse.Run(collapse.TEACHINGS[0], 7, [3.0, 2.0, 1.0, 1.9, 2.0])
    assert (silent.diverged, silent.ahead) == (None, None)
    assert collapse.Run(collapse.TEACHINGS[1], 7, [3.0, math.nan]).diverged == 2


def test_what_is_no_setting_and_no_place_is_refused(collapse, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert collapse.main([str(tmp_path / "file" / "picture.png"), "--steps", "1"]) == 2
    assert "cannot be written" in capsys.readouterr().err
    for steps in ("many", "0"):
        with pytest.raises(SystemExit, match="2"):
            collapse.main(["--steps", steps])
    assert "--steps must be at least 1, got 0." in capsys.readouterr().err


@pytest.fixture(scope="module")
def induction():
    return script("examples/induction_heads.py")


@pytest.fixture(scope="module")
def learned(induction):
    return induction.learned(seed=3, steps=30)


class Copying(nn.Module):
    """Knows what the texts are, and says the token before a place where it is to say that one."""

    def __init__(self, text, wrong=()):
        super().__init__()
        self.text, self.wrong = text, wrong

    def forward(self, tokens):
        said = self.text[:, 1:].clone()
        said[:, self.wrong] = tokens[:, self.wrong]
        return nn.functional.one_hot(said, 64) * 100.0


def test_every_text_repeats(induction):
    for row in induction.repeating(53, torch.Generator().manual_seed(1)):
        first = {}
        for place, token in enumerate(row.tolist()):
            first.setdefault(token, []).append(place)
        periods = {b - a for places in first.values() for a, b in pairwise(places)}
        assert len(periods) == 1
        assert 8 <= periods.pop() <= 32


def test_texts_repeat_at_many_distances(induction):
    texts = induction.repeating(211, torch.Generator().manual_seed(1))
    once = [len(set(row.tolist())) for row in texts]
    assert min(once) < 16
    assert max(once) > 28
    assert len(set(texts[:, 0].tolist())) > 40


def test_accuracy_and_loss_count_what_could_be_copied(induction):
    text = induction.unseen(7)
    # Of the places that could be copied, 32 to 62, two; and one that could not.
    model = Copying(text, wrong=[3, 40, 50])
    assert induction.accuracy(model, text) == pytest.approx(29 / 31)
    losses = induction.losses(model, text)
    assert losses.nonzero().flatten().tolist() == [3, 40, 50]
    assert losses[40] == pytest.approx(100)


def test_every_parameter_learns_from_the_first_steps_on(induction, learned):
    model, moments = learned
    assert [one.step for one in moments] == [0, 20, 30]
    assert all(0 < one.loss < 5 and 0 < one.previous < 1 for one in moments)
    first, _ = induction.learned(seed=3, steps=1)
    for before, after in zip(first.parameters(), model.parameters(), strict=True):
        assert not torch.equal(before, after)


def test_the_same_seed_learns_the_same(induction, learned):
    again, _ = induction.learned(seed=3, steps=30)
    for mine, other in zip(again.parameters(), learned[0].parameters(), strict=True):
        assert torch.equal(mine, other)


def test_removals_are_the_heads_of_the_roles_and_all_others(induction):
    scores = dict.fromkeys(("first", "duplicate", "local", "broad"), torch.zeros(2, 3))
    scores["previous"] = torch.tensor([[0.1, 0.9, 0.2], [0.0, 0.0, 0.0]])
    scores["induction"] = torch.tensor([[0.0, 0.0, 0.0], [0.7, 0.1, 0.8]])
    even = dict.fromkeys(scores, torch.zeros(2, 3))
    roles = gh.HeadRoles(("a", "b"), scores, even, dict.fromkeys(scores, 0.5))
    assert induction.removals(roles) == {
        "nothing": [],
        "previous": [("a", 1)],
        "induction": [("b", 0), ("b", 2)],
        "others": [("a", 0), ("a", 2), ("b", 1)],
    }


def test_without_a_head_the_losses_are_others(induction, learned):
    model, text = learned[0], induction.unseen(3)
    whole = induction.losses(model, text)
    assert torch.equal(induction.losses(model, text, []), whole)
    without = induction.losses(model, text, [("blocks.0.attention", 1), ("blocks.1.attention", 0)])
    weights = [block.attention.output.weight for block in model.blocks]
    kept = [weight.detach().clone() for weight in weights]
    with torch.no_grad():
        weights[0][:, 32:], weights[1][:, :32] = 0, 0
        by_hand = induction.losses(model, text)
        for weight, old in zip(weights, kept, strict=True):
            weight.copy_(old)
    torch.testing.assert_close(without, by_hand)
    assert not torch.allclose(without, whole)


@pytest.mark.slow
def test_it_tells_and_draws(induction, tmp_path, capsys):
    file = tmp_path / "new" / "heads.png"
    assert induction.main([str(file), "5"], steps=2) == 0
    out = capsys.readouterr().out
    assert "blocks.1.attention 1" in out
    assert "By chance it would copy 1.6% right, at a loss of 4.16 nats." in out
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("arguments", [["2"], ["a.png", "-1"], ["a.png", "1", "2"], ["a.txt"]])
def test_arguments_that_it_does_not_take(induction, arguments, capsys):
    assert induction.main(arguments) == 2
    assert "expected a file that ends in .png" in capsys.readouterr().err


def test_a_picture_that_cannot_be_written(induction, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert induction.main([str(tmp_path / "file" / "a.png")]) == 2
    assert "the picture cannot be written" in capsys.readouterr().err


@pytest.fixture(scope="module")
def watched_story():
    return script("examples/watch_a_story.py")


@pytest.mark.slow
def test_a_head_of_the_real_model_looks_one_token_back(
    data_folder, watched_story, tmp_path, capsys
):
    file = tmp_path / "maps.png"
    assert (
        watched_story.main([str(data_folder / "stories260K" / "stories260K.bin"), str(file)]) == 0
    )
    assert "Layer 1, head 3 looks 0.99 tokens back" in capsys.readouterr().out
    assert file.read_bytes().startswith(b"\x89PNG")


def test_the_head_that_looks_one_token_back_is_found_and_drawn(watched_story, model):
    seen = watched_story.watched(gh.load_pretrained(model), 11)
    distances = torch.tensor(seen.summary().values["mean_distance"])
    layer, head = divmod(int((distances - 1).abs().argmin()), 3)
    told = watched_story.previous_token_head(seen)
    assert told.startswith(f"Layer {layer}, head {head} looks {distances[layer, head]:.2f} tokens")
    titles = [axes.get_title(loc="left") for axes in watched_story.picture(seen).axes]
    assert titles == list(watched_story.TITLES)


def test_a_picture_that_cannot_be_written_is_told(data_folder, watched_story, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    source = data_folder / "stories260K" / "stories260K.bin"
    assert watched_story.main([str(source), str(tmp_path / "file" / "maps.png")]) == 2
    assert capsys.readouterr().err.endswith("maps.png cannot be written: File exists.\n")


@pytest.mark.parametrize("content", [b"", b"short", struct.pack("7i", 8, 8, 1, 2, 1, 9, 7)])
def test_a_file_that_is_no_model_is_refused(watched_story, tmp_path, capsys, content):
    file = tmp_path / "model.bin"
    file.write_bytes(content)
    assert watched_story.main([str(file)]) == 2
    assert "llama2.c" in capsys.readouterr().err
