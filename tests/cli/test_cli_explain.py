"""`glasshead explain`: what each option does to what is explained.

The query: a word, a place, or the last word; and how a wrong one is refused.
Projection: hand-computed queries, keys and values, and what is refused.
Embeddings: made up from a seed, looked up, and checked.
"""

import hashlib
import json
import math
import re
from statistics import NormalDist

import pytest
import torch
from safetensors.torch import save_file

import glasshead as gh
from glasshead.cli.inputs.sentences import query_position
from glasshead.explanation import explain_trace
from glasshead.explanation.choices import NORMALIZERS, SCORES, RecipeOptions
from glasshead.explanation.embeddings import Embeddings, Projection, composed
from glasshead.explanation.explain_trace import Sentence, VectorSource
from glasshead.explanation.settings import ExplanationSettings
from glasshead.ladder import HELLO_SHINY_SUN, SelfAttentionV1, SelfAttentionV2
from glasshead.recipe.mask_text import parse_mask

TEXT = "the shiny sun and the moon!"


TOKENS = ["the", "shiny", "sun", "and", "the", "moon", "!"]


def weights(told):
    return torch.tensor(told["data"]["weights"]["weights"], dtype=torch.float64)


@pytest.fixture
def handed_on(command, monkeypatch):
    """What the command hands to `explain`, beside what comes of it."""
    calls = []

    def watched(trace, settings, **options):
        calls.append({"trace": trace, **options})
        return explain(trace, settings, **options)

    explain = explain_trace.explain
    monkeypatch.setattr("glasshead.explanation.explain_trace.explain", watched)

    def run(*arguments):
        assert command("explain", *arguments).code == 0
        return calls.pop()

    return run


def made_up(tokens, dim=4, seed=123):
    return Embeddings.generated(tokens, dim=dim, seed=seed).vectors


def test_alone_it_explains_the_worked_example_beside_the_printed_numbers(command):
    outcome = command("explain")
    assert (outcome.code, outcome.err) == (0, "")
    assert "\x1b" not in outcome.out
    assert "[0.3990, 0.3854, 0.8610]" in outcome.out
    assert "0.3992" in outcome.out
    assert "0.3858" in outcome.out
    assert "random" not in outcome.out


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
    assert "random (seed 123) and have no meaning" in told["notes"][0]
    assert len(told["notes"]) == 1


def test_the_text_says_that_vectors_are_made_up(command):
    outcome = command("explain", TEXT, "--seed", "7")
    assert re.search(r"random \(seed 7\)\s*│?\s*and have no meaning", outcome.out)


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
    assert "additive score are random (seed 1)" in first["notes"][1]
    assert "additive score are random" in explained("--score", "additive")["notes"][0]


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
    picture = parse_mask(written).picture(queries=5, keys=5)
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


@pytest.mark.parametrize("digits", [1, 2, 7, 12])
def test_digits_are_the_decimals_in_the_terminal_and_on_the_page(
    command, explained, tmp_path, digits
):
    page = tmp_path / "page.html"
    out = command("explain", "--digits", digits, "--html", page, "--width", 120).out
    told = explained("--digits", digits)
    assert told["data"] == explained()["data"]
    line = next(step for step in told["steps"] if step["name"] == "context")["numbers"][-1]
    assert line.endswith(f" = {told['data']['context']['context'][1][0]:.{digits}f}")
    assert line in out
    assert line in page.read_text()


@pytest.mark.parametrize("digits", [0, 13])
def test_digits_have_limits(command, digits):
    outcome = command("explain", "--digits", digits)
    assert outcome.code == 2
    assert f"--digits must be from 1 to 12, got {digits}." in outcome.err


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
    settings = ExplanationSettings(score="dot", beta="auto", mask="window:2", heads=3)
    recipe = settings.recipe()
    assert recipe == RecipeOptions(score="dot", beta="auto", mask="window:2", heads=3)
    assert not recipe.is_that_of(HELLO_SHINY_SUN)


SENTENCE = ("the", "shiny", "sun", "and", "the", "moon", "!")


@pytest.mark.parametrize(
    ("asked", "place"), [("shiny", 1), ("!", 6), ("#1", 0), ("#5", 4), ("#007", 6)]
)
def test_where_the_query_is(asked, place):
    assert query_position(SENTENCE, asked) == place


@pytest.mark.parametrize(("tokens", "place"), [(SENTENCE, 5), (("…", "!"), 1)])
def test_the_last_word_is_the_query_or_without_any_word_the_last_mark(tokens, place):
    sentence = Sentence(Embeddings.generated(tokens), VectorSource.GENERATED)
    assert sentence.default_query == place


