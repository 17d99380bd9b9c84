"""`glasshead explain`: what each option does to what is explained."""

import math
import re

import pytest
import torch
from safetensors.torch import save_file

import glasshead as gh
from glasshead.cli.attention_options import parse_mask, parse_recipe
from glasshead.explanation.choices import NORMALIZERS, SCORES, RecipeOptions, build_mask
from glasshead.explanation.embeddings import Embeddings
from glasshead.ladder import HELLO_SHINY_SUN, SelfAttentionV1, SelfAttentionV2

TEXT = "the shiny sun and the moon!"
TOKENS = ["the", "shiny", "sun", "and", "the", "moon", "!"]


def weights(told):
    return torch.tensor(told["data"]["weights"]["weights"], dtype=torch.float64)


@pytest.fixture
def handed_on(command, monkeypatch):
    """What the command hands to `explain`, beside what comes of it."""
    calls = []

    def watched(trace, **options):
        calls.append({"trace": trace, **options})
        return explain(trace, **options)

    explain = gh.explain
    monkeypatch.setattr("glasshead.explanation.sentence.explain", watched)

    def run(*arguments):
        assert command("explain", *arguments).code == 0
        return calls.pop()

    return run


def made_up(tokens, dim=4, seed=123):
    return Embeddings.made_up(tokens, dim=dim, seed=seed).vectors


def test_alone_it_explains_the_worked_example_beside_the_printed_numbers(command):
    outcome = command("explain")
    assert (outcome.code, outcome.err) == (0, "")
    assert "\x1b" not in outcome.out
    assert "[0.3990, 0.3854, 0.8610]" in outcome.out
    assert "0.3992" in outcome.out
    assert "0.3858" in outcome.out
    assert "made up" not in outcome.out


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        ([], True),
        (["--score", "dot", "--beta", "1", "--mask", "none", "--normalizer", "softmax"], True),
        (["--query", "#2", "--lang", "tr", "--seed", "7", "--width", "60"], True),
        (["--query", "sun"], False),
        (["--score", "scaled-dot"], False),
        (["--beta", "0.5"], False),
        (["--beta", "auto"], False),
        (["--mask", "causal"], False),
        (["--normalizer", "sparsemax"], False),
        (["--heads", "3"], False),
    ],
)
def test_printed_numbers_are_shown_for_the_texts_own_attention_only(handed_on, options, printed):
    assert (handed_on(*options)["printed"] is HELLO_SHINY_SUN) is printed


def test_a_sentence_has_made_up_vectors_and_says_so(explained):
    told = explained(TEXT)
    assert told["tokens"] == TOKENS
    assert told["query"] == 5
    x = made_up(TOKENS)
    torch.testing.assert_close(weights(told), (x @ x.T / 2).softmax(-1))
    assert "made up from seed 123 and mean nothing" in told["notes"][0]
    assert len(told["notes"]) == 1


def test_the_text_says_that_vectors_are_made_up(command):
    outcome = command("explain", TEXT, "--seed", "7")
    assert re.search(r"made up from seed 7\s*│?\s*and mean nothing", outcome.out)


def test_seed_and_dim_make_other_vectors(handed_on):
    trace = handed_on(TEXT, "--seed", "7", "--dim", "6")["trace"]
    assert torch.equal(trace.queries, made_up(TOKENS, dim=6, seed=7))


@pytest.mark.parametrize(
    ("text", "query", "tokens"),
    [
        ("Merhaba parlak güneş!", None, ["Merhaba", "parlak", "güneş", "!"]),
        ("¡Hola, sol brillante!", "sol", ["¡", "Hola", ",", "sol", "brillante", "!"]),
        ("你好，閃亮的太陽！", "太", ["你", "好", "，", "閃", "亮", "的", "太", "陽", "！"]),
        ("gu\u0308nes\u0327", "güneş", ["güneş"]),
        ("güneş", "gu\u0308nes\u0327", ["güneş"]),
        ("!?", None, ["!", "?"]),
    ],
)
def test_sentences_of_other_languages(explained, text, query, tokens):
    told = explained(text, *([] if query is None else ["--query", query]))
    assert told["tokens"] == tokens
    words = [place for place, token in enumerate(tokens) if token.isalnum()]
    expected = {None: words[-1] if words else 1, "sol": 3, "太": 6}.get(query, 0)
    assert told["query"] == expected


def test_a_file_is_the_sentence(explained, tmp_path):
    path = tmp_path / "vectors.csv"
    path.write_text("the,1,2\nsun,3,4\nthe,5,6\n")
    told = explained("--vectors", path, "--query", "#1", "--score", "dot")
    assert (told["tokens"], told["query"], told["notes"]) == (["the", "sun", "the"], 0, [])
    x = torch.tensor([[1.0, 2], [3, 4], [5, 6]], dtype=torch.float64)
    torch.testing.assert_close(weights(told), (x @ x.T).softmax(-1))


def test_a_text_is_looked_up_in_a_file(explained, tmp_path):
    path = tmp_path / "vectors.json"
    path.write_text('{"moon": [1, 2], "sun": [3, 4], "!": [0.5, 0.25]}')
    told = explained("sun moon sun!", "--vectors", path, "--query", "moon")
    assert told["tokens"] == ["sun", "moon", "sun", "!"]
    x = torch.tensor([[3, 4], [1, 2], [3, 4], [0.5, 0.25]], dtype=torch.float64)
    torch.testing.assert_close(weights(told), (x @ x.T / math.sqrt(2)).softmax(-1))


