"""The query: a word, a place, or the last word; and how a wrong one is refused."""

import re

import pytest

from glasshead.cli.inputs.sentences import query_position
from glasshead.explanation.embeddings import Embeddings
from glasshead.explanation.sentence import Sentence, VectorSource

SENTENCE = ("the", "shiny", "sun", "and", "the", "moon", "!")


@pytest.mark.parametrize(
    ("asked", "place"), [("shiny", 1), ("!", 6), ("#1", 0), ("#5", 4), ("#007", 6)]
)
def test_where_the_query_is(asked, place):
    assert query_position(SENTENCE, asked) == place


@pytest.mark.parametrize(("tokens", "place"), [(SENTENCE, 5), (("…", "!"), 1)])
def test_the_last_word_is_the_query_or_without_any_word_the_last_mark(tokens, place):
    sentence = Sentence(Embeddings.made_up(tokens), VectorSource.MADE_UP)
    assert sentence.default_query == place


def test_a_token_that_looks_like_a_place_is_asked_for_by_its_place():
    assert query_position(("#2", "b", "c"), "#2") == 1
    assert query_position(("#2", "b", "c"), "#1") == 0


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            "shinny",
            "'shinny' is not in the sentence: did you mean 'shiny'? It takes one of 'the', ",
        ),
        ("Sun", "did you mean 'sun'?"),
        (
            "xyz",
            "'xyz' is not in the sentence: it takes one of 'the', 'shiny', 'sun', 'and', 'moon'",
        ),
        ("the", "'the' stands 2 times in the sentence, at #1, #5: ask for one of them"),
        ("shiny sun", "it is 2 tokens here, so ask for one of 'shiny', 'sun'."),
        ("#0", "positions go from #1 to #7, and --query got #0: the sentence is 'the', "),
        ("#8", "positions go from #1 to #7, and --query got #8"),
        ("#-1", "positions go from #1 to #7, and --query got #-1"),
        ("#1.5", "positions go from #1 to #7, and --query got #1.5"),
        ("#99999999999", "positions go from #1 to #7, and --query got #99999999999"),
        ("", "'' is not in the sentence"),
    ],
)
def test_a_query_that_is_not_there_is_refused(asked, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        query_position(SENTENCE, asked)
