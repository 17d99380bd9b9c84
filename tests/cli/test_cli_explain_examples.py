"""`glasshead explain --example … --tutorial …`: the worked examples with a tutorial's numbers."""

import re

import pytest
import torch

from glasshead.ladder.worked_example import EXAMPLES, TEXTS, worked_example


@pytest.mark.parametrize("language", ["en", "tr", "es", "zh-Hans", "zh-Hant"])
def test_the_journey_of_text_e_prints_every_number_of_the_text_twice(command, language):
    options = ("--example", "journey", "--tutorial", "E", "--lang", language, "--width", "120")
    outcome = command("explain", *options)
    assert (outcome.code, outcome.err) == (0, "")
    rows = [line.split() for line in outcome.out.splitlines()]
    assert ["query_2", "[0.3558,", "0.5643]", "[0.3558,", "0.5643]"] in rows
    assert ["context_2", "[0.5084,", "0.3508]", "[0.5084,", "0.3508]"] in rows
    for numbers in (
        "-0.2396 0.1015 0.1057 0.0902 0.1501 0.0518",
        "0.1359 0.1730 0.1735 0.1716 0.1790 0.1670",
    ):
        assert sum(row[-6:] == numbers.split() for row in rows) == 2
    assert not re.search(r"≠ [-0-9]", outcome.out)


@pytest.mark.parametrize(
    ("options", "query", "printed"),
    [
        (["--tutorial", "A"], None, (-0.0748, 0.0703)),
        (["--tutorial", "b"], None, (-0.0748, 0.0703)),
        (["--tutorial", "A", "--mask", "causal"], None, (-0.5874, 0.0058)),
        (["--tutorial", "C"], (0.4306, 1.4551), None),
        (["--tutorial", "E"], (0.3558, 0.5643), (0.5084, 0.3508)),
        ([], (0.3558, 0.5643), (0.5084, 0.3508)),
    ],
)
def test_each_text_has_its_own_matrices(explained, options, query, printed):
    told = explained("--example", "journey", *options)
    assert told["tokens"][told["query"]] == "journey"
    for name, step, wanted in (("queries", "inputs", query), ("context", "context", printed)):
        if wanted is not None:
            row = torch.tensor(told["data"][step][name][told["query"]])
            torch.testing.assert_close(row, torch.tensor(wanted), rtol=0, atol=0.51e-4)


@pytest.mark.parametrize(("name", "texts"), EXAMPLES.items())
def test_no_printed_number_of_an_example_is_off_but_the_known_slips(command, name, texts):
    for text, ways in texts.items():
        for way in ways:
            mask = ["--mask", "causal"] if way.causal else []
            outcome = command("explain", "--example", name, "--tutorial", text, *mask)
            assert outcome.code == 0
            slips = ["0.2156", "0.1972"] if way.printed_terms else []
            lines = outcome.out.splitlines()
            marked = [part.split()[0] for line in lines for part in line.split("≠ ")[1:]]
            assert [one for one in marked if one[0].isdigit()] == slips
            anything = way.printed_context or way.printed_query
            assert bool(re.search(r"\bexact\b", outcome.out)) is bool(anything)


@pytest.mark.parametrize("letter", ["A", "B", "C", "E"])
def test_what_a_texts_code_gives_is_called_so(command, letter):
    """Of the journey only text E prints numbers."""
    out = command("explain", "--example", "journey", "--tutorial", letter).out
    sources = ("as the text prints it", f"computed with tutorial {letter}'s code")
    assert [source in out for source in sources] == [letter == "E", letter != "E"]
    assert "The two agree, up to rounding." in out


@pytest.mark.parametrize(
    "options",
    [
        ["--query", "step"],
        ["--mask", "causal"],
        ["--beta", "2"],
        ["--score", "dot"],
        ["--heads", "2"],
        ["--normalizer", "sparsemax"],
    ],
)
def test_another_attention_is_not_compared(command, options):
    outcome = command("explain", "--example", "journey", "--tutorial", "E", *options)
    assert outcome.code == 0
    assert "prints it" not in outcome.out


def test_the_notes_tell_the_seed_and_the_classes(explained):
    (note,) = explained("--example", "journey", "--tutorial", "E")["notes"]
    assert "torch.manual_seed(123), then SelfAttention_v1, SelfAttention_v2" in note


def test_the_sentence_of_an_example_is_that_example(explained):
    by_words = explained("Your journey starts with one step")
    assert by_words == explained("--example", "journey")
    assert explained("Hello shiny sun") == explained("--example", "shiny", "--tutorial", "A")
    assert explained("--tutorial", "C") == explained("--example", "journey", "--tutorial", "C")