def test_a_token_that_looks_like_a_place_is_asked_for_by_its_place():
    assert query_position(("#2", "b", "c"), "#2") == 1
    assert query_position(("#2", "b", "c"), "#1") == 0


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            "shinny",
            "'shinny' is not in the sentence. Did you mean 'shiny'? Choose one of 'the', ",
        ),
        ("Sun", "Did you mean 'sun'?"),
        (
            "xyz",
            "'xyz' is not in the sentence. Choose one of 'the', 'shiny', 'sun', 'and', 'moon'",
        ),
        ("the", "'the' stands 2 times in the sentence, at #1, #5. Ask for one of them"),
        ("shiny sun", "It is 2 tokens here, so ask for one of 'shiny', 'sun'."),
        ("#0", "--query must be from #1 to #7, got #0. The sentence is 'the', "),
        ("#8", "--query must be from #1 to #7, got #8"),
        ("#-1", "--query must be from #1 to #7, got #-1"),
        ("#1.5", "--query must be from #1 to #7, got #1.5"),
        ("#99999999999", "--query must be from #1 to #7, got #99999999999"),
        ("", "'' is not in the sentence"),
    ],
)
def test_a_query_that_is_not_there_is_refused(asked, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        query_position(SENTENCE, asked)


X = torch.tensor([[1.0, 2.0, 3.0], [0.0, -1.0, 1.0]])


W_QUERY = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])


W_KEY = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])


W_VALUE = torch.tensor([[1.0], [10.0], [100.0]])


def projection(**others):
    return Projection(
        **({"inputs": X, "W_query": W_QUERY, "W_key": W_KEY, "W_value": W_VALUE} | others)
    )


def test_each_is_the_inputs_times_its_matrix():
    made = projection()
    assert made.queries.tolist() == [[4.0, 7.0], [1.0, -1.0]]
    assert made.keys.tolist() == [[2.0, 1.0], [-1.0, 0.0]]
    assert made.values.tolist() == [[321.0], [90.0]]


def test_a_bias_is_added_to_every_row_of_its_own():
    made = projection(b_key=torch.tensor([0.5, -0.5]), b_value=torch.tensor([1.0]))
    assert made.queries.tolist() == [[4.0, 7.0], [1.0, -1.0]]
    assert made.keys.tolist() == [[2.5, 0.5], [-0.5, -0.5]]
    assert made.values.tolist() == [[322.0], [91.0]]


@pytest.mark.parametrize(
    ("others", "error", "sentence"),
    [
        (
            {"inputs": [[1.0]]},
            TypeError,
            "inputs must be a tensor of floating-point numbers, got list. Convert it with .float",
        ),
        ({"inputs": X[0]}, ValueError, "inputs must have the shape [tokens, d_in], got [3]"),
        (
            {"W_key": W_KEY.long()},
            TypeError,
            "W_key must be a tensor of floating-point numbers, got",
        ),
        (
            {"W_key": W_KEY.double()},
            TypeError,
            "W_key must have the type of the inputs, torch.float32",
        ),
        ({"W_key": W_KEY[0]}, ValueError, "W_key must have the shape [d_in, d_out], got [2]"),
        ({"W_query": W_QUERY.T}, ValueError, "of 3 numbers, got [2, 3]: transpose it."),
        (
            {"W_value": W_VALUE[:2]},
            ValueError,
            "W_value must be [3, d_out] for vectors of 3 numbers",
        ),
        ({"W_key": torch.ones(3, 4)}, ValueError, "got [3, 2] and [3, 4]."),
        (
            {"b_query": torch.ones(3)},
            ValueError,
            "b_query must have 2 numbers, one a column of W_query",
        ),
        (
            {"b_query": torch.ones(1, 2)},
            ValueError,
            "b_query must have the shape [d_out], got [1, 2]",
        ),
    ],
)
def test_what_does_not_fit_is_refused(others, error, sentence):
    with pytest.raises(error, match=re.escape(sentence)):
        projection(**others)


