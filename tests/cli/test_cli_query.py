"""The query: a word, a place, or the last word; and how a wrong one is refused."""

import re

import pytest

from glasshead.cli.inputs.sentences import query_position

SENTENCE = ("the", "shiny", "sun", "and", "the", "moon", "!")


@pytest.mark.parametrize(
    ("asked", "place"), [(None, 5), ("shiny", 1), ("!", 6), ("#1", 0), ("#5", 4), ("#007", 6)]
)
def test_where_the_query_is(asked, place):
    assert query_position(SENTENCE, asked) == place


def test_without_any_word_the_last_mark_is_the_query():
    assert query_position(("…", "!"), None) == 1


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