class TestDropout:
    def test_weights_are_dropped_as_the_seed_says(self, explained):
        weights, dropped = (
            torch.tensor(told)
            for told in (
                explained("--dropout", "0.5", "--seed", "7")["data"][step][name]
                for step, name in (("weights", "weights"), ("dropped", "dropped"))
            )
        )
        assert 0 < (dropped == 0).sum() < 9
        torch.testing.assert_close(dropped, torch.where(dropped != 0, 2 * weights, 0.0))
        others = [explained("--dropout", "0.5", "--seed", str(seed)) for seed in range(5)]
        assert len({str(told["data"]["dropped"]["dropped"]) for told in others}) > 1

    def test_it_is_not_the_attention_of_the_texts(self, command):
        assert "published" not in command("explain", "--dropout", "0.1").out

    @pytest.mark.parametrize("rate", ["1", "-0.1", "half", "nan", "0_1"])
    def test_a_rate_that_is_none_is_refused(self, command, rate):
        outcome = command("explain", f"--dropout={rate}")
        assert outcome.code == 2
        assert "--dropout must be a number of at least 0 and below 1, got" in outcome.err


def test_each_head_reads_whole_embeddings(explained):
    (_, note) = explained("--example", "journey", "--tutorial", "A", "--heads", "2")["notes"]
    assert "Each head reads whole embeddings, all 3 numbers of them" in note
    (_, note) = explained("a b", "--heads", "2")["notes"]
    assert note.endswith("each of its heads reads whole embeddings.")


class TestColumns:
    def test_text_d_has_columns_that_add_up_to_one(self, explained):
        told = explained("--tutorial", "D")
        A = torch.tensor(told["data"]["columns"]["A"])
        X = torch.tensor(told["data"]["columns"]["X"])
        torch.testing.assert_close(A.sum(0), torch.ones(3))
        torch.testing.assert_close(A, torch.softmax(X.T @ X / 3**0.5, dim=0))
        torch.testing.assert_close(X @ A, torch.tensor(told["data"]["columns"]["H"]))

    def test_any_attention_can_be_shown_in_columns(self, explained):
        plain = explained("a b c d", "--normalizer", "sigmoid")
        told = explained("a b c d", "--normalizer", "sigmoid", "--columns")
        assert "columns" not in plain["data"]
        rows, columns = plain["data"]["weights"]["weights"], told["data"]["columns"]["A"]
        assert torch.equal(torch.tensor(rows).T, torch.tensor(columns))
        text = " ".join(next(s for s in told["steps"] if s["name"] == "columns")["text"])
        assert "add up to 1" not in text

    def test_with_matrices_it_is_the_values_that_are_mixed(self, explained):
        told = explained("--example", "journey", "--tutorial", "C", "--columns")
        step = next(step for step in told["steps"] if step["name"] == "columns")
        assert step["title"].endswith("H = VA")
        assert len(told["data"]["columns"]["V"]) == 2

    def test_of_many_words_the_column_of_one_is_shown(self, command):
        words = [f"w{place}" for place in range(17)]
        outcome = command("explain", " ".join(words), "--columns", "--width", "200")
        header = next(line.split() for line in outcome.out.splitlines() if line.startswith("A "))
        assert header == ["A", "w16"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--example", "jorney"],
            "--example must be one of shiny, journey, .* Did you mean 'journ",
        ),
        (["--tutorial", "F"], "--tutorial must be one of A, B, C, D, E, got 'F'"),
        (
            ["a sentence", "--tutorial", "A"],
            "--tutorial needs the sentence of a worked example: 'Hello",
        ),
        (["a sentence", "--example", "shiny"], "words and vectors of its own, got TEXT too"),
        (["--example", "shiny", "--vectors", "-"], "of its own, got --vectors too. Omit"),
        (
            ["--example", "shiny", "--tutorial", "E"],
            "--tutorial must be one of A, B, D for this",
        ),
        (["--example", "journey", "--dim", "4"], "--dim sets the width of random vectors"),
    ],
)
def test_what_does_not_go_together_is_refused(command, options, sentence):
    outcome = command("explain", *options)
    assert outcome.code == 2
    assert outcome.out == ""
    assert re.search(sentence, " ".join(outcome.err.replace("│", " ").split()))


def test_the_examples_are_of_known_texts():
    assert {text for texts in EXAMPLES.values() for text in texts} == set(TEXTS)
    for name, texts in EXAMPLES.items():
        for text in texts:
            assert worked_example(name, text).position == 1


class TestTheEarlierName:
    def test_it_means_the_same(self, explained):
        assert explained("--text", "C") == explained("--tutorial", "C")

    def test_both_at_once_are_refused(self, command):
        outcome = command("explain", "--text", "C", "--tutorial", "C")
        assert outcome.code == 2
        assert "--tutorial and --text are the same option. Omit --text." in outcome.err

    def test_the_help_does_not_show_it(self, command):
        out = command("explain", "--help").out
        assert "--tutorial" in out
        assert "--text" not in out
