"""Writing with stop strings, and for several prompts at once."""

import pytest

from glasshead.models.decoding import Beam, Greedy, Sampling
from glasshead.models.language_model import LanguageModelSteps
from glasshead.tasks.write import Writer
from written import written

PROMPTS = ["One day", "", "The sun", "A", "O", "One sunny day Emma", "One d"]
STRATEGIES = [Greedy(), Greedy(repetition_penalty=1.4), Sampling(0.0), Beam(3)]


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    return Writer.load(written(tmp_path_factory.mktemp("runs") / "run", "context_length=23").path)


def alone(writer, prompt, strategy, **asked):
    return "".join(writer.write(prompt, strategy, **asked))


@pytest.fixture
def fed(monkeypatch):
    """How many rows and tokens the model was fed, step by step."""
    shapes, next_ = [], LanguageModelSteps.next

    def counted(self, tokens):
        shapes.append(tuple(tokens.shape))
        return next_(self, tokens)

    monkeypatch.setattr(LanguageModelSteps, "next", counted)
    return shapes


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("tokens", [3, 16])
def test_prompts_side_by_side_have_the_texts_that_they_have_alone(writer, strategy, tokens):
    found = writer.write_all(PROMPTS, strategy, max_tokens=tokens)
    expected = [alone(writer, prompt, strategy, max_tokens=tokens) for prompt in PROMPTS]
    assert found == expected
    assert len(set(found)) > 3


def test_prompts_are_written_together_within_the_context_alone(writer, fed):
    # A context of 23: 18 + 5 tokens fit into it, 18 + 6 do not.
    writer.write_all(PROMPTS, Greedy(), max_tokens=5)
    assert fed[0] == (7, 18)
    fed.clear()
    writer.write_all(PROMPTS, Greedy(), max_tokens=6)
    assert [shape for shape in fed if shape[1] > 1] == [(6, 7), (1, 18)]


def test_equal_prompts_are_drawn_apart_and_the_same_again(writer):
    texts = writer.write_all(["One"] * 5, Sampling(seed=3), max_tokens=13)
    assert len(set(texts)) == 5
    assert texts == writer.write_all(["One"] * 5, Sampling(seed=3), max_tokens=13)
    assert texts[0] == alone(writer, "One", Sampling(seed=3), max_tokens=13)
    # The place decides, and not the company.
    others = writer.write_all(["One", "A", "One sunny"], Sampling(seed=3), max_tokens=13)
    assert others[0] == texts[0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_text_ends_before_a_stop_string(writer, strategy):
    whole = writer.write_all(PROMPTS, strategy, max_tokens=15)
    stop = [whole[0][3:5], whole[5][6:9]]
    expected = [min((text.split(one)[0] for one in stop), key=len) for text in whole]
    assert writer.write_all(PROMPTS, strategy, max_tokens=15, stop=stop) == expected
    assert alone(writer, PROMPTS[5], strategy, max_tokens=15, stop=stop) == expected[5]
    assert expected != whole


def test_nothing_is_computed_after_a_stop_string(writer, fed):
    whole = alone(writer, "One day", Greedy(), max_tokens=15)
    stop = next(whole[:end] for end in range(1, 9) if whole.find(whole[:end]) == 0)
    fed.clear()
    assert alone(writer, "One day", Greedy(), max_tokens=15, stop=[whole[:3]]) == ""
    assert fed == [(1, 7), (1, 1), (1, 1)]
    fed.clear()
    texts = writer.write_all(["One day"] * 2, Greedy(), max_tokens=15, stop=[stop, whole[:3]])
    assert texts == ["", ""]
    assert len(fed) == len(stop)


def test_pieces_come_as_they_are_written(writer, fed):
    pieces = writer.write("One day", Greedy(), max_tokens=9, stop=["no such text"])
    assert fed == []
    next(pieces)
    assert fed == [(1, 7)]


@pytest.mark.parametrize(
    ("asked", "error", "match"),
    [
        ({"prompts": "One"}, TypeError, "prompts takes several texts, and got one: put it"),
        ({"prompts": ["One", "Straße"]}, ValueError, "the prompt has 'ß', which the texts of this"),
        ({"max_tokens": 0}, ValueError, "max_tokens takes a whole number of at least 1, and got 0"),
        ({"stop": "x"}, TypeError, "stop takes several texts, and got 'x': put one into a list"),
    ],
)
def test_what_cannot_be_written_is_told(writer, asked, error, match):
    asked = {"prompts": ["One"], "strategy": Greedy(), "max_tokens": 3, **asked}
    with pytest.raises(error, match=match):
        writer.write_all(asked.pop("prompts"), asked.pop("strategy"), **asked)


def test_no_prompts_have_no_texts(writer):
    assert writer.write_all([], Greedy(), max_tokens=3) == []