def test_made_up_numbers_are_those_that_the_hash_gives_by_hand():
    drawn = hashlib.shake_256("7:güneş".encode()).digest(16)
    first, second = (int.from_bytes(part, "big") // 2**12 for part in (drawn[:8], drawn[8:]))
    expected = [round(NormalDist().inv_cdf((x + 0.5) / 2**52), 2) for x in (first, second)]
    made = Embeddings.generated(["güneş"], dim=2, seed=7)
    assert made.vectors.tolist() == [expected]
    assert Embeddings.generated(["sun"], dim=2).vectors.tolist() == [[0.64, -0.06]]


def test_a_word_has_the_same_vector_in_every_sentence():
    one = Embeddings.generated(["the", "sun", "the"], dim=6)
    other = Embeddings.generated(["moon", "the"], dim=6)
    assert torch.equal(one.vectors[0], one.vectors[2])
    assert torch.equal(one.vectors[0], other.vectors[1])
    assert not torch.equal(one.vectors[1], other.vectors[0])


def test_another_seed_gives_other_vectors_and_a_wider_one_begins_alike():
    made = Embeddings.generated(["sun"], dim=4, seed=1).vectors
    assert not torch.equal(made, Embeddings.generated(["sun"], dim=4, seed=2).vectors)
    assert torch.equal(made, Embeddings.generated(["sun"], dim=9, seed=1).vectors[:, :4])


def test_made_up_numbers_are_normal_with_two_decimals():
    vectors = Embeddings.generated([f"word {i}" for i in range(2000)], dim=8).vectors
    assert abs(float(vectors.mean())) < 0.03
    assert abs(float(vectors.std()) - 1) < 0.03
    assert torch.equal((vectors * 100).round() / 100, vectors)


def test_the_callers_random_numbers_are_left_alone():
    state = torch.get_rng_state()
    Embeddings.generated(["sun"])
    assert torch.equal(torch.get_rng_state(), state)


def test_look_up_takes_rows_in_the_order_of_the_words():
    known = Embeddings(("a", "b", "c", "b"), torch.tensor([[1.0], [2.0], [3.0], [2.0]]))
    found = known.look_up(["c", "b", "c"])
    assert found.tokens == ("c", "b", "c")
    assert found.vectors.tolist() == [[3.0], [2.0], [3.0]]


def test_look_up_names_what_is_missing_and_what_is_twice():
    known = Embeddings(("a", "b", "b"), torch.tensor([[1.0], [2.0], [3.0]]))
    with pytest.raises(ValueError, match="there is no vector for 'x', 'y' among 3 tokens"):
        known.look_up(["a", "x", "y", "x"])
    with pytest.raises(
        ValueError, match="'b' must have one vector, got 2 rows with different ones"
    ):
        known.look_up(["a", "b"])
    assert known.look_up(["a"]).vectors.tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("tokens", "vectors", "error", "sentence"),
    [
        ("ab", torch.ones(2, 3), TypeError, "tokens must be a sequence of strings, got 'ab'"),
        (
            ("a",),
            [[1.0]],
            TypeError,
            "vectors must be a tensor of floating-point numbers, got list",
        ),
        (("a",), torch.ones(1, 2).long(), TypeError, "got torch.int64"),
        (("a",), torch.ones(2), ValueError, "one row for each of the 1 tokens, got shape [2]"),
        (("a",), torch.ones(2, 3), ValueError, "got shape [2, 3]"),
        (
            ("a", "b"),
            torch.tensor([[1.0], [torch.nan]]),
            ValueError,
            "got NaN or infinity in row 1",
        ),
    ],
)
def test_what_is_no_embedding_is_refused(tokens, vectors, error, sentence):
    with pytest.raises(error, match=re.escape(sentence)):
        Embeddings(tokens, vectors)


def test_a_vector_without_numbers_cannot_be_made_up():
    with pytest.raises(ValueError, match="dim must be a whole number of at least 1, got 0"):
        Embeddings.generated(["a"], dim=0)


def test_equal_looking_words_are_made_equal():
    assert composed("i\u0307") != "i"
    assert composed("gu\u0308nes\u0327") == "güneş"


class TestStep:
    """A step of the ladder, from 11 on."""

    def test_is_explained_for_a_word_of_its_sentence(self, command):
        outcome = command("explain", "--step", 13, "--query", "#5", "--width", 100)
        assert (outcome.code, outcome.err) == (0, "")
        assert "“one” sees starts · with · one." in outcome.out
        # Three words and a sink of 0, whose power is 1.
        assert re.search(r"Σ = e\^\S+ \+ e\^\S+ \+ e\^\S+ \+ e\^0\n", outcome.out)

    def test_as_json_it_has_all_numbers(self, command):
        told = json.loads(command("explain", "--step", 16, "--json", "--seed", 7).out)
        assert told["recipe"] == {
            "step": 16,
            "layer": "GatedDeltaNet(d_in=3, num_heads=1, key_dim=2, value_dim=2, kernel_size=2)",
            "seed": 7,
        }
        (writing,) = (step for step in told["steps"] if step["name"] == "writing")
        assert torch.tensor(writing["data"]["memory"]).shape == (2, 2)

    def test_digits_set_its_decimals(self, command):
        out = command("explain", "--step", 15, "--digits", 2).out
        assert "q[0](step)  = [-1.01, -0.99]" in out

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--step", 10], "--step must be from 11 to 16, got 10."),
            (["--step", 17], "--step must be from 11 to 16, got 17."),
            (
                ["--step", 11, "--mask", "causal"],
                "--step has a sentence and a layer of its own, got --mask too. Omit one of them.",
            ),
            (
                ["--step", 11, "Hello"],
                "--step has a sentence and a layer of its own, got TEXT too.",
            ),
            (["--step", 11, "--query", "moon"], "'moon' is not in the sentence."),
        ],
    )
    def test_that_does_not_fit(self, command, options, message):
        outcome = command("explain", *options)
        assert outcome.code == 2
        assert message in outcome.err
