"""What is asked is refused in one sentence where it cannot be told."""

import pytest
import torch
from explanation_told import WORDS, traced

import glasshead as gh
from glasshead.explanation.explain_trace import names

TRACE = traced()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tokens": ["a", "b"]}, ValueError, "one word for each of the 5 queries, got 2"),
        ({"keys": ["a"] * 6}, ValueError, "one word for each of the 5 keys, got 6"),
        ({"tokens": "a b c d e"}, TypeError, r"must be a list of words.*\.split\(\)"),
        ({"tokens": [1, 2, 3, 4, 5]}, TypeError, "words as strings, got 1 among them"),
        ({"query": "dog"}, ValueError, "one of the words 'The', 'cat'.*got 'dog'"),
        ({"query": "Cat "}, ValueError, "Did you mean 'cat'"),
        ({"query": 5}, ValueError, "a position from 0 to 4, or a negative.*got 5"),
        ({"query": -6}, ValueError, "got -6"),
        ({"query": 1.5}, TypeError, "a word or its position, got 1.5"),
        ({"query": True}, TypeError, "got True"),
        ({"index": (0,)}, ValueError, r"which are \[\], got \(0,\)"),
        ({"index": "0"}, TypeError, "a tuple of positions.*got '0'"),
        ({"lang": "xx"}, ValueError, "one of en, tr, es, zh-Hant, zh-Hans, got 'xx'"),
        ({"lang": None}, TypeError, "one of en, tr, es, zh-Hant, zh-Hans, got None"),
    ],
)
def test_what_cannot_be_told_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        gh.explain(TRACE, **{"tokens": WORDS, **options})


@pytest.mark.parametrize("index", [(2, 0), (0, 3), (0,), (0, 0, 0), (-3, 0)])
def test_an_index_outside_is_refused(index):
    with pytest.raises(ValueError, match=r"which are \[2, 3\]"):
        gh.explain(traced(leading=(2, 3)), index=index)


def test_an_index_of_anything_but_numbers_is_refused():
    with pytest.raises(TypeError, match="whole numbers, got 'a' among them"):
        gh.explain(traced(leading=(2, 3)), index=(0, "a"))


@pytest.mark.parametrize("thing", [None, torch.eye(2), gh.Attention()], ids=type)
def test_only_a_trace_can_be_told(thing):
    with pytest.raises(TypeError, match=r"explain needs a Trace, as Attention\(\).trace"):
        gh.explain(thing)


@pytest.mark.parametrize("sizes", [(0, 2, "query"), (2, 0, "key")])
def test_a_trace_without_words_is_refused(sizes):
    queries, keys, what = sizes
    with pytest.raises(ValueError, match=f"at least one {what}, got none"):
        gh.explain(traced(queries=queries, keys=keys))


def test_the_last_query_is_told_unless_another_is_asked_for():
    assert gh.explain(TRACE).query == 4
    assert gh.explain(TRACE, tokens=WORDS, query="cat").query == 1
    assert gh.explain(TRACE, query=-2).query == 3
    assert gh.explain(TRACE, query="2").query == 1


def test_of_equal_words_the_first_is_meant_and_the_second_has_a_name():
    tokens = ["the", "cat", "saw", "the", "dog"]
    assert gh.explain(TRACE, tokens=tokens, query="the").query == 0
    assert gh.explain(TRACE, tokens=tokens, query="the₂").query == 3
    assert gh.explain(TRACE, tokens=tokens).to_dict()["tokens"] == tokens


def test_negative_index_counts_from_the_end():
    assert gh.explain(traced(leading=(2, 3)), index=(-1, -1)).index == (1, 2)


def test_names_are_short_and_no_two_alike():
    given = ["a", "a", "", " ", "x" * 40, "x" * 41, "a"]
    shown = names(given)
    assert len(set(shown)) == len(shown)
    assert max(map(len, shown)) <= 17


def test_a_step_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(KeyError, match="opening, inputs.*got 'softcap'"):
        gh.explain(TRACE)["softcap"]