@pytest.mark.parametrize("score", SCORES)
def test_each_score(handed_on, score):
    trace = handed_on(TEXT, "--score", score)["trace"]
    x = made_up(TOKENS)
    own = getattr(gh, SCORES[score])
    expected = trace.problem.score(x, x) if score == "additive" else own()(x, x)
    assert type(trace.problem.score) is own
    torch.testing.assert_close(trace.scores, expected)
    assert trace.problem.scale == (0.5 if score == "scaled-dot" else 1.0)


def test_parameters_of_the_additive_score_come_from_the_seed_and_it_is_said(explained):
    first, again, other = (
        explained(TEXT, "--score", "additive", "--seed", seed) for seed in (1, 1, 2)
    )
    assert torch.equal(weights(first), weights(again))
    assert not torch.equal(weights(first), weights(other))
    assert "additive score are made up from seed 1" in first["notes"][1]
    assert "additive score are made up" in explained("--score", "additive")["notes"][0]


@pytest.mark.parametrize("name", NORMALIZERS)
def test_each_normalizer(handed_on, name):
    trace = handed_on(TEXT, "--normalizer", name)["trace"]
    expected = getattr(gh, NORMALIZERS[name])()(trace.masked)
    torch.testing.assert_close(trace.weights, expected)


@pytest.mark.parametrize(
    ("score", "beta", "scale"),
    [
        ("scaled-dot", None, 0.5),
        ("dot", None, 1.0),
        ("dot", "auto", 0.5),
        ("cosine", "auto", 0.5),
        ("scaled-dot", "8", 8.0),
        ("additive", "2.5e-1", 0.25),
    ],
)
def test_beta(handed_on, score, beta, scale):
    options = [] if beta is None else ["--beta", beta]
    assert handed_on(TEXT, "--score", score, *options)["trace"].problem.scale == scale


@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax", "entmax15", "hardmax", None])
def test_an_infinite_beta_is_hardmax(handed_on, normalizer):
    options = [] if normalizer is None else ["--normalizer", normalizer]
    trace = handed_on(TEXT, "--beta", "inf", *options)["trace"]
    assert isinstance(trace.problem.normalizer, gh.HardMax)
    assert torch.equal(trace.weights.sum(-1), torch.ones(7, dtype=torch.float64))
    assert set(trace.weights.flatten().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("written", "rows"),
    [
        ("causal", ["■····", "■■···", "■■■··", "■■■■·", "■■■■■"]),
        ("window:1", ["■····", "■■···", "·■■··", "··■■·", "···■■"]),
        ("window:1:2", ["■■■··", "■■■■·", "·■■■■", "··■■■", "···■■"]),
        ("window:0:0", ["■····", "·■···", "··■··", "···■·", "····■"]),
        ("causal+window:1:2", ["■····", "■■···", "·■■··", "··■■·", "···■■"]),
    ],
)
def test_each_mask(handed_on, written, rows):
    picture = build_mask(parse_mask(written)).picture(queries=5, keys=5)
    assert picture.splitlines() == rows
    trace = handed_on("a b c d e", "--mask", written)["trace"]
    seen = ["".join("·■"[int(x > 0)] for x in row) for row in trace.weights.tolist()]
    assert seen == rows


def test_heads_split_the_vectors_and_one_is_told(handed_on):
    call = handed_on(TEXT, "--heads", "2", "--head", "1")
    x = made_up(TOKENS)
    assert torch.equal(call["trace"].queries[0, 0], x[:, :2])
    assert torch.equal(call["trace"].queries[0, 1], x[:, 2:])
    assert call["index"] == (0, 1)


@pytest.mark.parametrize("rung", [SelfAttentionV1, SelfAttentionV2])
def test_weights_give_the_ladders_own_contexts(handed_on, tmp_path, rung):
    module = rung(3, 2)
    path = tmp_path / "w.safetensors"
    save_file(module.state_dict(), path)
    call = handed_on(TEXT, "--weights", path)
    x = made_up(TOKENS, dim=3)
    assert torch.equal(call["projection"].inputs, x)
    torch.testing.assert_close(call["trace"].context, module.double()(x).detach())
    assert "printed" not in call or call["printed"] is None


def test_weights_serve_the_worked_example_in_heads(handed_on, tmp_path):
    module = SelfAttentionV1(3, 4)
    save_file(module.state_dict(), tmp_path / "w.safetensors")
    call = handed_on("--weights", tmp_path / "w.safetensors", "--heads", "2")
    assert call["printed"] is None
    assert torch.equal(call["trace"].values[0, 1], call["projection"].values[:, 2:])


def test_parsing_an_option_needs_no_torch_and_gives_a_recipe():
    recipe = parse_recipe(score="dot", beta="auto", mask="window:2", heads=3)
    assert recipe == RecipeOptions(score="dot", beta="auto", bands=((2, 0),), heads=3)
    assert recipe.is_the_texts_own() is False
